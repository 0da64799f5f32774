"""The calibration of a model: fitted by training, kept by updates and compaction, absent without validation triples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.calibration import load_calibration
from dkge_dist.store.models import publish_model, save_compact
from dkge_dist.store.store import Store
from tests.jobs.building import ADDED, SMALL, base_triples, ingest_night, ring, write_lines
from tests.models import model_of

pytestmark = pytest.mark.usefixtures("one_thread")


def test_updates_and_compact_versions_keep_it(store: Path, tmp_path: Path) -> None:
    opened = Store.open(store)
    trained = load_calibration(opened, model_of(store).model)
    assert all(one is not None and one.triples > 0 for one in trained)
    ingest_night(tmp_path / "night.changes", store, ADDED, [])
    dkge_dist.update(store)
    with opened.storage.staging() as staging:
        publish_model(opened, save_compact(opened, staging, opened.find_model()), 0.0)
    for version in (4, 5):
        for mine, theirs in zip(load_calibration(opened, model_of(store, version).model), trained, strict=True):
            assert mine is not None and theirs is not None
            assert np.array_equal(mine.relation_R2, theirs.relation_R2) and mine.triples == theirs.triples
    assert dkge_dist.score(store, "e8", "r9", "e3")["probability"] is not None, "of a relation that emerged"


def test_without_validation_triples_there_are_no_probabilities(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "base.tsv", ["\t".join(triple) for triple in base_triples()])
    dkge_dist.ingest(tmp_path / "store", source)
    dkge_dist.train(tmp_path / "store", settings=SMALL)
    found = dkge_dist.score(tmp_path / "store", "e4", "r2", "e9")
    assert (found["probability"], found["threshold"], found["calibration"]) == (None, None, None)


def test_probabilities_of_a_learnt_graph_tell_true_triples_from_wrong_ones(learnt_ring: Path) -> None:
    """Triples of the ring, and as many that lead elsewhere."""
    store = learnt_ring
    true = [tuple(line.split("\t")) for line in ring()][::7]
    wrong = [(h, r, f"e{(int(t[1:]) + 29) % 80}") for h, r, t in true]
    found = dkge_dist.score(store, batch=[*true, *wrong], ranks=False)["triples"]
    chance = np.array([one["probability"] for one in found])
    assert np.mean(chance[: len(true)]) > 0.75 > 0.25 > np.mean(chance[len(true) :])
    with_ends = load_calibration(Store.open(store), model_of(store).model)
    assert with_ends[0] is not None and with_ends[1] is None, "learnt without evidence"
