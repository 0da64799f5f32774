"""Rows taken apart by shard and put together again, against loops and dictionaries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.partition import Recurrence, partition, spread_rows
from dkge_dist.types import OFFSET, ROW

block_sizes = st.integers(0, 6).map(lambda power: 2**power)
some_rows = st.lists(st.integers(0, 300), max_size=80)


def dealt_slowly(rows: list[int], block: int, shards: int) -> tuple[list[int], list[int], list[int]]:
    order, places, begin = [], [], [0]
    for shard in range(shards):
        for number, row in enumerate(rows):
            if row // block % shards == shard:
                order.append(number)
                places.append(row // block // shards * block + row % block)
        begin.append(len(order))
    return order, places, begin


@given(some_rows, block_sizes, st.integers(1, 9))
def test_dealing_is_a_stable_sort_by_shard(rows: list[int], block: int, shards: int) -> None:
    order, places, begin = partition(np.array(rows, ROW), block, shards)
    assert (order.dtype, places.dtype, begin.dtype) == (OFFSET, ROW, OFFSET)
    assert (order.tolist(), places.tolist(), begin.tolist()) == dealt_slowly(rows, block, shards)


@given(some_rows, block_sizes, st.integers(1, 9))
def test_ascending_rows_stay_ascending_in_every_shard(rows: list[int], block: int, shards: int) -> None:
    """Without this a delta of a shard would have to be sorted, and what a query leaves out too."""
    _, places, begin = partition(np.unique(np.array(rows, ROW)), block, shards)
    for shard in range(shards):
        assert (np.diff(places[begin[shard] : begin[shard + 1]]) > 0).all()


@settings(max_examples=30)
@given(st.lists(st.tuples(some_rows, some_rows), min_size=1, max_size=5))
def test_rows_that_recur_are_told_also_when_asked_again(pairs: list[tuple[list[int], list[int]]]) -> None:
    """The memory that is kept from question to question is as good as new every time."""
    recurrence = Recurrence(301)
    for rows, others in pairs:
        found = recurrence.among(np.array(rows, ROW), np.array(others, ROW))
        assert found.tolist() == [row in set(others) for row in rows]


@given(st.integers(0, 40), st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from([ROW, OFFSET]))
def test_spreading_rows(count: int, dim: int, seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(60)[:count].astype(dtype)
    values = rng.random((count, dim), np.float32)
    out = rng.random((60, dim), np.float32)
    expected = out.copy()
    for number in range(count):
        expected[order[number]] = values[number]
    spread_rows(values, order, out)
    assert np.array_equal(out, expected)


def test_rows_that_were_dealt_come_together_again() -> None:
    rng = np.random.default_rng(3)
    rows = rng.permutation(500)[:333].astype(ROW)
    table = rng.random((500, 5), np.float32)
    order, places, begin = partition(rows, 16, 4)
    out = np.full((333, 5), np.nan, np.float32)
    for shard in range(4):
        held = table[[row for row in range(500) if row // 16 % 4 == shard]]
        mine = slice(begin[shard], begin[shard + 1])
        spread_rows(held[places[mine]], order[mine], out)
    assert np.array_equal(out, table[rows])


@pytest.mark.parametrize("strided", [False, True])
def test_values_need_not_lie_side_by_side(strided: bool) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2] if strided else np.ones((4, 3), np.float32)
    out = np.zeros((4, 3), np.float32)
    spread_rows(values, np.array([3, 2, 1, 0]), out)
    assert np.array_equal(out, values[::-1])
