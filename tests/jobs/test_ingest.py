"""Ingest as a job: its report, and what it hands on to the next step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.sources.base import SourceOptions
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.jobs.ingest import ingest
from dkge_dist.store.ingest import IngestOptions
from dkge_dist.store.store import Store
from dkge_dist.types import Split
from tests.graphs import Labelled, labelled, movies, write_changes, write_tsv

pytestmark = pytest.mark.usefixtures("one_thread")


def source_of(path: Path):  # type: ignore[no-untyped-def]
    return open_source(path, "auto", SourceOptions())


@pytest.fixture
def first(tmp_path: Path) -> Store:
    store = Store.open_or_new(tmp_path / "store")
    source = source_of(write_tsv(tmp_path / "base.tsv", movies(100)))
    ingest(store, source, IngestOptions(held_out=HeldOut(8, 4)), None)
    return store


def test_the_report(tmp_path: Path) -> None:
    heard: list[tuple[float, str]] = []
    store = Store.open_or_new(tmp_path / "store")
    options = IngestOptions("tonight", HeldOut(8, 4))
    source = source_of(write_tsv(tmp_path / "base.tsv", movies(100)))
    report, ingested = ingest(store, source, options, lambda *said: heard.append(said))
    assert (report["version"], report["name"], report["unchanged"]) == (1, "tonight", False)
    assert (report["train"], report["valid"], report["test"], report["triples"]) == (88, 8, 4, 100)
    assert (report["entities"], report["relations"], report["lines"]) == (100, 2, 100)
    assert (report["added"], report["emerging_entities"], report["rejects"]) == (88, 100, None)
    assert report["bytes_written"] > 0
    assert heard[-1] == (1.0, "reading")
    assert ingested.manifest.version == 1


def test_what_it_hands_on_is_what_the_store_holds(first: Store, tmp_path: Path) -> None:
    """So that a later step of the same job reads nothing again."""
    added: list[Labelled] = [("title3", "writer", "newcomer"), ("newcomer", "actor", "person4")]
    source = source_of(write_changes(tmp_path / "night.changes", added, movies(3)))
    before = first.snapshot(first.find_snapshot("base"))
    _, ingested = ingest(first, source, IngestOptions(), None)
    store = Store.open(tmp_path / "store")
    manifest = store.snapshot_manifest(2)
    names, snapshot = store.dictionaries(manifest), store.snapshot(manifest)
    assert ingested.manifest == manifest
    for split in Split:
        assert labelled(ingested.snapshot.triples(split), ingested.names) == labelled(snapshot.triples(split), names)
        assert all(map(np.array_equal, ingested.before.triples(split), before.triples(split)))
    for mine, stored in zip(ingested.names, names, strict=True):
        assert np.array_equal(mine.digests, stored.digests)
        assert mine.labels(np.arange(len(mine))) == stored.labels(np.arange(len(stored)))
    diff = store.diff(store.snapshot_manifest(1), manifest)
    assert ingested.diff.counts() == diff.counts()
    for change, other in zip(ingested.diff.splits, diff.splits, strict=True):
        assert all(map(np.array_equal, (*change.added, *change.deleted), (*other.added, *other.deleted)))


def test_a_repetition_makes_no_version(first: Store, tmp_path: Path) -> None:
    report, ingested = ingest(first, source_of(tmp_path / "base.tsv"), IngestOptions(), None)
    assert (report["version"], report["unchanged"], report["added"], report["bytes_written"]) == (1, True, 0, 0)
    assert ingested.unchanged
    assert first.versions() == [1]


def test_bad_lines_are_counted_and_kept(first: Store, tmp_path: Path) -> None:
    path = tmp_path / "night.changes"
    path.write_text("+\ttitle1\tactor\tperson7\nnonsense\n", encoding="utf-8")
    report, _ = ingest(first, source_of(path), IngestOptions(max_bad_lines=1), None)
    assert report["counts"]["bad_lines"] == 1
    assert "nonsense" in Path(report["rejects"]).read_text(encoding="utf-8")
