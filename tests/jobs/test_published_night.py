"""The write set of an update on a published night, by hash. Runs where the data are (`DKGE_DATA`)."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.jobs import update as job
from dkge_dist.learn.plan import ObjectPlan, Plan
from dkge_dist.types import Array
from tests.models import vectors_of

pytestmark = pytest.mark.slow


def hashes(rows: Array) -> Array:
    """One digest a row."""
    return np.array([sha256(row.tobytes()).hexdigest() for row in np.ascontiguousarray(rows)])


def moved(before: Array, after: Array) -> set[int]:
    """Rows that are not what they were; a row that was not there counts as zeros."""
    grown = np.zeros_like(after)
    grown[: before.shape[0]] = before
    return set(np.flatnonzero(hashes(grown) != hashes(after)).tolist())


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_nothing_but_the_write_set_moves(
    preset: str, tmp_path: Path, published_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    for name in ("snapshot1", "snapshot2"):
        dkge_dist.ingest(store, published_data / "YAGO-3SP" / name, name=name)
    short = ["model.dim=20", "train.max_epochs=1", "train.batch_size=4000", "online.max_epochs=1"]
    base = dkge_dist.train(store, snapshot="snapshot1", preset=preset, settings=short)
    plans: list[Plan] = []
    plan_update = job.plan_update
    monkeypatch.setattr(job, "plan_update", lambda *given: plans.append(plan_update(*given)) or plans[-1])
    report = dkge_dist.update(store)
    before, after = (vectors_of(store, version) for version in (base["version"], report["version"]))

    assert report["emerging_entities"] == 139
    if preset == "paper":
        # As counted with contexts rebuilt from nothing, here with the cap of 35.
        assert 0 < report["affected_entities"] <= 923
    assert before.dense.keys() == after.dense.keys()
    assert all(np.array_equal(hashes(before.dense[name]), hashes(after.dense[name])) for name in before.dense)
    kinds: tuple[tuple[str, ObjectPlan], ...] = (("entities", plans[0].entities), ("relations", plans[0].relations))
    for kind, plan in kinds:
        old, new = getattr(before, kind), getattr(after, kind)
        assert moved(old["context"], new["context"]) <= set(plan.emerging.tolist())
        assert moved(old["knowledge"], new["knowledge"]) <= set(plan.trained.tolist())
        # Relations are held, but not what their contexts make of them.
        assert moved(old["joint"], new["joint"]) <= set(plan.refreshed.tolist())
        assert moved(old["knowledge"], new["knowledge"]), "something was learnt"
