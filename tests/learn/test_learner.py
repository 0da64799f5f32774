"""The learner: what is saved and loaded goes on as if nothing had happened; rates reach rows and dense parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.learner import Rates
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.trainer import Trainer
from dkge_dist.types import ROW, DkgeError, Field
from tests.learn.trainings import PAPER, same, state, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


def some_batch(one: Trainer, number: int = 0) -> PreparedBatch[ObjectBatch]:
    return PreparedBatch(one.maker.make(np.arange(30), np.random.default_rng(number)), 30)


@pytest.mark.parametrize("words", [[], PAPER], ids=["default", "paper"])
def test_a_loaded_learner_goes_on_as_the_saved_one(tmp_path: Path, words: list[str]) -> None:
    one, other = (trainer(tmp_path / name, words) for name in ("one", "other"))
    rates = Rates(0.1, 0.01)
    for number in range(3):
        one.learner.learn(some_batch(one, number), rates)
    folder = tmp_path / "saved"
    folder.mkdir()
    one.learner.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "dense-state.safetensors", "dense.safetensors", "entities", "relations",
    ]  # fmt: skip
    other.learner.learn(some_batch(other, 9), rates)
    other.learner.load(folder)
    assert same(state(other.learner), state(one.learner))
    losses = [made.learner.learn(some_batch(made, 4), rates) for made in (one, other)]
    assert losses[0] == losses[1]
    assert same(state(other.learner), state(one.learner))


@pytest.mark.parametrize("name", ["dense.safetensors", "dense-state.safetensors"])
def test_a_full_disk_is_an_error_that_names_the_checkpoint(tmp_path: Path, name: str) -> None:
    one = trainer(tmp_path / "one", [])
    one.learner.learn(some_batch(one), Rates(0.1, 0.01))
    checkpoints = Checkpoints(tmp_path / "saved")
    checkpoints.save("last", one.learner.save, {"batch": 1})

    def on_a_full_disk(folder: Path) -> None:
        (folder / name).symlink_to("/dev/full")
        one.learner.save(folder)

    with pytest.raises(DkgeError, match="saved: checkpoint not saved: No space left on device; last-000000001 is kept"):
        checkpoints.save("last", on_a_full_disk, {"batch": 2})
    found = checkpoints.load("last")
    assert found is not None
    one.learner.load(found[0])


def test_rates_are_those_of_rows_and_of_dense_parameters(tmp_path: Path) -> None:
    one, dense_only, rows_only = (trainer(tmp_path, PAPER) for _ in range(3))
    start = state(one.learner)
    dense_only.learner.learn(some_batch(one), Rates(0.0, 0.01))
    rows_only.learner.learn(some_batch(one), Rates(0.01, 0.0))
    moved = {
        name: {key for key, value in state(made.learner).items() if not np.array_equal(value, start[key])}
        for name, made in (("dense", dense_only), ("rows", rows_only))
    }
    assert moved["rows"] == {
        f"{kind}-{field}" for kind in ("entities", "relations") for field in ("knowledge", "context")
    }
    # Every relation here has a context of itself alone, which leaves its attention nothing to learn.
    assert moved["dense"] == set(one.learner.dense_values()) - {"relation.gcn.attention"}


def test_rates_are_scaled_together() -> None:
    assert Rates(0.4, 0.2).scaled(0.5) == Rates(0.2, 0.1)


def test_only_the_rows_asked_for_are_materialised(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    entities, relations = np.array([7, 2], ROW), np.array([1], ROW)
    one.learner.materialise(one.maker.entities, one.maker.relations, entities, relations)
    for objects, contexts, rows in (
        (one.learner.entities, one.maker.entities, entities),
        (one.learner.relations, one.maker.relations, relations),
    ):
        joint = objects.table.pull({Field.JOINT: np.arange(objects.table.rows, dtype=ROW)})[Field.JOINT]
        assert np.array_equal(np.flatnonzero(joint.any(1)), np.sort(rows))
        assert np.array_equal(joint[rows], objects.joint(contexts, rows))


def test_dense_values_are_named_as_in_the_store(tmp_path: Path) -> None:
    values = trainer(tmp_path, ["model.entity_layers=2"]).learner.dense_values()
    assert set(values) == {
        "entity.gcn.weights.0", "entity.gcn.weights.1", "entity.gcn.attention", "entity.gate.logits",
        "relation.gcn.weights.0", "relation.gcn.attention", "relation.gate.logits",
    }  # fmt: skip
    assert values["entity.gcn.weights.1"].shape == (6, 6)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    trainer(tmp_path, ["model.dim=7"]).learner.save(folder)
    with pytest.raises(RuntimeError, match="size mismatch"):
        trainer(tmp_path).learner.load(folder)
