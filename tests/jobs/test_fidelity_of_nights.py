"""Fidelity of versions: which night is meant, what is exact, and what a sample says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist.ask.model import open_model
from dkge_dist.ask.ranks import metrics, rank
from dkge_dist.graph.topology import Topology
from dkge_dist.measure import fidelity as job
from dkge_dist.measure.fidelity import measure_night, night_began, night_triples
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Split
from tests.jobs.building import ADDED, SMALL, ingest_night, some_train
from tests.models import model_of

pytestmark = pytest.mark.usefixtures("one_thread")

GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")


@pytest.fixture(params=["default", "paper"])
def updated(
    request: pytest.FixtureRequest, trained: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A model of `base` (version 2), brought to `n1` (4) and to `n2` (6); samples hold everything."""
    monkeypatch.setattr(job, "SAMPLE", 1000)
    store = Path(shutil.copytree(trained(request.param), tmp_path / "store"))
    ingest_night(tmp_path / "n1.changes", store, ADDED, some_train(store, 8))
    dkge_dist.update(store)
    ingest_night(tmp_path / "n2.changes", store, ["e1\tr0\te2", "e3\tr1\tnew9"], some_train(store, 3))
    dkge_dist.update(store)
    return store


def groups(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in GROUPS}


def test_it_is_that_of_the_last_night_unless_another_beginning_is_named(updated: Path) -> None:
    last, both = dkge_dist.fidelity(updated), dkge_dist.fidelity(updated, since="base")
    assert (last["version"], last["since"], last["snapshot"]) == (6, "n1", "n2")
    assert (last["added"], last["deleted_triples"]) == (2, 3)
    assert both["since"] == "base"
    assert both["added"] > last["added"]
    earlier = dkge_dist.fidelity(updated, version="4")
    assert (earlier["version"], earlier["since"], earlier["snapshot"]) == (4, "base", "n1")
    assert earlier["added_emerging"]["triples"] == 5


def test_it_is_exact(updated: Path) -> None:
    """All triples of the night against all entities, on both sides."""
    report = dkge_dist.fidelity(updated)
    store = Store.open(updated)
    opened = open_model(store)
    evidence = opened.evidence
    train = opened.snapshot.triples(Split.TRAIN)
    topology = Topology.of(train, opened.snapshot.entity_rows)
    diff = store.diff(store.find_snapshot("n1"), store.find_snapshot("n2"))
    night = night_triples(diff, train, topology, opened.snapshot, 7)
    embedding = opened.embedding
    assert groups(report) == measure_night(embedding, night, topology, evidence)
    assert report["sampled"] is False
    assert ("with_evidence" in report["deleted"]) == (evidence is not None)


def test_what_was_there_before_is_compared_with_the_model_before(updated: Path) -> None:
    """By that model, in its own graph; a model from scratch, or another beginning, has nothing to compare with."""
    report = dkge_dist.fidelity(updated)
    assert report["before"]["version"] == 4
    assert "before" not in dkge_dist.fidelity(updated, since="base")
    store = Store.open(updated)
    opened, now = open_model(store, "4"), open_model(store, "6")
    evidence, train = opened.evidence, now.snapshot.triples(Split.TRAIN)
    diff = store.diff(store.find_snapshot("n1"), store.find_snapshot("n2"))
    night = night_triples(diff, train, Topology.of(train, now.snapshot.entity_rows), now.snapshot, 7)
    embedding = opened.embedding
    for name in ("deleted", "kept_near", "kept_far"):
        triples, found = getattr(night, name), report["before"][name]
        known = opened.snapshot.triples(Split.TRAIN)
        assert found["triples"] == triples.count > 0
        assert metrics(rank(embedding, triples, known).both).items() <= found["vectors"].items()
        if evidence is not None:
            by_both = metrics(rank(embedding, triples, known, evidence).both)
            assert by_both.items() <= found["with_evidence"].items()


def test_a_sample_that_holds_everything_is_exact(updated: Path) -> None:
    """That of the update, kept with the version: a small night, and fewer entities than candidates."""
    kept = dict(model_of(updated, 6).model.record["fidelity"])
    assert kept["sampled"] is True
    for name in ("added_existing", "added_emerging", "deleted"):
        kept[name] = dict(kept[name])
        assert kept[name].pop("of") == kept[name]["triples"]
    assert groups(kept) == groups(dkge_dist.fidelity(updated))


def test_a_sample_bounds_triples_and_candidates(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks among fewer entities are no worse."""
    monkeypatch.setattr(job, "SAMPLE", 4)
    ingest_night(tmp_path / "n1.changes", store, ADDED, some_train(store, 9))
    sample = dkge_dist.update(store, settings=["online.valid_candidates=10"])["fidelity"]
    exact = dkge_dist.fidelity(store)
    for name in GROUPS:
        assert sample[name]["triples"] == min(4, exact[name]["triples"])
        assert sample[name].get("of", exact[name]["triples"]) == exact[name]["triples"]
        for way in ("vectors", "with_evidence"):
            assert sample[name][way].get("mr", 1) <= 11
    assert exact["kept_far"]["vectors"]["mr"] > 11


def test_a_model_from_scratch_is_asked_about_the_night_before_its_snapshot(updated: Path) -> None:
    version = dkge_dist.train(updated, settings=SMALL)["version"]
    report = dkge_dist.fidelity(updated)
    assert (report["version"], report["since"], report["snapshot"]) == (version, "n1", "n2")


def test_versions_that_fold_deltas_are_no_nights(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    dkge_dist.update(store)
    opened = Store.open(store)
    assert opened.find_model().model.record.origin == "compact"
    assert night_began(opened, opened.find_model()).snapshot.name == "base"


def test_a_model_of_the_first_snapshot_had_no_night(store: Path) -> None:
    with pytest.raises(DkgeError, match="version 2 is of the first snapshot: there was no night before it"):
        dkge_dist.fidelity(store)
