"""The evidence of a model version: opened as it was learnt, after an update that of the new snapshot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.model import Model, open_model
from dkge_dist.evidence.fitting import EvidenceFitting
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.stored import to_arrays
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.settings import load_settings, settings_of_model
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from tests.jobs.building import ADDED, ingest_night, some_train, trained_store

pytestmark = pytest.mark.usefixtures("one_thread")


def opened_evidence(path: Path, version: str | None = None) -> tuple[Model, Evidence]:
    opened = open_model(Store.open(path), version)
    evidence = opened.evidence
    assert evidence is not None
    return opened, evidence


def assert_same_graph(one: GraphEvidence, other: GraphEvidence) -> None:
    """In all counts, of which a rebuilt one may have more rows."""
    for name in ("codes", "joint"):
        assert np.array_equal(getattr(one.counts, name), getattr(other.counts, name)), name
    for name in ("pairs", "loops"):
        mine, theirs = getattr(one.counts, name), getattr(other.counts, name)
        assert np.array_equal(mine[: theirs.shape[0]], theirs[: mine.shape[0]]), name
    assert all(np.array_equal(*columns) for columns in zip(one.paths, other.paths, strict=True))
    assert all(np.array_equal(*columns) for columns in zip(one.graph.hubs, other.graph.hubs, strict=True))
    assert one.limits == other.limits


def rebuilt(opened: Model) -> GraphEvidence:
    settings = settings_of_model(opened.entry.settings)
    graph = training_graph(opened.snapshot, (opened.names[0].digests, opened.names[1].digests), settings)
    return GraphEvidence.of(graph, WalkLimits.of(settings))


def test_limits_are_settings() -> None:
    settings = load_settings(None, ["seed=3", "evidence.max_neighbours=9", "evidence.max_candidates=80"])
    assert WalkLimits.of(settings) == WalkLimits(3, 9, 80, settings.evidence)


def test_a_model_is_opened_with_the_evidence_that_it_was_learnt_with(store: Path) -> None:
    """Weights are those of the fit beside its vectors."""
    opened, evidence = opened_evidence(store)
    assert_same_graph(evidence.graph, rebuilt(opened))
    settings = settings_of_model(opened.entry.settings)
    graph = training_graph(opened.snapshot, (opened.names[0].digests, opened.names[1].digests), settings)
    fitted = EvidenceFitting.of(graph, WalkLimits.of(settings)).fitted(opened.embedding.distances)
    assert fitted.weights.relation_2RJ.tobytes() == evidence.weights.relation_2RJ.tobytes()
    assert (fitted.weights.scale, fitted.weights.near) == (evidence.weights.scale, evidence.weights.near)
    assert evidence.weights.near > 0


def test_after_nights_it_is_that_of_the_new_snapshot_under_the_same_weights(store: Path, tmp_path: Path) -> None:
    """A relation that came later has the common weights. Older versions keep theirs."""
    _, before = opened_evidence(store)
    ingest_night(tmp_path / "n1.changes", store, ADDED, some_train(store, 9))
    dkge_dist.update(store)
    ingest_night(tmp_path / "n2.changes", store, ["e1\tr1\tnew7", "e2\tr1\tnew7"], some_train(store, 5))
    dkge_dist.update(store)
    opened, after = opened_evidence(store)
    assert opened.snapshot_name == "n2"
    assert_same_graph(after.graph, rebuilt(opened))
    assert after.weights.relation_2RJ.tobytes() == before.weights.relation_2RJ.tobytes()
    assert after.weights.scale == before.weights.scale
    assert after.weights.near != before.weights.near, "which follows the vectors"
    assert not np.array_equal(after.graph.counts.pairs[:4], before.graph.counts.pairs[:4])
    _, old = opened_evidence(store, "base")
    assert {name: array.tobytes() for name, array in to_arrays(old).items()} == {
        name: array.tobytes() for name, array in to_arrays(before).items()
    }
    new = dkge_dist.answer(store, "e5", "r9", why=True)
    assert {line["entity"] for line in new["answers"] if line["known"]} == {"e9"}


def test_the_paper_preset_has_none(tmp_path: Path) -> None:
    store = trained_store(tmp_path, "paper")
    assert open_model(Store.open(store)).evidence is None
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    dkge_dist.update(store)
    assert open_model(Store.open(store)).evidence is None


@pytest.mark.parametrize("what", ["evidence", "lists"])
def test_a_damaged_part_is_named(store: Path, what: str) -> None:
    opened = Store.open(store)
    entry = opened.find_model().model
    part = entry.evidence if what == "evidence" else entry.lists and entry.lists.part
    assert part is not None
    path = opened.storage.part_path(part.part)
    path.write_bytes(b"\xff" * part.size)
    with pytest.raises(StoreError, match=f"part {path} is damaged"):
        dkge_dist.answer(store, "e4", "r2")
    problems = dkge_dist.check(store)["problems"]
    assert any(part.digest in problem["problem"] for problem in problems)
