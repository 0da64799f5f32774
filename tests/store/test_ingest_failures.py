"""An ingest that fails leaves the store as it was; lines that may be refused are kept in a file."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dkge_dist.graph.sources.base import SourceError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError
from tests.graphs import assert_sound, head, lines, listing, movies, write_changes, write_tsv
from tests.store.sources import swapped


class TestRejects:
    def test_bad_lines_go_to_a_file(self, tmp_path: Path, store: Path) -> None:
        source = tmp_path / "next.tsv"
        source.write_bytes(lines(movies(200)).encode() + b"one\n\xff\tr\tb\nx\t\ty\n" + lines(movies(1, 200)).encode())
        report = api.ingest(store, source, max_bad_lines=3)
        assert (report["triples"], report["lines"]) == (201, 201)
        assert report["counts"] == {"bad_lines": 3}
        assert head(store).snapshot.counts == {"bad_lines": 3}
        rejects = Path(report["rejects"])
        assert rejects.parent == store / "rejects"
        assert sorted(rejects.read_text().splitlines()) == [
            f"{source}:201\t1 columns instead of 3\t'one'",
            f"{source}:202\tbroken UTF-8 at byte 1 of the line\t" + repr("\\xff\tr\tb"),
            f"{source}:203\tempty relation\t" + repr("x\t\ty"),
        ]
        assert_sound(store)

    def test_every_version_has_its_own(self, tmp_path: Path, store: Path) -> None:
        paths = []
        for night in range(2):
            (tmp_path / "next.tsv").write_text(lines(movies(201 + night)) + "bad\n")
            paths.append(api.ingest(store, tmp_path / "next.tsv", max_bad_lines=1)["rejects"])
        assert len(set(paths)) == 2
        assert [Path(path).read_text().count("\n") for path in paths] == [1, 1]

    def test_bad_lines_are_told_of_where_nothing_changed_too(self, tmp_path: Path, store: Path) -> None:
        (tmp_path / "next.tsv").write_text(lines(movies(200)) + "bad\n")
        report = api.ingest(store, tmp_path / "next.tsv", max_bad_lines=1)
        assert report["unchanged"] is True
        assert report["counts"] == {"bad_lines": 1}
        assert "next.tsv:201\t" in Path(report["rejects"]).read_text()

    def test_no_more_than_allowed(self, tmp_path: Path, store: Path) -> None:
        (tmp_path / "next.tsv").write_text("bad\n" * 3 + lines(movies(200)))
        before = listing(store)
        with pytest.raises(SourceError, match=r"next\.tsv:3: .*\(2 bad lines were allowed\)"):
            api.ingest(store, tmp_path / "next.tsv", max_bad_lines=2)
        assert listing(store) == before


def _truncated(folder: Path) -> Path:
    (folder / "next.tsv.gz").write_bytes(gzip.compress(lines(movies(3000)).encode())[:-20])
    return folder / "next.tsv.gz"


def _with(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "next.tsv").write_bytes(content)
        return folder / "next.tsv"

    return make


FAILURES: dict[str, Callable[[Path], Path]] = {
    "missing": lambda folder: folder / "absent.tsv",
    "empty": _with(b""),
    "only empty lines": _with(b"\n\n"),
    "not recognised": lambda folder: _with(b"words\n")(folder).rename(folder / "words"),
    "wrong columns at the end": _with(lines(movies(201)).encode() + b"a\tb\n"),
    "broken UTF-8 at the end": _with(lines(movies(201)).encode() + b"a\tr\t\xff\n"),
    "empty label": _with(lines(movies(201)).encode() + b"\tr\tb\n"),
    "truncated gzip": _truncated,
    "truncated dump": lambda folder: write_tsv(folder / "next.tsv", movies(20)),
    "another graph": lambda folder: write_tsv(folder / "next.tsv", [("x", "r", "y")]),
    "swapped": lambda folder: write_tsv(folder / "next.tsv", swapped(movies(300))),
    "wrong change": lambda folder: write_changes(folder / "next.changes", movies(1, 200), [("x", "r", "y")]),
    "unsigned change": lambda folder: write_tsv(folder / "next.changes", [("x", "r", "y")]),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_the_store_is_as_before_whatever_fails(tmp_path: Path, store: Path, failure: str) -> None:
    source = FAILURES[failure](tmp_path)
    before = listing(store)
    with pytest.raises(DkgeError) as caught:
        api.ingest(store, source)
    assert str(source) in str(caught.value)
    assert listing(store) == before


@pytest.mark.parametrize("failure", sorted(set(FAILURES) - {"truncated dump", "another graph"}))
def test_no_store_is_made_if_the_first_ingest_fails(tmp_path: Path, failure: str) -> None:
    with pytest.raises(DkgeError):
        api.ingest(tmp_path / "new", FAILURES[failure](tmp_path))
    assert not (tmp_path / "new").exists()


def test_a_full_disk_leaves_the_versions_as_they_were(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_tsv(tmp_path / "next.tsv", movies(210))
    failed = 0
    for allowed in range(100):
        calls = iter(range(allowed))
        real = os.fsync

        def fsync(descriptor: int, calls: Any = calls, real: Any = real) -> None:
            if next(calls, None) is None:
                raise OSError(28, "No space left on device")
            real(descriptor)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            try:
                api.ingest(store, source)
                break
            except OSError:
                failed += 1
        versions = Store.open(store).versions()
        if versions == [1, 2]:
            # The very last call makes the new name durable: by then it is there.
            break
        assert versions == [1]
        assert list((store / "staging").iterdir()) == []
        assert_sound(store)
    assert failed >= 5
    assert api.ingest(store, source)["version"] == 2
    assert_sound(store)
