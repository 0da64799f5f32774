"""Rows in actors are rows in this process, to the bit, however far ahead they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from dkge_dist.cluster.wire import ShardLostError

from dkge_dist.cluster.session import ShardActor
from dkge_dist.cluster.table import RayTable
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import load_table, save_table
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED
from dkge_dist.types import ROW, DkgeError, Field
from tests.cluster.twins import (
    ADAGRAD,
    BLOCK,
    DIM,
    ROWS,
    SGD,
    START,
    Pushed,
    Rows,
    local,
    same_rows,
    some_gradients,
    some_rows,
    stored,
)

pytestmark = pytest.mark.usefixtures("one_thread")

A_ROW = 4 * DIM + 4
EVERY = {field: np.arange(ROWS, dtype=ROW) for field in Field}
SHARDS = [1, 3]
attempts = map(str, itertools.count())


@pytest.fixture(scope="module")
def actors(ray_here: None) -> Iterator[dict[int, list[Any]]]:
    """Shards of the table: one, and three. Every test opens an attempt of its own on them."""
    import ray

    kind = ray.remote(ShardActor).options(num_cpus=0, max_concurrency=6)
    made = {
        shards: [kind.remote(number, ShardPlan(ROWS, BLOCK, shards)) for number in range(shards)] for shards in SHARDS
    }
    yield made
    for some in made.values():
        for actor in some:
            ray.kill(actor)


@pytest.fixture(params=SHARDS)
def table(actors: dict[int, list[Any]], request: pytest.FixtureRequest) -> RayTable:
    """A table of so many shards, at its start values."""
    return opened(actors[request.param])[0]


def opened(some: list[Any], world: int = 1) -> list[RayTable]:
    """What each of the ranks has of a new attempt."""
    attempt = next(attempts)
    barrier = Barrier(world)
    plan = ShardPlan(ROWS, BLOCK, len(some))
    tables = [
        RayTable(plan, some, attempt, DIM, rank, world, lambda: barrier.wait(60) and None) for rank in range(world)
    ]
    tables[0].open(START)
    return tables


def some_batch(rng: np.random.Generator) -> Rows:
    return {field: some_rows(rng) for field in TRAINED}


def some_of(rng: np.random.Generator, batch: Rows) -> Pushed:
    """Gradients for all that was pulled, for some of it, for one field, or for nothing."""
    draw = rng.random()
    if draw < 0.7:
        return some_gradients(rng, batch)
    fields = TRAINED if draw < 0.8 else TRAINED[:1] if draw < 0.95 else ()
    return some_gradients(rng, {field: batch[field][rng.random(batch[field].shape[0]) < 0.5] for field in fields})


def batches_that_overlap(rng: np.random.Generator, count: int) -> list[Rows]:
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


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_calls_gives_the_same_rows(table: RayTable, seed: int) -> None:
    """The next batch is announced while this one is announced itself, before its push, after it, or not at all;
    announcements of what is never pulled are in between, pulls without a push, and writes."""
    rng = np.random.default_rng(seed)
    twin = local()
    batches = batches_that_overlap(rng, 25)
    for batch, following in itertools.pairwise(batches):
        when = rng.choice(["ahead", "before", "after", "never"])
        if when == "ahead":
            table.expect(batch)
            table.expect(following)
        same_rows(table.pull(batch), twin.pull(batch))
        if when == "before":
            table.expect(following)
        if rng.random() < 0.15:
            table.expect(some_batch(rng))  # Nobody will come for it.
        if rng.random() < 0.85:
            gradients = some_of(rng, batch)
            optimizer = SGD if rng.random() < 0.3 else ADAGRAD
            for one in (table, twin):
                one.push(gradients, optimizer)
        if when == "after":
            table.expect(following)
        if rng.random() < 0.3:
            rows = some_rows(rng)
            values = rng.random((rows.shape[0], DIM), np.float32)
            for one in (table, twin):
                one.write(Field.JOINT, rows, values)
        if rng.random() < 0.1:
            aside = {Field.JOINT: some_rows(rng), Field.KNOWLEDGE: some_rows(rng)}
            same_rows(table.pull(aside), twin.pull(aside))
    same_rows(table.pull(EVERY), twin.pull(EVERY))


def test_a_write_is_seen_by_those_who_asked_before_it(table: RayTable) -> None:
    twin = local()
    rng = np.random.default_rng(0)
    batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
    table.expect(batch)
    values = rng.random((20, DIM), np.float32)
    for one in (table, twin):
        one.write(Field.KNOWLEDGE, np.arange(20, dtype=ROW), values)
    same_rows(table.pull(batch), twin.pull(batch))


def test_pushes_without_a_pull_between_them_are_seen_by_those_who_asked_before(table: RayTable) -> None:
    twin = local()
    rng = np.random.default_rng(0)
    batch = {field: np.arange(40, dtype=ROW) for field in TRAINED}
    table.expect(batch)
    gradients = some_gradients(rng, {field: np.arange(20, dtype=ROW) for field in TRAINED})
    for one in (table, twin):
        one.push(gradients, ADAGRAD)
    same_rows(table.pull(batch), twin.pull(batch))


@pytest.mark.parametrize("shards", SHARDS)
def test_arrays_that_are_too_large_for_a_message(actors: dict[int, list[Any]], shards: int) -> None:
    """They go through the object store, from where they come as memory that nobody may write to."""
    start = START._replace(dim=600)
    plan = ShardPlan(ROWS, BLOCK, shards)
    table, twin = RayTable(plan, actors[shards], next(attempts), 600), local(start)
    table.open(start)
    rng = np.random.default_rng(0)
    batches = [{field: rng.permutation(ROWS)[:140].astype(ROW) for field in TRAINED} for _ in range(4)]
    for batch, following in itertools.pairwise(batches):
        got = table.pull(batch)
        same_rows(got, twin.pull(batch))
        got[Field.CONTEXT] += 1  # It is the caller's own.
        table.expect(following)
        gradients = some_gradients(rng, batch, 600)
        for one in (table, twin):
            one.push(gradients, ADAGRAD)
    for one in (table, twin):
        one.write(Field.JOINT, EVERY[Field.JOINT], np.ones((ROWS, 600), np.float32))
    same_rows(table.pull(EVERY), twin.pull(EVERY))


@pytest.mark.parametrize("when", ["ahead", "before", "after", "never"])
def test_every_distinct_row_moves_once_each_way(table: RayTable, when: str) -> None:
    """Counted in the actors: 4d bytes and a number of 4 for each row that is pulled, and for each that is pushed."""
    rng = np.random.default_rng(0)
    batches = batches_that_overlap(rng, 8)
    if when == "ahead":
        table.expect(batches[0])
    for batch, following in itertools.pairwise(batches):
        if when == "ahead":
            table.expect(following)
        table.pull(batch)
        if when == "before":
            table.expect(following)
        table.push(some_gradients(rng, batch), ADAGRAD)
        if when == "after":
            table.expect(following)
    table.pull(batches[-1])
    stats = table.stats()
    rows = [sum(some.shape[0] for some in batch.values()) for batch in batches]
    assert sum(of["rows_pulled"] for of in stats) == sum(rows)
    assert sum(of["bytes_pulled"] for of in stats) == sum(rows) * A_ROW
    assert sum(of["rows_pushed"] for of in stats) == sum(rows[:-1])
    assert sum(of["bytes_pushed"] for of in stats) == sum(rows[:-1]) * A_ROW


def test_a_batch_makes_one_pull_and_one_push_a_shard_that_holds_any_of_it(actors: dict[int, list[Any]]) -> None:
    (table,) = opened(actors[3])
    rng = np.random.default_rng(0)
    second = np.arange(BLOCK, 2 * BLOCK, dtype=ROW)
    whole = {field: rng.permutation(ROWS)[:100].astype(ROW) for field in TRAINED}
    for batch in ({Field.KNOWLEDGE: second, Field.CONTEXT: second[:3]}, whole):
        table.expect(batch)
        table.pull(batch)
        table.push(some_gradients(rng, batch), ADAGRAD)
    table.write(Field.JOINT, second, np.ones((BLOCK, DIM), np.float32))
    stats = table.stats()
    assert [of["pull_calls"] for of in stats] == [1, 2, 1]
    assert [of["push_calls"] for of in stats] == [1, 2, 1]
    assert [of["write_calls"] for of in stats] == [0, 1, 0]
    assert len({of["pid"] for of in stats}) == 3


Script = Callable[[RayTable, int], None]


def together(tables: list[RayTable], script: Script) -> None:
    """Every rank in a thread of its own."""
    with ThreadPoolExecutor(len(tables)) as pool:
        for future in [pool.submit(script, table, rank) for rank, table in enumerate(tables)]:
            future.result(120)


def added(ranks: list[Pushed]) -> Pushed:
    """Gradients of all ranks, added up in their order."""
    out = {}
    for field in TRAINED:
        parts = [gradients[field] for gradients in ranks if field in gradients]
        rows = np.unique(np.concatenate([some for some, _ in parts]))
        total = np.zeros((rows.shape[0], DIM), np.float32)
        for some, values in parts:
            for row, value in zip(some, values, strict=True):
                total[np.searchsorted(rows, row)] += value
        out[field] = (rows.astype(ROW), total)
    return out


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("seed", range(3))
def test_two_ranks_always_compute_with_the_newest_rows(actors: dict[int, list[Any]], shards: int, seed: int) -> None:
    """Each of them asks ahead for rows that the other one changes meanwhile: nobody ever gets an old one."""
    rng = np.random.default_rng(seed)
    steps = 12
    batches = [batches_that_overlap(rng, steps) for _ in range(2)]
    for number in (3, 7):
        batches[1][number] = {field: np.empty(0, ROW) for field in TRAINED}  # Fewer triples than workers.
    gradients = [[some_gradients(rng, batch) for batch in of] for of in batches]
    plans = [[str(rng.choice(["ahead", "before", "after", "never"])) for _ in range(steps)] for _ in range(2)]
    twin = local()
    expected: list[list[Rows]] = []
    for step in range(steps):
        expected.append([twin.pull(batches[rank][step]) for rank in range(2)])
        twin.push(added([gradients[rank][step] for rank in range(2)]), ADAGRAD)

    def script(table: RayTable, rank: int) -> None:
        for step in range(steps):
            batch, following, when = batches[rank][step], batches[rank][step + 1], plans[rank][step]
            if when == "ahead":
                table.expect(batch)
                table.expect(following)
            got = table.pull(batch)
            for field in TRAINED:
                np.testing.assert_array_equal(got[field], expected[step][rank][field], f"step {step}, rank {rank}")
            if when == "before":
                table.expect(following)
            table.push(gradients[rank][step], ADAGRAD)
            if when == "after":
                table.expect(following)

    tables = opened(actors[shards], 2)
    together(tables, script)
    same_rows(tables[1].pull(EVERY), twin.pull(EVERY))
    assert [of["push_calls"] for of in tables[0].stats()] == [2 * steps] * shards


@pytest.mark.parametrize("shards", SHARDS)
def test_what_one_rank_reads_between_two_steps_does_not_disturb_the_next(
    actors: dict[int, list[Any]], shards: int
) -> None:
    """The first worker validates. Then comes a batch, and after it one with no row that this one does not change."""
    rng = np.random.default_rng(0)
    aside = {field: np.arange(0, 60, 2, dtype=ROW) for field in TRAINED}
    first = {field: np.arange(40, 90, dtype=ROW) for field in TRAINED}
    second = {field: np.arange(50, 70, dtype=ROW) for field in TRAINED}
    gradients = [some_gradients(rng, first) for _ in range(2)]
    twin = local()
    twin.push(added(gradients), ADAGRAD)

    def script(table: RayTable, rank: int) -> None:
        if rank == 0:
            table.pull(aside)
        table.expect(first)
        table.pull(first)
        table.expect(second)
        table.push(gradients[rank], ADAGRAD)
        same_rows(table.pull(second), twin.pull(second))

    together(opened(actors[shards], 2), script)


@pytest.mark.parametrize("expects", [False, True])
def test_a_checkpoint_has_the_step_that_another_rank_is_late_for(
    actors: dict[int, list[Any]], tmp_path: Path, expects: bool
) -> None:
    """Saving waits for every push that was made, also when the next batch is on its way already."""
    tables = opened(actors[3], 2)
    rng = np.random.default_rng(0)
    batch = {field: np.arange(50, dtype=ROW) for field in TRAINED}
    gradients = [some_gradients(rng, batch) for _ in range(2)]
    tables[0].pull(batch)
    if expects:
        tables[0].expect({field: np.arange(40, 80, dtype=ROW) for field in TRAINED})
    tables[0].push(gradients[0], ADAGRAD)
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(tables[0].save, tmp_path)
        with pytest.raises(TimeoutError):
            saved.result(0.3)
        tables[1].push(gradients[1], ADAGRAD)
        saved.result(60)
    twin, found = local(), local()
    twin.push(added(gradients), ADAGRAD)
    found.load(tmp_path)
    for field in TRAINED:
        assert np.array_equal(found.shard.values[field], twin.shard.values[field])
        assert np.array_equal(found.shard.state[field], twin.shard.state[field])


def test_checkpoints_go_from_shards_to_shards_and_to_one_piece(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    twin = local()
    (three,) = opened(actors[3])
    gradients = [some_gradients(rng, some_batch(rng)) for _ in range(3)]
    for some in gradients[:2]:
        three.push(some, ADAGRAD)
        twin.push(some, ADAGRAD)
    three.save(tmp_path)
    (one,), here = opened(actors[1]), local()
    for table in (one, here):
        table.load(tmp_path)
    for table in (one, here, three, twin):
        table.push(gradients[2], ADAGRAD)
    for table in (one, here, three):
        same_rows(table.pull(EVERY), twin.pull(EVERY))


def test_loading_takes_every_rank_back(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    tables = opened(actors[3], 2)
    rng = np.random.default_rng(0)
    batch = {field: np.arange(30, dtype=ROW) for field in TRAINED}
    steps = [[some_gradients(rng, batch) for _ in range(2)] for _ in range(3)]
    twin = local()
    twin.push(added(steps[0]), ADAGRAD)
    kept = twin.pull(batch)

    def script(table: RayTable, rank: int) -> None:
        table.push(steps[0][rank], ADAGRAD)
        if rank == 0:
            table.save(tmp_path)
        table.barrier()
        table.pull(batch)
        table.push(steps[1][rank], ADAGRAD)
        table.load(tmp_path)
        same_rows(table.pull(batch), kept)
        table.push(steps[2][rank], ADAGRAD)

    together(tables, script)
    twin.push(added(steps[2]), ADAGRAD)
    same_rows(tables[0].pull(EVERY), twin.pull(EVERY))


def test_shards_write_tables_and_deltas_of_a_store_themselves(table: RayTable, tmp_path: Path) -> None:
    twin = local()
    rng = np.random.default_rng(0)
    for _ in range(2):
        gradients = some_gradients(rng, some_batch(rng))
        for one in (table, twin):
            one.push(gradients, ADAGRAD)
    storage = open_storage(tmp_path)
    base = stored(tmp_path, {field: np.zeros((ROWS, DIM), np.float32) for field in Field})
    rows = {Field.KNOWLEDGE: np.array([1, 9, 17, 149], ROW), Field.CONTEXT: np.empty(0, ROW)}
    with storage.staging() as staging:
        tables = table.save_tables(staging)
        written = staging.written
        assert written > 2 * ROWS * DIM * 4
        for field in Field:
            assert tables[field.value] == save_table(staging, twin.shard.values[field], BLOCK)
            assert np.array_equal(load_table(storage, tables[field.value]), twin.shard.values[field])
        assert staging.written == written, "the very same parts"
        deltas = table.save_deltas(staging, rows)
    assert deltas.keys() == {"knowledge"}
    assert len(deltas["knowledge"]) == table.plan.shards
    entry = base.tables[Field.KNOWLEDGE].model_copy(update={"deltas": deltas["knowledge"]})
    expected = np.zeros((ROWS, DIM), np.float32)
    expected[rows[Field.KNOWLEDGE]] = twin.shard.values[Field.KNOWLEDGE][rows[Field.KNOWLEDGE]]
    assert np.array_equal(load_table(storage, entry), expected)
    again = opened(table.actors)[0]
    again.open(base._replace(tables={Field.KNOWLEDGE: entry}))
    same_rows(again.pull({Field.KNOWLEDGE: EVERY[Field.JOINT]}), {Field.KNOWLEDGE: expected})


def test_a_table_of_an_attempt_that_was_given_up_is_told_so(actors: dict[int, list[Any]]) -> None:
    (old,) = opened(actors[3])
    old.push({Field.CONTEXT: (np.arange(3, dtype=ROW), np.ones((3, DIM), np.float32))}, ADAGRAD)
    opened(actors[3])
    with pytest.raises(ShardLostError, match=r"shard \d belongs to another attempt by now"):
        old.pull(EVERY)
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.write(Field.JOINT, EVERY[Field.JOINT], np.ones((ROWS, DIM), np.float32))


def test_what_a_shard_cannot_do_names_the_shard(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    (table,) = opened(actors[3])
    with pytest.raises(DkgeError, match=r"shard 0: .*knowledge\.npy"):
        table.load(tmp_path)
