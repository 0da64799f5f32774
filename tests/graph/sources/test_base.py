"""What all readers share: rejects, names of snapshots, and sources of one or several files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.delimited import TsvSource
from dkge_dist.types import Split
from tests.graph.sources.reading import GOOD, written
from tests.graphs import lines


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dump.tsv", "dump"),
        ("dump.tsv.gz", "dump"),
        ("dump-2.1.txt.xz", "dump-2.1"),
        ("2024.01.31", "2024.01.31"),
        ("folder/", "folder"),
        ("folder/.", "folder"),
        ("folder/sub/..", "folder"),
        (".tsv", ".tsv"),
        ("NIGHT.TSV", "NIGHT"),
        ("new\nline.tsv", "new_line"),
        (os.fsdecode(b"caf\xe9.tsv"), "caf_"),
    ],
)
def test_name_of_a_snapshot_is_that_of_the_path(tmp_path: Path, path: str, name: str) -> None:
    assert TsvSource(tmp_path / path if not path.endswith("..") else Path(f"{tmp_path}/{path}")).name == name


def test_root_folder_has_a_default_name() -> None:
    assert TsvSource(Path("/")).name == "snapshot"


def test_folder_with_train_alone_brings_no_splits(tmp_path: Path) -> None:
    path = written(tmp_path / "train.tsv", lines(GOOD))
    assert not TsvSource(tmp_path, files={Split.TRAIN: path}).brings_splits


def test_total_bytes_are_those_of_the_files_that_exist(tmp_path: Path) -> None:
    train, absent = written(tmp_path / "train.tsv", lines(GOOD)), tmp_path / "valid.tsv"
    source = TsvSource(tmp_path, files={Split.TRAIN: train, Split.VALID: absent})
    assert source.brings_splits
    assert (source.bytes_total, source.bytes_read) == (train.stat().st_size, 0)
    assert TsvSource(absent).bytes_total == 0


class TestRejects:
    def test_bad_lines_up_to_the_limit_are_kept(self) -> None:
        rejects = Rejects(limit=2)
        rejects.add(Path("f"), 3, "no tail", "a\tb")
        rejects.add(Path("f"), 7, "nothing")
        assert rejects.lines == ["f:3\tno tail\t'a\\tb'", "f:7\tnothing\t''"]
        with pytest.raises(SourceError, match=r"^f:9: no tail \(2 bad lines were allowed\): 'x'$"):
            rejects.add(Path("f"), 9, "no tail", "x")
        assert len(rejects.lines) == 2

    def test_no_bad_line_is_allowed_by_default(self) -> None:
        with pytest.raises(SourceError, match=r"^f:1: no tail: 'x'$"):
            Rejects().add(Path("f"), 1, "no tail", "x")

    def test_long_lines_are_cut(self) -> None:
        rejects = Rejects(limit=1)
        rejects.add(Path("f"), 1, "long", "y" * 500)
        assert rejects.lines == ["f:1\tlong\t'" + "y" * 200 + "…'"]
