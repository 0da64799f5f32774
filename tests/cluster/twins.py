"""A table in one piece, and shards that hold the same rows: what the tests of this folder compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dkge_dist.cluster.server import ShardServer, Stored
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import save_table
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, Optimizer, RowInitializer, Shard
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, Field

ADAGRAD, SGD = Optimizer("adagrad", 0.1), Optimizer("sgd", 0.03)
ROWS, DIM, BLOCK = 150, 5, 8
START = RowInitializer((3, 0), ROWS, DIM, 1.0)
"""An odd dimension, and a last block that is not full."""

Rows = dict[Field, np.ndarray]
Pushed = dict[Field, tuple[np.ndarray, np.ndarray]]


def local(start: RowInitializer = START) -> LocalTable:
    """All rows in one piece."""
    values = {field: start.run(field, 0, start.rows) for field in TRAINED}
    return LocalTable(Shard({**values, Field.JOINT: np.zeros((start.rows, start.dim), np.float32)}))


def servers(shards: int, world: int = 1, fill: RowInitializer | Stored = START, rows: int = ROWS) -> list[ShardServer]:
    """The same in shards, without Ray, all in the attempt `now`."""
    plan = ShardPlan(rows, BLOCK, shards)
    made = [ShardServer(number, plan) for number in range(shards)]
    for server in made:
        server.open("now", world, fill)
    return made


def everything(made: list[ShardServer], fields: tuple[Field, ...] = tuple(Field)) -> Rows:
    """All rows, collected from their shards."""
    plan = made[0].plan
    places = [{field: np.arange(plan.size(s.number), dtype=ROW) for field in fields} for s in made]
    pulled = [server.pull("now", wanted, 0) for server, wanted in zip(made, places, strict=True)]
    whole = {}
    for field in fields:
        whole[field] = np.full((plan.rows, pulled[0][field].shape[1]), np.nan, np.float32)
        for server, values in zip(made, pulled, strict=True):
            whole[field][plan.held(server.number)] = values[field]
    return whole


def apart(plan: ShardPlan, shard: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(numbers of the rows that a shard holds, their places in it), the slow way."""
    held = {row: place for place, row in enumerate(plan.held(shard).tolist())}
    numbers = [number for number, row in enumerate(rows.tolist()) if row in held]
    return np.array(numbers, np.int64), np.array([held[int(rows[number])] for number in numbers], ROW)


def gradients_of(plan: ShardPlan, shard: int, gradients: Pushed) -> Pushed:
    """The part of some gradients that a shard gets."""
    out = {}
    for field, (rows, values) in gradients.items():
        numbers, places = apart(plan, shard, rows)
        out[field] = (places, values[numbers])
    return out


def some_rows(rng: np.random.Generator, most: int = 40, rows: int = ROWS) -> np.ndarray:
    """Distinct rows in any order, perhaps none, sometimes all in one block."""
    if rng.random() < 0.2:
        block = int(rng.integers(0, rows // BLOCK)) * BLOCK
        return (block + rng.permutation(BLOCK)[: rng.integers(0, BLOCK + 1)]).astype(ROW)
    return rng.permutation(rows)[: rng.integers(0, most + 1)].astype(ROW)


def some_gradients(rng: np.random.Generator, wanted: Rows, dim: int = DIM) -> Pushed:
    return {f: (r, rng.standard_normal((r.shape[0], dim)).astype(np.float32)) for f, r in wanted.items()}


def same_rows(one: Rows, other: Rows) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    for field, values in one.items():
        assert values.tobytes() == other[field].tobytes(), field


def stored(root: Path, values: Rows) -> Stored:
    """Tables in a store."""
    storage = open_storage(root)
    with storage.staging() as staging:
        return Stored(str(root), {field: save_table(staging, some, BLOCK) for field, some in values.items()})
