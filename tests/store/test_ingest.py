"""Ingest: a source becomes the next snapshot, all of it or nothing, and what looks wrong is refused."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import SourceError
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.store.ingest import (
    FOLD_AFTER_NIGHTS,
    Ingested,
    IngestOptions,
    block_rows,
    ingest,
)
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError, Split, UsageError
from tests.graphs import (
    Labelled,
    Names,
    assert_sound,
    content,
    dense,
    everything,
    head,
    labelled,
    lines,
    listing,
    movies,
    odd_triples,
    write_changes,
    write_tsv,
)
from tests.store.sources import swapped, write_splits

REPORT_KEYS = {
    "version", "name", "format", "unchanged", "entities", "relations", "triples", "train", "valid", "test", "added",
    "deleted", "emerging_entities", "removed_entities", "emerging_relations", "removed_relations", "counts", "rejects",
    "held_out_by_default", "misspellings", "lines", "bytes_written", "seconds", "triples_per_second", "named_entities",
    "named_relations", "unnamed_entities", "unnamed_relations",
}  # fmt: skip


class TestFirst:
    def test_a_store_is_made(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "store"
        report = api.ingest(path, write_tsv(tmp_path / "base.tsv", movies(40)))
        assert set(report) == REPORT_KEYS
        assert (report["version"], report["name"], report["format"]) == (1, "base", "tsv")
        assert (report["triples"], report["train"], report["added"], report["lines"]) == (40, 40, 40, 40)
        entities = {label for h, _, t in movies(40) for label in (h, t)}
        assert (report["entities"], report["relations"]) == (len(entities), 2)
        assert report["emerging_entities"] == len(entities)
        assert report["unchanged"] is False
        assert report["counts"] == {}
        assert report["rejects"] is None
        assert everything(path, "base") == set(movies(40))
        assert_sound(path)

    def test_progress_is_heard(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(files, "CHUNK_BYTES", 500)
        heard: list[float] = []
        source = write_tsv(tmp_path / "base.tsv", movies(200))
        api.ingest(tmp_path / "store", source, progress=lambda done, text: heard.append(done))
        assert heard == sorted(heard)
        assert len(heard) > 5
        assert 0 < heard[0] < heard[-1] == 1.0

    def test_in_an_empty_folder(self, tmp_path: Path) -> None:
        (tmp_path / "store" / "lost+found").mkdir(parents=True)
        assert api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(4)))["version"] == 1

    def test_not_in_a_folder_of_something_else(self, tmp_path: Path) -> None:
        source = write_tsv(tmp_path / "base.tsv", movies(4))
        for path in (tmp_path, source):
            before = listing(tmp_path)
            with pytest.raises(StoreError, match="exists and is not a store; name an empty or new folder"):
                api.ingest(path, source)
            assert listing(tmp_path) == before

    def test_a_change_needs_something_to_change(self, tmp_path: Path) -> None:
        source = write_changes(tmp_path / "night.changes", movies(4))
        with pytest.raises(
            SourceError, match=r"night\.changes: a change needs a snapshot to change, and .*store holds"
        ):
            api.ingest(tmp_path / "store", source)
        assert not (tmp_path / "store").exists()

    def test_blocks_are_fixed_at_the_first(self, tmp_path: Path, store: Path) -> None:
        api.ingest(store, write_tsv(tmp_path / "next.tsv", movies(60_000)), force=True)
        assert head(store).block_rows == Store.open(store).manifest(1).block_rows == 64

    @pytest.mark.parametrize(
        ("rows", "expected"),
        [(0, 64), (64 * 256, 64), (64 * 256 + 256, 128), (3_244_455, 16_384), (10**9, 16_384), (243_000, 1024)],
    )
    def test_block_rows(self, rows: int, expected: int) -> None:
        assert block_rows(rows) == expected


class TestNext:
    def test_a_full_snapshot(self, tmp_path: Path, store: Path) -> None:
        triples = movies(200)[:195] + movies(10, first=200)
        report = api.ingest(store, write_tsv(tmp_path / "next.tsv", triples))
        assert (report["version"], report["name"]) == (2, "next")
        assert (report["added"], report["deleted"], report["triples"]) == (10, 5, 205)
        assert everything(store, "next") == set(triples)
        assert everything(store, "base") == set(movies(200))
        assert_sound(store)

    def test_a_change_file(self, tmp_path: Path, store: Path) -> None:
        night = write_changes(tmp_path / "night.changes", movies(10, first=200), movies(5))
        report = api.ingest(store, night)
        assert (report["format"], report["added"], report["deleted"]) == ("changes", 10, 5)
        assert everything(store, "night") == set(movies(200)[5:] + movies(10, first=200))
        assert_sound(store)

    def test_both_give_the_same_content(self, tmp_path: Path, store: Path) -> None:
        other = tmp_path / "other"
        api.ingest(other, write_tsv(tmp_path / "base.tsv", movies(200)[::-1]))
        api.ingest(store, write_changes(tmp_path / "night.changes", movies(10, first=200), movies(5)))
        api.ingest(other, write_tsv(tmp_path / "next.tsv", movies(200)[5:] + movies(10, first=200)))
        assert head(store).snapshot.content == head(other).snapshot.content

    def test_the_same_triples_in_any_order_and_format_change_nothing(self, tmp_path: Path, store: Path) -> None:
        before = listing(store)
        triples = movies(200)[::-1]
        entities = sorted({label for h, _, t in triples for label in (h, t)}, reverse=True)
        openke = tmp_path / "openke"
        numbers = {label: i for i, label in enumerate(entities)}
        relations = {"director": 0, "actor": 1}
        write_counted(openke / "entity2id.txt", [f"{label}\t{i}" for label, i in numbers.items()])
        write_counted(openke / "relation2id.txt", [f"{label}\t{i}" for label, i in relations.items()])
        write_counted(openke / "train2id.txt", [f"{numbers[h]} {numbers[t]} {relations[r]}" for h, r, t in triples])
        h, r, t = (list(column) for column in zip(*triples, strict=True))
        pq.write_table(pa.table({"h": h, "r": r, "t": t}), tmp_path / "graph.parquet")
        (tmp_path / "graph.tsv.gz").write_bytes(gzip.compress(lines(triples).encode()))
        sources = [openke, tmp_path / "graph.parquet", tmp_path / "graph.tsv.gz", tmp_path / "base.tsv"]
        for source in sources:
            report = api.ingest(store, source)
            assert report["unchanged"] is True
            assert (report["version"], report["name"]) == (1, "base")
            assert (report["added"], report["deleted"], report["bytes_written"]) == (0, 0, 0)
        assert listing(store) == before

    def test_a_change_file_that_comes_twice_changes_nothing(self, tmp_path: Path, store: Path) -> None:
        night = write_changes(tmp_path / "night.changes", movies(10, first=200), movies(5))
        api.ingest(store, night)
        before = listing(store)
        report = api.ingest(store, night)
        assert report["unchanged"] is True
        assert (report["version"], report["added"], report["deleted"]) == (2, 0, 0)
        assert report["counts"] == {"already_present": 10, "already_absent": 5}
        assert listing(store) == before

    def test_everything_may_go_and_come_back(self, tmp_path: Path, store: Path) -> None:
        rows = Store.open(store).dictionaries(head(store))[0]
        everybody = rows.labels(range(len(rows)))
        api.ingest(store, write_changes(tmp_path / "end.changes", deleted=movies(200)), force=True)
        assert (head(store).snapshot.entities, head(store).snapshot.train) == (0, 0)
        report = api.ingest(store, tmp_path / "base.tsv")
        assert report["emerging_entities"] == report["entities"] == len(everybody)
        again = Store.open(store).dictionaries(head(store))[0]
        assert again.labels(range(len(again))) == everybody
        assert_sound(store)

    def test_duplicates_are_merged_and_counted(self, tmp_path: Path, store: Path) -> None:
        report = api.ingest(store, write_tsv(tmp_path / "next.tsv", movies(210) + movies(7) + movies(3)))
        assert report["counts"] == {"duplicates": 10}
        assert (report["lines"], report["triples"], report["added"]) == (220, 210, 10)


def write_counted(path: Path, rows: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([str(len(rows)), *rows]) + "\n")


class TestSplits:
    def test_splits_are_taken_as_they_are_and_leaks_are_counted(self, tmp_path: Path) -> None:
        triples = movies(60)
        source = write_splits(
            tmp_path / "data", train=triples, valid=triples[:3], test=movies(5, first=58) + triples[:1]
        )
        report = api.ingest(tmp_path / "store", source)
        assert (report["train"], report["valid"], report["test"]) == (60, 3, 6)
        assert report["counts"] == {"valid_in_train": 3, "test_in_train": 3}
        assert (report["added_valid"], report["added_test"]) == (3, 6)
        found = content(tmp_path / "store", "data")
        assert found[Split.VALID] == set(triples[:3])
        assert found[Split.TEST] == {*movies(5, first=58), triples[0]}

    def test_splits_do_not_go_with_a_cut(self, tmp_path: Path) -> None:
        source = write_splits(tmp_path / "data", train=movies(20), valid=movies(2))
        for options in ({"valid": 3}, {"test": 0}):
            with pytest.raises(UsageError, match="brings its own splits: --valid and --test do not go with it"):
                api.ingest(tmp_path / "store", source, **options)

    def test_negative_cuts(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="not a negative one"):
            api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(20)), valid=-1)

    def test_a_cut_stays_through_nights_of_both_kinds(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        report = api.ingest(path, write_tsv(tmp_path / "base.tsv", movies(200)), valid=10, test=12)
        assert (report["train"], report["valid"], report["test"]) == (178, 10, 12)
        first = content(path, "1")
        api.ingest(path, write_changes(tmp_path / "night.changes", movies(10, first=200)))
        report = api.ingest(path, write_tsv(tmp_path / "next.tsv", movies(220)), valid=11)
        assert (report["valid"], report["test"], report["added"]) == (11, 12, 9)
        last = content(path, "3")
        assert first[Split.VALID] < last[Split.VALID]
        assert first[Split.TEST] == last[Split.TEST]
        assert_sound(path)

    def test_a_collision_is_counted(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        api.ingest(path, write_tsv(tmp_path / "base.tsv", movies(200)), valid=20)
        before = content(path, "1")
        triple = sorted(before[Split.VALID])[0]
        others = [other for other in before[Split.TRAIN] if triple[0] in other]
        report = api.ingest(path, write_changes(tmp_path / "night.changes", deleted=others))
        assert report["counts"] == {"returned_to_train": 1}
        assert triple in content(path, "2")[Split.TRAIN]


class TestIngested:
    """What an ingest hands on: an update after it needs nothing from disk."""

    def ingested(self, store: Store, source: Path, **options: Any) -> Ingested:
        return ingest(store, open_source(source, "auto"), IngestOptions(**options))

    def assert_same_graph(self, found: Snapshot, names: Names, path: Path, version: str) -> None:
        for split in Split:
            assert labelled(found.triples(split), names) == content(path, version)[split]
        stored = Store.open(path).snapshot(Store.open(path).find_snapshot(version), head(path))
        assert (found.entity_rows, found.relation_rows) == (stored.entity_rows, stored.relation_rows)
        # It stands on the same base: a model names neighbour lists by it.
        assert labelled(found.base.splits[Split.TRAIN], names) == labelled(stored.base.splits[Split.TRAIN], names)
        assert np.array_equal(found.entities_alive, stored.entities_alive)
        assert np.array_equal(found.relations_alive, stored.relations_alive)

    def assert_same_names(self, found: Names, path: Path) -> None:
        for mine, stored in zip(found, Store.open(path).dictionaries(head(path)), strict=True):
            assert (mine.noun, len(mine)) == (stored.noun, len(stored))
            assert mine.labels(np.arange(len(mine))) == stored.labels(np.arange(len(stored)))
            assert np.array_equal(mine.digests, stored.digests)

    def test_first(self, tmp_path: Path) -> None:
        store = Store.open_or_new(tmp_path / "store")
        done = self.ingested(store, write_tsv(tmp_path / "base.tsv", movies(40)), held_out=HeldOut(3, 3))
        assert done.before.triple_count == 0
        self.assert_same_graph(done.snapshot, done.names, tmp_path / "store", "base")
        self.assert_same_names(done.names, tmp_path / "store")
        assert store.head() == done.manifest == head(tmp_path / "store")

    def test_nights_in_a_store_that_is_opened_once(self, tmp_path: Path, store: Path) -> None:
        opened = Store.open(store)
        known = movies(200)
        for number in range(1, 5):
            before = {*known}
            come, gone = movies(10 * number, first=200 * number), known[:7]
            known = [triple for triple in known if triple not in gone] + come
            done = self.ingested(opened, write_changes(tmp_path / f"{number}.changes", come, gone), name=f"n{number}")
            assert (done.unchanged, done.manifest.version) == (False, number + 1)
            assert opened.head() == done.manifest
            assert labelled(done.before.triples(Split.TRAIN), done.names) == before
            assert labelled(done.diff.added, done.names) == {*come}
            assert labelled(done.diff.deleted, done.names) == {*gone}
            self.assert_same_graph(done.snapshot, done.names, store, f"n{number}")
            self.assert_same_names(done.names, store)
        assert_sound(store)

    def test_unchanged(self, tmp_path: Path, store: Path) -> None:
        """Labels that came with triples that change nothing are not stored: they have no rows."""
        source = write_changes(tmp_path / "night.changes", deleted=[("nobody", "nothing", "nowhere")])
        done = self.ingested(Store.open(store), source, force=True)
        assert (done.unchanged, done.manifest.version, done.diff.is_empty) == (True, 1, True)
        self.assert_same_names(done.names, store)
        for snapshot in (done.before, done.snapshot):
            self.assert_same_graph(snapshot, done.names, store, "base")

    def test_repeated_after_others(self, tmp_path: Path, store: Path) -> None:
        """The snapshot of that name is not the current one; what is handed on is."""
        monday = write_tsv(tmp_path / "monday.tsv", movies(202))
        api.ingest(store, monday, name="monday")
        api.ingest(store, write_tsv(tmp_path / "tuesday.tsv", movies(204)), name="tuesday")
        done = self.ingested(Store.open(store), monday, name="monday")
        assert (done.unchanged, done.manifest.snapshot.name) == (True, "monday")
        self.assert_same_graph(done.snapshot, done.names, store, "tuesday")


class TestFolding:
    def test_changes_are_folded_after_many_nights(self, tmp_path: Path) -> None:
        store = tmp_path / "store"
        api.ingest(store, write_tsv(tmp_path / "base.tsv", movies(400)))
        expected = set(movies(400))
        states = [frozenset(expected)]
        for night in range(1, FOLD_AFTER_NIGHTS + 3):
            come, gone = movies(1, first=399 + night), movies(1, first=night)
            expected = expected - set(gone) | set(come)
            states.append(frozenset(expected))
            api.ingest(store, write_changes(tmp_path / f"night-{night}.changes", come, gone))
        stored = [version["stored"] for version in api.log(store)["versions"]]
        assert stored == ["full", *["change"] * (FOLD_AFTER_NIGHTS - 1), "full", "change", "change"]
        assert everything(store, "1") == states[0]
        for version in (FOLD_AFTER_NIGHTS, FOLD_AFTER_NIGHTS + 1, FOLD_AFTER_NIGHTS + 3):
            assert everything(store, str(version)) == states[version - 1]
        over_the_fold = api.diff(store, "5", str(FOLD_AFTER_NIGHTS + 3))
        assert over_the_fold["added"] == len(states[-1] - states[4])
        assert over_the_fold["deleted"] == len(states[4] - states[-1])
        assert_sound(store)

    def test_changes_are_folded_when_they_are_a_quarter_of_the_whole(self, tmp_path: Path, store: Path) -> None:
        stored = []
        for night in range(1, 6):
            api.ingest(store, write_tsv(tmp_path / f"{night}.tsv", movies(200 + 20 * night)), name=f"night-{night}")
            stored.append(head(store).snapshot.base is not None)
        assert stored == [False, False, True, False, False]
        assert everything(store, "night-5") == set(movies(300))
        assert_sound(store)

    def test_a_night_costs_what_it_changes(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        first = api.ingest(path, write_tsv(tmp_path / "base.tsv", movies(40_000)))
        night = api.ingest(path, write_changes(tmp_path / "night.changes", movies(10, first=40_000)))
        assert night["bytes_written"] < first["bytes_written"] / 50


def test_a_first_snapshot_is_split_by_default(tmp_path: Path) -> None:
    graph = [(f"a{i % 60}", "r", f"b{i // 60}") for i in range(3000)]
    source = write_tsv(tmp_path / "base.tsv", graph)
    report = api.ingest(tmp_path / "store", source)
    assert (report["train"], report["valid"], report["test"]) == (2800, 100, 100)
    assert report["held_out_by_default"]
    night = api.ingest(tmp_path / "store", write_changes(tmp_path / "night.changes", movies(9)))
    assert (night["valid"], night["test"], night["held_out_by_default"]) == (100, 100, False)
    declined = api.ingest(tmp_path / "all", source, valid=0, test=0)
    assert (declined["train"], declined["held_out_by_default"]) == (3000, False)
    small = api.ingest(tmp_path / "small", write_tsv(tmp_path / "small.tsv", movies(40)))
    assert (small["train"], small["held_out_by_default"]) == (40, True)


def test_objects_in_memory_are_ingested(tmp_path: Path) -> None:
    report = api.ingest(tmp_path / "store", movies(40))
    assert (report["name"], report["format"], report["train"]) == ("snapshot", "triples", 40)
    assert everything(tmp_path / "store", "snapshot") == set(movies(40))
    table = pa.table(dict(zip("hrt", map(list, zip(*movies(44), strict=True)), strict=True)))
    assert api.ingest(tmp_path / "store", table)["added"] == 4
    assert_sound(tmp_path / "store")


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


class TestLabels:
    def test_odd_labels_go_in_and_out_byte_for_byte(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        api.ingest(path, write_tsv(tmp_path / "odd.tsv", [("start", "r", "here"), *odd_triples()]))
        assert everything(path, "1") == {("start", "r", "here"), *odd_triples()}
        assert_sound(path)

    def test_a_written_diff_is_a_change_file_that_leads_there(self, tmp_path: Path) -> None:
        one, two, night = tmp_path / "one", tmp_path / "two", tmp_path / "night.changes"
        base = write_tsv(tmp_path / "base.tsv", movies(300))
        for path in (one, two):
            api.ingest(path, base)
        api.ingest(one, write_tsv(tmp_path / "next.tsv", movies(290) + odd_triples()), name="next")
        report = api.diff(one, "base", "next", out=night)
        assert report["out"] == str(night)
        assert sorted(path.name for path in tmp_path.glob("*night*")) == ["night.changes"]
        api.ingest(two, night)
        assert everything(two, "night") == everything(one, "next") == {*movies(290), *odd_triples()}
        assert head(one).snapshot.content == head(two).snapshot.content

    @pytest.mark.parametrize("label", ["tab\there", "line\nend", "return\r"])
    def test_labels_that_a_change_file_cannot_hold(self, tmp_path: Path, store: Path, label: str) -> None:
        h, r, t = (list(column) for column in zip(*movies(200), ("a", "actor", label), strict=True))
        pq.write_table(pa.table({"h": h, "r": r, "t": t}), tmp_path / "next.parquet")
        api.ingest(store, tmp_path / "next.parquet")
        with pytest.raises(UsageError, match="a change file cannot hold the label"):
            api.diff(store, "1", "2", out=tmp_path / "night.changes")
        assert not list(tmp_path.glob("*night*"))


class TestNames:
    def test_a_name_that_the_source_gives_is_made_free(self, tmp_path: Path, store: Path) -> None:
        names = []
        for night in range(1, 4):
            source = write_tsv(tmp_path / str(night) / "dump.tsv", movies(200 + night))
            names.append(api.ingest(store, source)["name"])
        assert names == ["dump", "dump-3", "dump-4"]

    def test_a_numbered_name_may_be_taken_too(self, tmp_path: Path, store: Path) -> None:
        api.ingest(store, write_tsv(tmp_path / "a.tsv", movies(201)), name="dump")
        api.ingest(store, write_tsv(tmp_path / "a.tsv", movies(202)), name="dump-4")
        report = api.ingest(store, write_tsv(tmp_path / "dump.tsv", movies(203)))
        assert report["name"] == "dump-5"
        all_names = [version["name"] for version in api.log(store)["versions"]]
        assert len(set(all_names)) == len(all_names) == 4

    def test_a_given_name_that_is_taken(self, tmp_path: Path, store: Path) -> None:
        source = write_tsv(tmp_path / "next.tsv", movies(201))
        before = listing(store)
        with pytest.raises(UsageError, match="the name 'base' is taken by version 1, which holds other triples"):
            api.ingest(store, source, name="base")
        assert listing(store) == before

    def test_a_given_name_makes_an_ingest_repeatable(self, tmp_path: Path, store: Path) -> None:
        monday = write_tsv(tmp_path / "monday.tsv", movies(202))
        api.ingest(store, monday, name="monday")
        api.ingest(store, write_tsv(tmp_path / "tuesday.tsv", movies(204)), name="tuesday")
        report = api.ingest(store, monday, name="monday")
        assert report["unchanged"] is True
        assert (report["version"], report["name"], report["triples"]) == (2, "monday", 202)
        assert (report["added"], report["deleted"]) == (0, 0)
        assert head(store).version == 3

    def test_a_new_name_for_the_same_triples_is_a_version(self, tmp_path: Path, store: Path) -> None:
        report = api.ingest(store, tmp_path / "base.tsv", name="again")
        assert (report["unchanged"], report["version"], report["added"], report["deleted"]) == (False, 2, 0, 0)
        assert everything(store, "again") == everything(store, "base")
        assert_sound(store)

    @pytest.mark.parametrize("name", ["", "new\nline", "\0", "x" * 201, "\udce9"])
    def test_names_that_cannot_be(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match="a name has 1 to 200 printable characters"):
            api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(20)), name=name)
        assert not (tmp_path / "store").exists()

    @pytest.mark.parametrize("name", ["../../escape", "a/b", ".hidden", "nåme", "--x", "x" * 200])
    def test_a_name_is_no_path(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / "deep" / "er" / "store"
        source = tmp_path / "base.tsv"
        source.write_text(lines(movies(20)) + "bad\n")
        report = api.ingest(path, source, name=name, max_bad_lines=1)
        assert report["name"] == head(path).snapshot.name == name
        assert Path(report["rejects"]).parent == path / "rejects"
        assert {entry.name for entry in tmp_path.iterdir()} == {"deep", "base.tsv"}
        assert everything(path, name) == set(movies(20))

    def test_a_name_that_is_a_number_is_a_name(self, tmp_path: Path, store: Path) -> None:
        api.ingest(store, write_tsv(tmp_path / "1.tsv", movies(201)))
        opened = Store.open(store)
        assert opened.find_snapshot("1").version == 2
        assert opened.find_snapshot("2").version == 2
        with pytest.raises(StoreError, match="no snapshot '3'; the newest are base, 1"):
            opened.find_snapshot("3")


def held_out(store: Path, version: int) -> set[Labelled]:
    state = content(store, str(version))
    return state[Split.VALID] | state[Split.TEST]


@pytest.mark.parametrize("cleared", [True, False])
def test_what_was_deleted_returns(tmp_path: Path, cleared: bool) -> None:
    store, triples = tmp_path / "store", dense(2000, entities=200)
    api.ingest(store, write_tsv(tmp_path / "base.tsv", triples))
    half = triples[::2]
    api.ingest(store, write_changes(tmp_path / "less.changes", [], half), force=True)
    api.ingest(store, write_changes(tmp_path / "more.changes", movies(600), []), force=True)
    if cleared:
        api.gc(store, keep=1, grace_hours=0)
    report = api.ingest(store, write_changes(tmp_path / "again.changes", half, []), valid=100, test=100)
    found = held_out(store, report["version"])
    assert found & set(triples) == set()
    fresh = [("e1", "new", f"e{i}") for i in range(300)]
    report = api.ingest(store, write_changes(tmp_path / "fresh.changes", fresh, []), valid=100, test=100)
    assert len(held_out(store, report["version"])) == 200
    assert_sound(store)


def test_random_nights(tmp_path: Path) -> None:
    """Against a plain set of everything that any version had in train."""
    chance = random.Random(3)
    store, pool = tmp_path / "store", dense(1500)
    api.ingest(store, write_tsv(tmp_path / "base.tsv", pool[:250]), valid=10, test=10)
    trained = content(store, "1")[Split.TRAIN]
    held = held_out(store, 1)
    new = 0
    for night in range(40):
        now = head(store)
        state = content(store, str(now.version))
        current = set().union(*state.values())
        if night % 7 == 6:
            last = now.version
            left = [n for n in range(max(1, last - 6), last + 1) if not now.current.is_cleared(n)]
            left = [n for n in left if not now.current.is_cleared(Store.open(store).state_at(n).snapshot)]
            api.rollback(store, chance.choice(left))
            held = held_out(store, head(store).version)
            continue
        if night % 5 == 4:
            api.gc(store, keep=2, grace_hours=0)
            continue
        gone = chance.sample(sorted(current), 20)
        come = chance.sample(sorted(set(pool) - current), 22)
        changes = write_changes(tmp_path / f"{night}.changes", come, gone)
        sizes = {"valid": chance.choice([None, 20]), "test": chance.choice([None, 15])}
        version = api.ingest(store, changes, force=True, **sizes)["version"]
        found = held_out(store, version)
        assert (found - held) & trained == set(), night
        new += len(found - held)
        held = found
        trained |= content(store, str(version))[Split.TRAIN]
    assert new > 30
    assert_sound(store)


# By snapshot: entities, relations, train, added, deleted, valid and test triples that are in train too.
PUBLISHED = {
    "YAGO-3SP": [
        (26_897, 36, 123_974, 123_974, 0, 0, 0),
        (27_033, 37, 124_724, 900, 150, 52, 53),
        (27_097, 37, 125_574, 1000, 150, 172, 194),
    ],
    "DBpedia-3SP": [
        (66_308, 942, 102_308, 102_308, 0, 0, 0),
        (67_044, 959, 103_212, 1010, 106, 41, 0),
        (67_548, 1002, 104_112, 999, 99, 63, 0),
    ],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_snapshots_and_their_diffs(tmp_path: Path, published_data: Path, name: str) -> None:
    store = tmp_path / "store"
    for number, expected in enumerate(PUBLISHED[name], 1):
        report = api.ingest(store, published_data / name / f"snapshot{number}")
        leaks = (report["counts"].get("valid_in_train", 0), report["counts"].get("test_in_train", 0))
        keys = ("entities", "relations", "train", "added", "deleted")
        assert (*(report[key] for key in keys), *leaks) == expected
        assert (report["format"], report["name"], report["version"]) == ("openke", f"snapshot{number}", number)
    assert_sound(store)
    # One duplicate triple is in these files.
    assert sum(version["counts"].get("duplicates", 0) for version in api.log(store)["versions"]) == (name != "YAGO-3SP")
