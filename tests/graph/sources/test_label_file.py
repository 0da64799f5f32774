"""Files of display names: every byte of a name comes back; lines that are none are named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects
from dkge_dist.graph.sources.delimited import LabelFileSource
from dkge_dist.graph.sources.detect import open_label_files, open_source
from tests.graph.sources.reading import names, refusal, triples, written
from tests.graphs import ODD_LABELS

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=6)


def test_each_line_is_a_name_and_the_last_one_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "names.tsv", "tt1\tThe Matrix\nP161\tcast member\n\ntt1\tMatrix\n")
    (source,) = open_label_files([path])
    assert names(source) == {"tt1": "Matrix", "P161": "cast member"}
    assert triples(LabelFileSource(path)) == []
    assert source.counts == {"empty lines skipped": 1}


def test_compressed_and_odd_names(tmp_path: Path) -> None:
    content = "".join(f"{label}\tx {label}\n" for label in ODD_LABELS)
    path = written(tmp_path / "names.tsv.gz", gzip.compress(content.encode()))
    source = open_source(path, "labels")
    assert (source.format, source.is_change, source.is_names) == ("labels", True, True)
    assert names(source) == {label: f"x {label}" for label in ODD_LABELS}


@settings(max_examples=40)
@given(st.dictionaries(text, text, min_size=1), st.integers(1, 40), st.sampled_from(["\n", "\r\n"]))
def test_any_name_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, expected: dict[str, str], chunk: int, end: str
) -> None:
    content = "\n" + "".join(f"{label}\t{name}{end}" for label, name in expected.items())
    path = written(tmp_path_factory.getbasetemp() / "any.tsv", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert names(LabelFileSource(path)) == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [("tt2", "1 columns instead of 2"), ("tt2\ta\tb", "3 columns instead of 2"), ("\tname", "empty label")],
)  # fmt: skip
def test_lines_that_are_no_names_are_told(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path / "names.tsv", f"tt1\tone\n{line}\ntt3\tthree\n")
    assert refusal(LabelFileSource(path)) == f"{path}:2: {reason}: {line!r}"
    rejects = Rejects(1)
    assert names(LabelFileSource(path), rejects) == {"tt1": "one", "tt3": "three"}
    assert len(rejects.lines) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_name_is_one(tmp_path: Path, end: str) -> None:
    path = written(tmp_path / "names.tsv", f"tt1\tone{end}tt2\t{end}tt1\t{end}")
    assert names(LabelFileSource(path)) == {"tt1": "", "tt2": ""}


def test_a_file_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"nothing\.tsv: no such file"):
        open_label_files([tmp_path / "nothing.tsv"])
