"""A table in shard actors under two workers: none of them ever computes with an old row."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.table import RayTable
from dkge_dist.types import ROW, TRAINED
from tests.cluster.twins import local, ray_tables, summed_over_ranks
from tests.tables.rows import ADAGRAD, EVERYTHING, Rows, assert_same_rows, overlapping_batches, random_gradients

pytestmark = pytest.mark.usefixtures("one_thread")

SHARDS = [1, 3]
Script = Callable[[RayTable, int], None]


def together(tables: list[RayTable], script: Script) -> None:
    """Every rank in a thread of its own."""
    with ThreadPoolExecutor(len(tables)) as pool:
        for future in [pool.submit(script, table, rank) for rank, table in enumerate(tables)]:
            future.result(120)


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("seed", range(3))
def test_both_ranks_pull_the_newest_rows(actors: dict[int, list[Any]], shards: int, seed: int) -> None:
    """Each of them prefetches rows that the other one changes meanwhile."""
    rng = np.random.default_rng(seed)
    steps = 12
    batches = [overlapping_batches(rng, steps) for _ in range(2)]
    for number in (3, 7):
        batches[1][number] = {field: np.empty(0, ROW) for field in TRAINED}  # Fewer triples than workers.
    gradients = [[random_gradients(rng, batch) for batch in of] for of in batches]
    plans = [[str(rng.choice(["ahead", "before", "after", "never"])) for _ in range(steps)] for _ in range(2)]
    twin = local()
    expected: list[list[Rows]] = []
    for step in range(steps):
        expected.append([twin.pull(batches[rank][step]) for rank in range(2)])
        twin.push(summed_over_ranks([gradients[rank][step] for rank in range(2)]), ADAGRAD)

    def script(table: RayTable, rank: int) -> None:
        tickets: dict[int, int] = {}
        for step in range(steps):
            batch, following, when = batches[rank][step], batches[rank][step + 1], plans[rank][step]
            if when == "ahead":
                tickets |= {step: table.prefetch(batch), step + 1: table.prefetch(following)}
            got = table.pull(batch, tickets.get(step))
            for field in TRAINED:
                np.testing.assert_array_equal(got[field], expected[step][rank][field], f"step {step}, rank {rank}")
            if when == "before":
                tickets[step + 1] = table.prefetch(following)
            table.push(gradients[rank][step], ADAGRAD)
            if when == "after":
                tickets[step + 1] = table.prefetch(following)

    tables = ray_tables(actors[shards], 2)
    together(tables, script)
    assert_same_rows(tables[1].pull(EVERYTHING), twin.pull(EVERYTHING))
    assert [of["push_calls"] for of in tables[0].stats()] == [2 * steps] * shards


@pytest.mark.parametrize("shards", SHARDS)
def test_reading_aside_does_not_disturb_the_next_batch(actors: dict[int, list[Any]], shards: int) -> None:
    """The first worker validates. Then comes a batch, and after it one whose rows this one changes, all of them."""
    rng = np.random.default_rng(0)
    aside = {field: np.arange(0, 60, 2, dtype=ROW) for field in TRAINED}
    first = {field: np.arange(40, 90, dtype=ROW) for field in TRAINED}
    second = {field: np.arange(50, 70, dtype=ROW) for field in TRAINED}
    gradients = [random_gradients(rng, first) for _ in range(2)]
    twin = local()
    twin.push(summed_over_ranks(gradients), ADAGRAD)

    def script(table: RayTable, rank: int) -> None:
        if rank == 0:
            table.pull(aside)
        table.pull(first, table.prefetch(first))
        ticket = table.prefetch(second)
        table.push(gradients[rank], ADAGRAD)
        assert_same_rows(table.pull(second, ticket), twin.pull(second))

    together(ray_tables(actors[shards], 2), script)


@pytest.mark.parametrize("prefetches", [False, True])
def test_checkpoint_waits_for_the_step_of_a_late_rank(
    actors: dict[int, list[Any]], tmp_path: Path, prefetches: bool
) -> None:
    """Saving waits for every push that was made, also when the next batch is on its way already."""
    tables = ray_tables(actors[3], 2)
    rng = np.random.default_rng(0)
    batch = {field: np.arange(50, dtype=ROW) for field in TRAINED}
    gradients = [random_gradients(rng, batch) for _ in range(2)]
    tables[0].pull(batch)
    if prefetches:
        tables[0].prefetch({field: np.arange(40, 80, dtype=ROW) for field in TRAINED})
    tables[0].push(gradients[0], ADAGRAD)
    with ThreadPoolExecutor(1) as pool:
        saved = pool.submit(tables[0].save_checkpoint, tmp_path)
        with pytest.raises(TimeoutError):
            saved.result(0.3)
        tables[1].push(gradients[1], ADAGRAD)
        saved.result(60)
    twin, found = local(), local()
    twin.push(summed_over_ranks(gradients), ADAGRAD)
    found.load_checkpoint(tmp_path)
    for field in TRAINED:
        assert np.array_equal(found.shard.values[field], twin.shard.values[field])
        assert np.array_equal(found.shard.state[field], twin.shard.state[field])


def test_loading_takes_every_rank_back(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    tables = ray_tables(actors[3], 2)
    rng = np.random.default_rng(0)
    batch = {field: np.arange(30, dtype=ROW) for field in TRAINED}
    steps = [[random_gradients(rng, batch) for _ in range(2)] for _ in range(3)]
    twin = local()
    twin.push(summed_over_ranks(steps[0]), ADAGRAD)
    kept = twin.pull(batch)

    def script(table: RayTable, rank: int) -> None:
        table.push(steps[0][rank], ADAGRAD)
        if rank == 0:
            table.save_checkpoint(tmp_path)
        table._communicator.barrier()
        table.pull(batch)
        table.push(steps[1][rank], ADAGRAD)
        table.load_checkpoint(tmp_path)
        assert_same_rows(table.pull(batch), kept)
        table.push(steps[2][rank], ADAGRAD)

    together(tables, script)
    twin.push(summed_over_ranks(steps[2]), ADAGRAD)
    assert_same_rows(tables[0].pull(EVERYTHING), twin.pull(EVERYTHING))
