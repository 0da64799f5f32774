"""Writing a synthetic graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist import synth
from dkge_dist.types import UsageError


def test_sizes_replace_those_of_the_preset(tmp_path: Path) -> None:
    heard: list[float] = []
    report = synth(
        tmp_path / "movies", entities=400, nights=2, seed=5, progress=lambda share, message: heard.append(share)
    )
    assert sorted(path.name for path in (tmp_path / "movies").glob("night-*.changes")) == [
        "night-001.changes", "night-002.changes",
    ]  # fmt: skip
    assert (tmp_path / "movies" / "snapshot-000.tsv").is_file()
    assert report["seconds"] >= 0
    assert heard


def test_the_same_seed_writes_the_same_graph(tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        synth(tmp_path / name, entities=400, nights=1, seed=seed)
    one, same, other = ((tmp_path / name / "snapshot-000.tsv").read_bytes() for name in ("one", "same", "other"))
    assert one == same != other


def test_nights_are_written_in_full_when_that_is_asked_for(tmp_path: Path) -> None:
    synth(tmp_path / "movies", entities=400, nights=1, full=True)
    assert (tmp_path / "movies" / "snapshot-001.tsv").is_file()


def test_an_unknown_preset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no preset 'imdb': one of demo"):
        synth(tmp_path / "movies", preset="imdb")


def test_sizes_that_cannot_be_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        synth(tmp_path / "movies", entities=-5)
    assert not (tmp_path / "movies").exists()
