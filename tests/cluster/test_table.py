"""A table in shard actors keeps the contract of all tables, and moves no more than it has to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.table import RayTable
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage, open_storage
from dkge_dist.tables.initializer import RowInitializer, StoredTables
from dkge_dist.tables.table import LocalTable, TrainingTable
from dkge_dist.types import ROW, TRAINED, DkgeError, Field
from tests.cluster.twins import local, ray_tables
from tests.tables.contract import TableContract
from tests.tables.rows import (
    ADAGRAD,
    BLOCK,
    DIM,
    EVERY_ROW,
    EVERYTHING,
    ROWS,
    START,
    assert_same_rows,
    overlapping_batches,
    random_batch,
    random_gradients,
    rows_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ROW_BYTES = 4 * DIM + 4
SHARDS = [1, 3]


class TestRayTable(TableContract):
    @pytest.fixture(autouse=True, params=SHARDS)
    def _actors(self, actors: dict[int, list[Any]], request: pytest.FixtureRequest) -> None:
        self.actors = actors[request.param]

    def make_table(self, start: RowInitializer) -> TrainingTable:
        return ray_tables(self.actors, content=start)[0]

    def open_table(self, storage: Storage, entries: dict[Field, TableEntry], rows: int) -> TrainingTable:
        assert rows == ROWS, "the actors are of one size"
        return ray_tables(self.actors, content=StoredTables(storage.location, entries, rows))[0]


@pytest.fixture(params=SHARDS)
def table(actors: dict[int, list[Any]], request: pytest.FixtureRequest) -> RayTable:
    """A table of so many shards, at its start values."""
    return ray_tables(actors[request.param])[0]


@pytest.mark.parametrize("shards", SHARDS)
def test_large_rows_belong_to_the_caller(actors: dict[int, list[Any]], shards: int) -> None:
    """They come in memory that the shard will write to again."""
    dim = 600
    start = START._replace(dim=dim)
    (table,), twin = ray_tables(actors[shards], content=start, dim=dim), LocalTable.initialized(start)
    rng = np.random.default_rng(0)
    batches = [{field: rng.permutation(ROWS)[:140].astype(ROW) for field in TRAINED} for _ in range(4)]
    ticket = None
    for batch, following in itertools.pairwise(batches):
        got = table.pull(batch, ticket)
        assert_same_rows(got, twin.pull(batch))
        got[Field.CONTEXT] += 1
        ticket = table.prefetch(following)
        gradients = {f: (rows, rng.standard_normal((140, dim)).astype(np.float32)) for f, rows in batch.items()}
        for one in (table, twin):
            one.push(gradients, ADAGRAD)
    for one in (table, twin):
        one.write(Field.JOINT, EVERY_ROW, np.ones((ROWS, dim), np.float32))
    assert_same_rows(table.pull(EVERYTHING), twin.pull(EVERYTHING))


@pytest.mark.parametrize("when", ["ahead", "before", "after", "never"])
def test_every_row_moves_once_each_way(table: RayTable, when: str) -> None:
    """Counted in the actors: 4d bytes and a row number of 4 for each row that is pulled, and for each pushed."""
    rng = np.random.default_rng(0)
    batches = overlapping_batches(rng, 8)
    tickets = [table.prefetch(batches[0]) if when == "ahead" else None]
    for batch, following in itertools.pairwise(batches):
        if when == "ahead":
            tickets.append(table.prefetch(following))
        table.pull(batch, tickets.pop(0))
        if when == "before":
            tickets.append(table.prefetch(following))
        table.push(random_gradients(rng, batch), ADAGRAD)
        if when in ("after", "never"):
            tickets.append(table.prefetch(following) if when == "after" else None)
    table.pull(batches[-1], tickets.pop(0))
    stats = table.stats()
    rows = [sum(some.shape[0] for some in batch.values()) for batch in batches]
    assert sum(of["rows_pulled"] for of in stats) == sum(rows)
    assert sum(of["bytes_pulled"] for of in stats) == sum(rows) * ROW_BYTES
    assert sum(of["rows_pushed"] for of in stats) == sum(rows[:-1])
    assert sum(of["bytes_pushed"] for of in stats) == sum(rows[:-1]) * ROW_BYTES


def test_batch_makes_one_pull_and_one_push_per_shard(actors: dict[int, list[Any]]) -> None:
    """And none to a shard that holds no row of it."""
    (table,) = ray_tables(actors[3])
    rng = np.random.default_rng(0)
    second = np.arange(BLOCK, 2 * BLOCK, dtype=ROW)
    whole = {field: rng.permutation(ROWS)[:100].astype(ROW) for field in TRAINED}
    for batch in ({Field.KNOWLEDGE: second, Field.CONTEXT: second[:3]}, whole):
        table.pull(batch, table.prefetch(batch))
        table.push(random_gradients(rng, batch), ADAGRAD)
    table.write(Field.JOINT, second, np.ones((BLOCK, DIM), np.float32))
    stats = table.stats()
    assert [of["pull_calls"] for of in stats] == [1, 2, 1]
    assert [of["push_calls"] for of in stats] == [1, 2, 1]
    assert [of["write_calls"] for of in stats] == [0, 1, 0]
    assert len({of["pid"] for of in stats}) == 3


def test_checkpoint_goes_to_other_shards_and_to_one_process(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    twin = local()
    (three,) = ray_tables(actors[3])
    gradients = [random_gradients(rng, random_batch(rng)) for _ in range(3)]
    for some in gradients[:2]:
        three.push(some, ADAGRAD)
        twin.push(some, ADAGRAD)
    three.save_checkpoint(tmp_path)
    (one,), here = ray_tables(actors[1]), local()
    for table in (one, here):
        table.load_checkpoint(tmp_path)
    for table in (one, here, three, twin):
        table.push(gradients[2], ADAGRAD)
    for table in (one, here, three):
        assert_same_rows(table.pull(EVERYTHING), twin.pull(EVERYTHING))


def test_every_shard_with_changed_rows_writes_one_delta(table: RayTable, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    rows = {Field.KNOWLEDGE: rows_of(1, 9, 17, 149), Field.CONTEXT: rows_of(), Field.JOINT: rows_of(64)}
    with storage.staging() as staging:
        deltas = table.save_deltas(staging, rows)
    assert {field: len(parts) for field, parts in deltas.items()} == {"knowledge": table.plan.shards, "joint": 1}
    stats = table.stats()
    assert sum(of["bytes_written"] for of in stats) == staging.written
    assert all(of["bytes_written"] for of in stats)


def test_table_of_an_abandoned_attempt_is_lost(actors: dict[int, list[Any]]) -> None:
    (old,) = ray_tables(actors[3])
    old.push({Field.CONTEXT: (rows_of(0, 1, 2), np.ones((3, DIM), np.float32))}, ADAGRAD)
    ray_tables(actors[3])
    with pytest.raises(ShardLostError, match=r"shard \d belongs to another attempt by now"):
        old.pull(EVERYTHING)
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.write(Field.JOINT, EVERY_ROW, np.ones((ROWS, DIM), np.float32))
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.nearest(np.ones((1, DIM), np.float32), EVERY_ROW, 3)


def test_error_of_a_shard_names_the_shard(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    (table,) = ray_tables(actors[3])
    with pytest.raises(DkgeError, match=r"shard 0: .*knowledge\.npy"):
        table.load_checkpoint(tmp_path)
