"""The small table of `tests.tables.rows` in shards, with Ray and without: what the tests of this folder compare."""

from __future__ import annotations

import secrets
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np

from dkge_dist.cluster.server import ShardServer
from dkge_dist.cluster.table import RayTable
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import save_table
from dkge_dist.tables.initializer import RowInitializer, StoredTables
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, TRAINED, Field
from tests.tables.rows import BLOCK, DIM, ROWS, START, Pushed, Rows


class ThreadCommunicator(LocalCommunicator):
    """One of several workers that are threads of this process: a table needs its rank, the world and a barrier."""

    def __init__(self, rank: int, barrier: Barrier) -> None:
        super().__init__(Monitor(), threads=1)
        self.rank, self.world, self._barrier = rank, barrier.parties, barrier

    def barrier(self) -> None:
        self._barrier.wait(60)


def local() -> LocalTable:
    """All rows in one piece."""
    return LocalTable.initialized(START)


def servers(
    shards: int, world: int = 1, content: RowInitializer | StoredTables = START, rows: int = ROWS
) -> list[ShardServer]:
    """The same in shards, without Ray, all in the attempt `now`."""
    plan = ShardPlan(rows, BLOCK, shards)
    made = [ShardServer(number, plan) for number in range(shards)]
    for server in made:
        server.open("now", world, content)
    return made


def ray_tables(
    actors: list[Any], world: int = 1, content: RowInitializer | StoredTables = START, dim: int = DIM
) -> list[RayTable]:
    """The same in shard actors: a new attempt, as each of its ranks sees it."""
    attempt = secrets.token_hex(8)
    barrier = Barrier(world)
    plan = ShardPlan(ROWS, BLOCK, len(actors))
    tables = [RayTable(plan, actors, attempt, dim, ThreadCommunicator(rank, barrier)) for rank in range(world)]
    tables[0].open(content)
    return tables


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


def summed_over_ranks(ranks: list[Pushed]) -> Pushed:
    """Gradients of several ranks, row by row, added up in the order of ranks."""
    out = {}
    for field in TRAINED:
        total: dict[int, np.ndarray] = {}
        for rows, values in (gradients[field] for gradients in ranks if field in gradients):
            for row, value in zip(rows.tolist(), values, strict=True):
                total[row] = total.get(row, np.zeros(DIM, np.float32)) + value
        distinct = sorted(total)
        summed = np.array([total[row] for row in distinct], np.float32).reshape(-1, DIM)
        out[field] = (np.array(distinct, ROW), summed)
    return out


def stored(root: Path, values: Rows) -> StoredTables:
    """Tables in a store."""
    storage = open_storage(str(root))
    with storage.staging() as staging:
        return StoredTables(
            storage.location, {field: save_table(staging, some, BLOCK) for field, some in values.items()}, ROWS
        )
