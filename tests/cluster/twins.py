"""A table in one piece, and shards that hold the same rows: what the tests of this folder compare."""

from __future__ import annotations

import itertools
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

from dkge_dist.cluster.server import ShardServer, StoredTables
from dkge_dist.cluster.table import RayTable
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import save_table
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, TRAINED, Field

ADAGRAD, SGD = Optimizer("adagrad", 0.1), Optimizer("sgd", 0.03)
ROWS, DIM, BLOCK = 150, 5, 8
START = RowInitializer((3, 0), ROWS, DIM, 1.0)
"""An odd dimension, and a last block that is not full."""

Rows = dict[Field, np.ndarray]
Pushed = dict[Field, tuple[np.ndarray, np.ndarray]]


class ThreadCommunicator(LocalCommunicator):
    """One of several workers that are threads of this process: a table needs its rank, the world and a barrier."""

    def __init__(self, rank: int, barrier: Barrier) -> None:
        super().__init__(Monitor(), threads=1)
        self.rank, self.world, self._barrier = rank, barrier.parties, barrier

    def barrier(self) -> None:
        self._barrier.wait(60)


def local(start: RowInitializer = START) -> LocalTable:
    """All rows in one piece."""
    return LocalTable.initialized(start)


def servers(
    shards: int, world: int = 1, content: RowInitializer | StoredTables = START, rows: int = ROWS
) -> list[ShardServer]:
    """The same in shards, without Ray, all in the attempt `now`."""
    plan = ShardPlan(rows, BLOCK, shards)
    made = [ShardServer(number, plan) for number in range(shards)]
    for server in made:
        server.open("now", world, content)
    return made


def everything(made: list[ShardServer], fields: tuple[Field, ...] = tuple(Field)) -> Rows:
    """All rows, collected from their shards."""
    plan = made[0].plan
    local_rows = [{field: np.arange(plan.size(s.number), dtype=ROW) for field in fields} for s in made]
    pulled = [server.pull("now", wanted, 0) for server, wanted in zip(made, local_rows, strict=True)]
    whole = {}
    for field in fields:
        whole[field] = np.full((plan.rows, pulled[0][field].shape[1]), np.nan, np.float32)
        for server, values in zip(made, pulled, strict=True):
            whole[field][plan.held(server.number)] = values[field]
    return whole


def rows_of_shard(plan: ShardPlan, shard: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(positions of the rows that a shard holds, their local rows), by a dictionary."""
    held = {row: local_row for local_row, row in enumerate(plan.held(shard).tolist())}
    positions = [position for position, row in enumerate(rows.tolist()) if row in held]
    return np.array(positions, np.int64), np.array([held[int(rows[position])] for position in positions], ROW)


def gradients_of_shard(plan: ShardPlan, shard: int, gradients: Pushed) -> Pushed:
    """The part of some gradients that a shard gets."""
    out = {}
    for field, (rows, values) in gradients.items():
        positions, local_rows = rows_of_shard(plan, shard, rows)
        out[field] = (local_rows, values[positions])
    return out


def some_rows(rng: np.random.Generator, most: int = 40, rows: int = ROWS) -> np.ndarray:
    """Distinct rows in any order, perhaps none, sometimes all in one block."""
    if rng.random() < 0.2:
        block = int(rng.integers(0, rows // BLOCK)) * BLOCK
        return (block + rng.permutation(BLOCK)[: rng.integers(0, BLOCK + 1)]).astype(ROW)
    return rng.permutation(rows)[: rng.integers(0, most + 1)].astype(ROW)


def some_batch(rng: np.random.Generator) -> Rows:
    return {field: some_rows(rng) for field in TRAINED}


def some_gradients(rng: np.random.Generator, wanted: Rows, dim: int = DIM) -> Pushed:
    return {f: (r, rng.standard_normal((r.shape[0], dim)).astype(np.float32)) for f, r in wanted.items()}


def overlapping_batches(rng: np.random.Generator, count: int) -> list[Rows]:
    """Half of them have rows of the one before; some are the very same rows again."""
    made = [some_batch(rng)]
    for _ in range(count):
        batch = some_batch(rng)
        for field in TRAINED:
            if rng.random() < 0.5:
                both = np.unique(np.concatenate([batch[field], made[-1][field][::2]]))
                batch[field] = rng.permutation(both).astype(ROW)
            elif rng.random() < 0.2:
                batch[field] = made[-1][field].copy()
        made.append(batch)
    return made


def summed_over_ranks(ranks: list[Pushed]) -> Pushed:
    """Gradients of several ranks, row by row, added up in the order of ranks."""
    out = {}
    for field in TRAINED:
        total: dict[int, np.ndarray] = {}
        for rows, values in (gradients[field] for gradients in ranks if field in gradients):
            for row, value in zip(rows.tolist(), values, strict=True):
                total[row] = total.get(row, np.zeros(DIM, np.float32)) + value
        rows_now = sorted(total)
        summed = np.array([total[row] for row in rows_now], np.float32).reshape(-1, DIM)
        out[field] = (np.array(rows_now, ROW), summed)
    return out


def assert_same_rows(one: Rows, other: Rows) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    for field, values in one.items():
        assert values.tobytes() == other[field].tobytes(), field


def stored(root: Path, values: Rows) -> StoredTables:
    """Tables in a store."""
    storage = open_storage(str(root))
    with storage.staging() as staging:
        return StoredTables(
            storage.location, {field: save_table(staging, some, BLOCK) for field, some in values.items()}
        )


attempts = map(str, itertools.count())


def ray_tables(actors: list[Any], world: int = 1, start: RowInitializer = START) -> list[RayTable]:
    """A new attempt at its start values, as each of its ranks sees it."""
    attempt = next(attempts)
    barrier = Barrier(world)
    plan = ShardPlan(start.rows, BLOCK, len(actors))
    tables = [RayTable(plan, actors, attempt, start.dim, ThreadCommunicator(rank, barrier)) for rank in range(world)]
    tables[0].open(start)
    return tables
