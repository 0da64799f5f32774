"""Rows within bounds, partitioned, gathered, looked up and stepped, against loops; no other rows are touched."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.rows import RowMembership, adagrad_rows, first_outside, gather_rows, partition, sgd_rows
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.types import MAX_ROWS, OFFSET, ROW, Field
from tests import reference

some_rows = st.lists(st.integers(0, 300), max_size=80)
block_sizes = st.integers(0, 6).map(lambda power: 2**power)
numbers = st.one_of(st.integers(0, 300), st.integers(-(2**31), 2**31 - 1))
steps = st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=12).map(sorted), min_size=1, max_size=4)
seeds = st.integers(0, 2**32 - 1)


@given(st.lists(numbers, max_size=200), st.one_of(st.integers(0, 300), st.just(MAX_ROWS)))
def test_the_first_row_outside_is_found(rows: list[int], size: int) -> None:
    slow = next((place for place, row in enumerate(rows) if not 0 <= row < size), -1)
    assert first_outside(np.array(rows, ROW), size) == slow


@given(some_rows, block_sizes, st.integers(1, 9))
def test_partition_is_a_stable_sort_by_shard(rows: list[int], block: int, shards: int) -> None:
    order, local, begin = partition(np.array(rows, ROW), block, shards)
    assert (order.dtype, local.dtype, begin.dtype) == (OFFSET, ROW, OFFSET)
    assert (order.tolist(), local.tolist(), begin.tolist()) == reference.partition(rows, block, shards)


@given(st.lists(st.integers(0, 59), max_size=40), st.integers(1, 7), seeds)
def test_gather_reads_rows_in_any_order_and_more_than_once(rows: list[int], dim: int, seed: int) -> None:
    table = np.random.default_rng(seed).random((60, dim), np.float32)
    out = np.full((len(rows), dim), np.nan, np.float32)
    gather_rows(table, as_readonly(np.array(rows), ROW), out)
    assert out.tolist() == [table[row].tolist() for row in rows]


@settings(max_examples=30)
@given(st.lists(st.tuples(some_rows, some_rows), min_size=1, max_size=5))
def test_membership_forgets_earlier_batches(pairs: list[tuple[list[int], list[int]]]) -> None:
    membership = RowMembership(301)
    for rows, others in pairs:
        found = membership.isin(np.array(rows, ROW), np.array(others, ROW))
        assert found.tolist() == [row in set(others) for row in rows]


@given(steps, st.integers(1, 80), st.sampled_from([0.0, 3.0]), seeds)
def test_adagrad_equals_the_reference_step_after_step(
    batches: list[list[int]], dim: int, damping: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table, state = rng.normal(size=(12, dim)).astype(np.float32), np.zeros(12, np.float32)
    expected, sums = table.astype(np.float64), [0.0] * 12
    for rows in batches:
        gradients = rng.normal(size=(len(rows), dim)).astype(np.float32)
        numbers = as_readonly(np.array(rows), ROW)
        adagrad_rows(table, state, numbers, as_readonly(gradients), *np.float32((0.1, damping, 0)))
        for row, gradient in zip(rows, gradients, strict=True):
            expected[row], sums[row] = reference.adagrad(expected[row], sums[row], gradient, 0.1, damping)
    np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, sums, rtol=1e-4)


@given(st.sets(st.integers(0, 11), max_size=12).map(sorted), st.integers(1, 20), seeds)
def test_sgd_moves_its_rows_against_the_gradient(rows: list[int], dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, gradients = (rng.normal(size=(n, dim)).astype(np.float32) for n in (12, len(rows)))
    expected = table.copy()
    expected[rows] -= np.float32(0.5) * gradients
    sgd_rows(table, as_readonly(np.array(rows), ROW), as_readonly(gradients), np.float32(0.5))
    np.testing.assert_allclose(table, expected, rtol=1e-6, atol=1e-7)


def test_optimizers_of_a_shard_touch_only_their_rows() -> None:
    rng = np.random.default_rng(0)
    values = {field: rng.normal(size=(9, 5)).astype(np.float32) for field in Field}
    before = {field: table.copy() for field, table in values.items()}
    shard = Shard(values)
    rows, gradients = np.array([7, 2], ROW), rng.normal(size=(2, 5)).astype(np.float32)
    state = np.zeros(2, np.float32)
    expected = before[Field.CONTEXT][rows]
    for _ in range(3):
        shard.step(Field.CONTEXT, rows, gradients, Optimizer("adagrad", 0.1))
        state += (gradients**2).mean(1)
        expected = expected - 0.1 * gradients / np.sqrt(state)[:, None]
    np.testing.assert_allclose(shard.values[Field.CONTEXT][rows], expected, rtol=1e-5)
    shard.step(Field.KNOWLEDGE, rows, gradients, Optimizer("sgd", 0.5))
    np.testing.assert_allclose(
        shard.values[Field.KNOWLEDGE][rows], before[Field.KNOWLEDGE][rows] - 0.5 * gradients, rtol=1e-6
    )
    others = np.setdiff1d(np.arange(9), rows)
    for field in Field:
        assert np.array_equal(shard.values[field][others], before[field][others])
