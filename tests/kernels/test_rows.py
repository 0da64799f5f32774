"""Gathering, scattering and membership of rows, against loops and sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.rows import RowMembership, gather_rows, scatter_rows
from dkge_dist.types import OFFSET, ROW

some_rows = st.lists(st.integers(0, 300), max_size=80)
seeds = st.integers(0, 2**32 - 1)


@given(st.lists(st.integers(0, 59), max_size=40), st.integers(1, 7), seeds)
def test_gather_reads_rows_in_any_order_and_more_than_once(rows: list[int], dim: int, seed: int) -> None:
    table = np.random.default_rng(seed).random((60, dim), np.float32)
    out = np.full((len(rows), dim), np.nan, np.float32)
    gather_rows(table, as_readonly(np.array(rows), ROW), out)
    assert out.tolist() == [table[row].tolist() for row in rows]


@given(st.integers(0, 40), st.integers(1, 7), seeds, st.sampled_from([ROW, OFFSET]))
def test_scatter_writes_its_rows_and_no_others(count: int, dim: int, seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(60)[:count].astype(dtype)
    values = rng.random((count, dim), np.float32)
    out = rng.random((60, dim), np.float32)
    expected = out.copy()
    for number in range(count):
        expected[order[number]] = values[number]
    scatter_rows(values, order, out)
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("strided", [False, True])
def test_scattered_values_may_be_strided(strided: bool) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2] if strided else np.ones((4, 3), np.float32)
    out = np.zeros((4, 3), np.float32)
    scatter_rows(values, np.array([3, 2, 1, 0]), out)
    assert np.array_equal(out, values[::-1])


@settings(max_examples=30)
@given(st.lists(st.tuples(some_rows, some_rows), min_size=1, max_size=5))
def test_membership_forgets_earlier_batches(pairs: list[tuple[list[int], list[int]]]) -> None:
    membership = RowMembership(301)
    for rows, others in pairs:
        found = membership.isin(np.array(rows, ROW), np.array(others, ROW))
        assert found.tolist() == [row in set(others) for row in rows]
