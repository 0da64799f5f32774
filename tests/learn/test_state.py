"""The state of a training: what is saved and loaded goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import DkgeError, Field
from tests.learn.trainings import PAPER, Training, same, state, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


def learnt(one: Training, number: int = 0, rows: float = 0.1, dense: float = 0.01) -> float:
    """One batch; its loss."""
    one.dense.set_rate(dense)
    batch = PreparedBatch(one.maker.make(np.arange(30), np.random.default_rng(number)), 30)
    return one.step.learn(batch, Optimizer(one.schedule.optimizer, rows))


@pytest.mark.parametrize("words", [[], PAPER], ids=["default", "paper"])
def test_a_loaded_learner_goes_on_as_the_saved_one(tmp_path: Path, words: list[str]) -> None:
    one, other = (trainer(tmp_path / name, words) for name in ("one", "other"))
    for number in range(3):
        learnt(one, number)
    folder = tmp_path / "saved"
    folder.mkdir()
    one.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "dense-state.safetensors", "dense.safetensors", "entities", "relations",
    ]  # fmt: skip
    learnt(other, 9)
    other.load(folder)
    assert same(state(other), state(one))
    losses = [learnt(made, 4) for made in (one, other)]
    assert losses[0] == losses[1]
    assert same(state(other), state(one))


@pytest.mark.parametrize("name", ["dense.safetensors", "dense-state.safetensors"])
def test_a_full_disk_is_an_error_that_names_the_checkpoint(tmp_path: Path, name: str) -> None:
    one = trainer(tmp_path / "one", [])
    learnt(one)
    checkpoints = Checkpoints(tmp_path / "saved")
    checkpoints.save("last", one.save, {"batch": 1})

    def on_a_full_disk(folder: Path) -> None:
        (folder / name).symlink_to("/dev/full")
        one.save(folder)

    with pytest.raises(DkgeError, match="saved: checkpoint not saved: No space left on device; last-000000001 is kept"):
        checkpoints.save("last", on_a_full_disk, {"batch": 2})
    found = checkpoints.load("last")
    assert found is not None
    one.load(found[0])


def test_rates_are_those_of_rows_and_of_dense_parameters(tmp_path: Path) -> None:
    one, dense_only, rows_only = (trainer(tmp_path, PAPER) for _ in range(3))
    start = state(one)
    learnt(dense_only, rows=0.0)
    learnt(rows_only, rows=0.01, dense=0.0)
    moved = {
        name: {key for key, value in state(made).items() if not np.array_equal(value, start[key])}
        for name, made in (("dense", dense_only), ("rows", rows_only))
    }
    assert moved["rows"] == {
        f"{kind}-{field}" for kind in ("entities", "relations") for field in ("knowledge", "context")
    }
    # Every relation here has a context of itself alone, which leaves its attention nothing to learn.
    assert moved["dense"] == set(one.dense.model.state_dict()) - {"relation.gcn.attention"}


def test_only_the_rows_of_a_worker_are_materialised(tmp_path: Path) -> None:
    entities = trainer(tmp_path).step.entities
    entities.written = np.array([7, 2], np.int32)
    entities.materialise()
    joint = entities.table.pull({Field.JOINT: np.arange(entities.table.rows, dtype=np.int32)})[Field.JOINT]
    assert np.flatnonzero(joint.any(1)).tolist() == [2, 7]
    assert np.array_equal(joint[entities.written], entities.joint(entities.written))


def test_dense_values_are_named_as_in_the_store(tmp_path: Path) -> None:
    values = trainer(tmp_path, ["model.entity_layers=2"]).dense.model.state_dict()
    assert set(values) == {
        "entity.gcn.weights.0", "entity.gcn.weights.1", "entity.gcn.attention", "entity.gate.logits",
        "relation.gcn.weights.0", "relation.gcn.attention", "relation.gate.logits",
    }  # fmt: skip
    assert values["entity.gcn.weights.1"].shape == (6, 6)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    trainer(tmp_path, ["model.dim=7"]).save(folder)
    with pytest.raises(RuntimeError, match="size mismatch"):
        trainer(tmp_path).load(folder)
