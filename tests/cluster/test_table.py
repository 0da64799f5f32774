"""A table in shard actors is a table in this process, to the bit, however far ahead its rows are asked for."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.table import RayTable
from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import load_table, save_table
from dkge_dist.types import ROW, TRAINED, DkgeError, Field
from tests.cluster.twins import (
    ADAGRAD,
    BLOCK,
    DIM,
    ROWS,
    SGD,
    START,
    Pushed,
    Rows,
    assert_same_rows,
    local,
    overlapping_batches,
    ray_tables,
    some_batch,
    some_gradients,
    some_rows,
    stored,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ROW_BYTES = 4 * DIM + 4
EVERY = {field: np.arange(ROWS, dtype=ROW) for field in Field}
SHARDS = [1, 3]
MOMENTS = ["ahead", "before", "after", "never"]
"""When the rows of the next batch are announced: before this batch is pulled, before its push, after it, or not."""


@pytest.fixture(params=SHARDS)
def table(actors: dict[int, list[Any]], request: pytest.FixtureRequest) -> RayTable:
    """A table of so many shards, at its start values."""
    return ray_tables(actors[request.param])[0]


def gradients_of_some(rng: np.random.Generator, batch: Rows) -> Pushed:
    """Gradients for all that was pulled, for some of it, for one field, or for nothing."""
    draw = rng.random()
    if draw < 0.7:
        return some_gradients(rng, batch)
    fields = TRAINED if draw < 0.8 else TRAINED[:1] if draw < 0.95 else ()
    return some_gradients(rng, {field: batch[field][rng.random(batch[field].shape[0]) < 0.5] for field in fields})


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_calls_equals_a_local_table(table: RayTable, seed: int) -> None:
    """With announcements of what is never pulled, pulls without their ticket or without a push, and writes."""
    rng = np.random.default_rng(seed)
    twin = local()
    batches = overlapping_batches(rng, 25)
    tickets: dict[int, int] = {}
    for number, (batch, following) in enumerate(itertools.pairwise(batches)):
        when = rng.choice(MOMENTS)
        if when == "ahead":
            tickets |= {number: table.prefetch(batch), number + 1: table.prefetch(following)}
        ticket = tickets.get(number) if rng.random() < 0.9 else None
        assert_same_rows(table.pull(batch, ticket), twin.pull(batch))
        if when == "before":
            tickets[number + 1] = table.prefetch(following)
        if rng.random() < 0.15:
            table.prefetch(some_batch(rng))  # Never pulled.
        if rng.random() < 0.85:
            gradients = gradients_of_some(rng, batch)
            optimizer = SGD if rng.random() < 0.3 else ADAGRAD
            for one in (table, twin):
                one.push(gradients, optimizer)
        if when == "after":
            tickets[number + 1] = table.prefetch(following)
        if rng.random() < 0.4:
            field, rows = rng.choice(list(Field)), some_rows(rng)
            values = rng.random((rows.shape[0], DIM), np.float32)
            is_reset = field in TRAINED and rng.random() < 0.5
            for one in (table, twin):
                (one.reset if is_reset else one.write)(Field(field), rows, values)
        if rng.random() < 0.1:
            aside = {Field.JOINT: some_rows(rng), Field.KNOWLEDGE: some_rows(rng)}
            assert_same_rows(table.pull(aside), twin.pull(aside))
    assert_same_rows(table.pull(EVERY), twin.pull(EVERY))


@pytest.mark.parametrize("method", ["write", "reset"])
def test_prefetched_rows_show_a_later_write(table: RayTable, method: str) -> None:
    twin = local()
    rng = np.random.default_rng(0)
    batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
    ticket = table.prefetch(batch)
    values = rng.random((20, DIM), np.float32)
    for one in (table, twin):
        getattr(one, method)(Field.KNOWLEDGE, np.arange(20, dtype=ROW), values)
    assert_same_rows(table.pull(batch, ticket), twin.pull(batch))


def test_prefetched_rows_show_a_push_without_a_pull(table: RayTable) -> None:
    twin = local()
    rng = np.random.default_rng(0)
    batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
    ticket = table.prefetch(batch)
    gradients = some_gradients(rng, {field: np.arange(20, dtype=ROW) for field in TRAINED})
    for one in (table, twin):
        one.push(gradients, ADAGRAD)
    assert_same_rows(table.pull(batch, ticket), twin.pull(batch))


@pytest.mark.parametrize("shards", SHARDS)
def test_pulled_rows_belong_to_the_caller(actors: dict[int, list[Any]], shards: int) -> None:
    """Also large ones, which lie in memory that others write to next."""
    start = START._replace(dim=600)
    (table,), twin = ray_tables(actors[shards], start=start), local(start)
    rng = np.random.default_rng(0)
    batches = [{field: rng.permutation(ROWS)[:140].astype(ROW) for field in TRAINED} for _ in range(4)]
    ticket = None
    for batch, following in itertools.pairwise(batches):
        got = table.pull(batch, ticket)
        assert_same_rows(got, twin.pull(batch))
        got[Field.CONTEXT] += 1
        ticket = table.prefetch(following)
        gradients = some_gradients(rng, batch, 600)
        for one in (table, twin):
            one.push(gradients, ADAGRAD)
    for one in (table, twin):
        one.write(Field.JOINT, EVERY[Field.JOINT], np.ones((ROWS, 600), np.float32))
    assert_same_rows(table.pull(EVERY), twin.pull(EVERY))


@pytest.mark.parametrize("when", MOMENTS)
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
        table.push(some_gradients(rng, batch), ADAGRAD)
        if when == "after":
            tickets.append(table.prefetch(following))
        if when == "never":
            tickets.append(None)
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
        table.push(some_gradients(rng, batch), ADAGRAD)
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
    gradients = [some_gradients(rng, some_batch(rng)) for _ in range(3)]
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
        assert_same_rows(table.pull(EVERY), twin.pull(EVERY))


def test_shards_write_tables_and_deltas_of_a_store(table: RayTable, tmp_path: Path) -> None:
    twin = local()
    rng = np.random.default_rng(0)
    for _ in range(2):
        gradients = some_gradients(rng, some_batch(rng))
        for one in (table, twin):
            one.push(gradients, ADAGRAD)
    base = stored(tmp_path, {field: np.zeros((ROWS, DIM), np.float32) for field in Field})
    storage = open_storage(base.location)
    rows = {Field.KNOWLEDGE: np.array([1, 9, 17, 149], ROW), Field.CONTEXT: np.empty(0, ROW)}
    with storage.staging() as staging:
        tables = table.save(staging, BLOCK)
        written = staging.written
        assert written > 2 * ROWS * DIM * 4
        for field in Field:
            assert tables[field.value] == save_table(staging, twin.shard.values[field], BLOCK)
            assert np.array_equal(load_table(storage, tables[field.value]), twin.shard.values[field])
        assert staging.written == written, "the very same parts"
        deltas = table.save_deltas(staging, rows)
        assert staging.written > written
    assert deltas.keys() == {"knowledge"}
    assert len(deltas["knowledge"]) == table.plan.shards
    entry = base.tables[Field.KNOWLEDGE].model_copy(update={"deltas": deltas["knowledge"]})
    expected = np.zeros((ROWS, DIM), np.float32)
    expected[rows[Field.KNOWLEDGE]] = twin.shard.values[Field.KNOWLEDGE][rows[Field.KNOWLEDGE]]
    assert np.array_equal(load_table(storage, entry), expected)
    (again,) = ray_tables(table.actors)
    again.open(base._replace(tables={Field.KNOWLEDGE: entry}))
    assert_same_rows(again.pull({Field.KNOWLEDGE: EVERY[Field.JOINT]}), {Field.KNOWLEDGE: expected})


def test_table_of_an_abandoned_attempt_is_lost(actors: dict[int, list[Any]]) -> None:
    (old,) = ray_tables(actors[3])
    old.push({Field.CONTEXT: (np.arange(3, dtype=ROW), np.ones((3, DIM), np.float32))}, ADAGRAD)
    ray_tables(actors[3])
    with pytest.raises(ShardLostError, match=r"shard \d belongs to another attempt by now"):
        old.pull(EVERY)
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.write(Field.JOINT, EVERY[Field.JOINT], np.ones((ROWS, DIM), np.float32))
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.nearest(np.ones((1, DIM), np.float32), EVERY[Field.JOINT], 3)


def test_error_of_a_shard_names_the_shard(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    (table,) = ray_tables(actors[3])
    with pytest.raises(DkgeError, match=r"shard 0: .*knowledge\.npy"):
        table.load_checkpoint(tmp_path)
