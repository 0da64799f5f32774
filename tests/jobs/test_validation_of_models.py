"""Validation of model versions: what they keep is what they were measured by."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.measure.drift import load_ranked
from dkge_dist.store.store import Store
from tests.jobs.building import ADDED, ingest_night, trained_store
from tests.models import model_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_version_keeps_the_rank_of_every_validation_triple(
    trained: Callable[[str], Path], tmp_path: Path, preset: str
) -> None:
    """All of them, or with evidence the half that it is not fitted on."""
    path = Path(shutil.copytree(trained(preset), tmp_path / "store"))
    ingest_night(tmp_path / "n1.changes", path, ADDED, [])
    dkge_dist.update(path)
    store = Store.open(path)
    before, now = (load_ranked(store, model_of(path, version).model.validation) for version in (2, 4))
    assert before is not None and now is not None
    for version, found in ((2, before), (4, now)):
        assert found.reciprocal.mean() == pytest.approx(model_of(path, version).model.record.valid["mrr"])
        assert np.all(np.diff(found.hashes.astype(float)) > 0)
        assert found.max_candidates == 100_000
    count = before.hashes.shape[0]
    assert count == 20 if preset == "paper" else 0 < count < 20
    assert np.array_equal(before.hashes, now.hashes), "no validation triple came or went"


def test_two_trainings_are_measured_on_the_same_triples_whatever_their_seed(store: Path) -> None:
    dkge_dist.train(store, settings=["model.dim=4", "train.max_epochs=1", "train.valid_triples=5", "seed=3"])
    opened = Store.open(store)
    first, second = (load_ranked(opened, model_of(store, version).model.validation) for version in (2, 3))
    assert first is not None and second is not None
    assert second.hashes.tolist() == np.sort(first.hashes)[:5].tolist()


def test_without_validation_there_is_nothing_to_keep(tmp_path: Path) -> None:
    path = trained_store(tmp_path, valid=0)
    assert (model_of(path).model.record.valid, model_of(path).model.validation) == ({}, None)
    ingest_night(tmp_path / "n1.changes", path, ADDED, [])
    assert dkge_dist.update(path)["drift"] == {"since": 2, "mrr_drop": None, "added_mrr": None}
