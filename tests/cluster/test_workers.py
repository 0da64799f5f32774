"""Workers in real processes: they add up, take the same steps, and end with the numbers that one ends with."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from tests.learn.test_parts import DIM, RELATIONS, ROWS, graph, maker

from dkge_dist.cluster.workers import ReplicatedTable, SharedCheckpoints, TrainCoordinator, Worker
from dkge_dist.learning.step import Loss
from dkge_dist.model.dkge import Dkge
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, RowInitializer, Shard
from dkge_dist.tables.table import LocalTable
from dkge_dist.training.learner import Learner, Rates
from dkge_dist.types import Field

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
SIZES = [40, 40, 1, 40, 25]
"""Triples of each batch: one of them has fewer than there are workers."""


def worker(rank: int, world: int) -> Worker:
    return Worker(rank, world, CPU, ShardPlan(ROWS, 8, 1), [], None)


def learn(me: Worker) -> dict[str, np.ndarray]:
    """A few steps as one of the workers; all numbers that it ends with."""
    tables = []
    for kind, count in enumerate((ROWS, RELATIONS)):
        start = RowInitializer((1, kind), count, DIM, 1.0)
        tables.append(me.replicated({field: start.run(field, 0, count) for field in TRAINED}))
    learner = Learner(Dkge(DIM, 1, 1, seed=3), (tables[0], tables[1]), Loss("softmax", 0.0), "adagrad", CPU, me.add_up)
    batches = maker("shared", True, (me.rank, me.world))
    losses = []
    for step, size in enumerate(SIZES):
        rng = np.random.default_rng(step)
        batch = batches.make(rng.permutation(graph().count)[:size], rng)
        losses.append(learner.learn(batch, Rates(0.05, 0.01)))
    found = {name: value.detach().numpy() for name, value in learner.model.state_dict().items()}
    for kind, table in zip(("entities", "relations"), tables, strict=True):
        found |= {f"{kind} {field}": table.shard.values[field] for field in TRAINED}
        found |= {f"{kind} {field} state": table.shard.state[field] for field in TRAINED}
    return {**found, "losses": np.array(losses)}


def in_a_process(rank: int, folder: str, world: int) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", timedelta(seconds=120), rank=rank, world_size=world)
    me = worker(rank, world)
    clocks, beats = [], 3
    for _ in range(beats):
        me.add_up([torch.ones(1)])
        clocks.append(me.clock())
    shapes = [torch.full((2, 3), float(rank + 1)), torch.full((4,), 10.0 * (rank + 1))]
    me.add_up(shapes)
    told = me.agreed(lambda: {"rank": rank})
    checkpoints = me.checkpoints(Path(folder) / "checkpoints")
    assert isinstance(checkpoints, SharedCheckpoints)
    if rank == 0:
        checkpoints.folder.mkdir()
        me._stop = True  # As if it had read so from the board.
    checkpoints.save("last", lambda at: (at / "by").write_text(str(rank), encoding="utf-8") and None, {"epoch": 3})
    saved = checkpoints.load("last")
    assert saved is not None, "nobody goes on before it is there"
    assert (saved[0] / "by").read_text(encoding="utf-8") == "0"
    before = me.stopping()
    me.add_up([torch.zeros(1)])
    np.savez(
        f"{folder}/{rank}.npz",
        sum0=shapes[0].numpy(),
        sum1=shapes[1].numpy(),
        clocks=np.array(clocks),
        told=told["rank"],
        stopping=np.array([before, me.stopping()]),
        **learn(me),
    )
    dist.destroy_process_group()


def test_two_processes_learn_as_one_does(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(in_a_process, (str(tmp_path), 2), 2)
    one, other = (np.load(tmp_path / f"{rank}.npz") for rank in range(2))
    assert set(one) == set(other)
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name
    assert (one["sum0"] == 3).all() and (one["sum1"] == 30).all()
    assert (np.diff(one["clocks"]) > 0).all()
    assert one["told"] == 0
    assert one["stopping"].tolist() == [False, True], "all hear of it with the same step"
    alone = learn(worker(0, 1))
    for name, values in alone.items():
        np.testing.assert_allclose(one[name], values, rtol=1e-5, atol=1e-5 * np.abs(values).max(), err_msg=name)


def test_one_worker_needs_no_others() -> None:
    me = worker(0, 1)
    table = me.replicated({field: np.ones((3, 2), np.float32) for field in TRAINED})
    assert type(table) is LocalTable
    tensor = torch.ones(3)
    me.add_up([tensor])
    me.barrier()
    assert tensor.tolist() == [1, 1, 1]
    assert me.agreed(lambda: 7) == 7
    assert not me.stopping()


def test_a_replicated_table_moves_rows_that_only_others_have_a_gradient_of() -> None:
    """And no row that nobody has one of, also not by its optimizer state."""

    def add_those_of_another(whole: torch.Tensor) -> None:
        whole[2] += torch.tensor([5.0, 5.0, 1.0])
        whole[1] += torch.tensor([1.0, 1.0, 1.0])

    values = {field: np.zeros((5, 2), np.float32) for field in TRAINED}
    table = ReplicatedTable(Shard(values), add_those_of_another)
    from tests.cluster.twins import SGD

    table.push({Field.CONTEXT: (np.array([1, 4]), np.full((2, 2), 2, np.float32))}, SGD)
    moved = np.float32(SGD.rate) * np.array([[0, 0], [-3, -3], [-5, -5], [0, 0], [-2, -2]], np.float32)
    np.testing.assert_allclose(table.shard.values[Field.CONTEXT], moved, rtol=1e-6)
    assert not table.shard.values[Field.KNOWLEDGE].any()


def test_the_board_keeps_the_first_word_of_how_it_ended() -> None:
    board = TrainCoordinator()
    assert board.report(0.1, "epoch 1") is False
    board.add_line({"epoch": 1})
    board.add_line({"epoch": 2})
    assert board.news(False) == (0.1, "epoch 1", [{"epoch": 1}, {"epoch": 2}], None)
    assert board.news(True)[2] == []
    assert board.report(0.2, "epoch 3") is True, "once asked to stop, it stays so"
    assert board.news(False)[0] == 0.2
    assert board.report(0.3, "") is True
    assert not board.is_over()
    outcomes: list[dict[str, Any]] = [{"error": "StoppedError"}, {"done": {}}]
    for outcome in outcomes:
        board.finish(outcome)
    assert board.is_over()
    assert board.news(False)[3] == outcomes[0]
