"""The nearest entities, block by block, against a sort over everybody."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evaluation.answers import QUERIES_AT_ONCE, nearest
from tests import reference


def in_blocks(table: np.ndarray, size: int) -> Iterator[tuple[int, np.ndarray]]:
    return ((first, table[first : first + size]) for first in range(0, table.shape[0], size))


@settings(max_examples=80)
@given(
    st.integers(1, 60), st.integers(1, 5), st.integers(1, 70), st.integers(1, 20), st.integers(0, 10**6), st.booleans()
)
def test_equal_to_a_sort_over_everybody(
    rows: int, queries: int, top: int, block: int, seed: int, all_alive: bool
) -> None:
    """Whole numbers, so that sums are exact and many are equal: of those the smaller row comes first."""
    rng = np.random.default_rng(seed)
    table = rng.integers(-2, 3, (rows, 3)).astype(np.float32)
    query = rng.integers(-2, 3, (queries, 3)).astype(np.float32)
    alive = np.ones(rows, bool) if all_alive else rng.random(rows) < 0.5
    found = nearest(query, in_blocks(table, block), alive, top)
    for number in range(queries):
        expected = reference.nearest(query[number], table, alive.tolist(), top)
        assert list(zip(found.rows[number].tolist(), found.distances[number].tolist(), strict=True)) == expected


@pytest.mark.parametrize("queries", [1, QUERIES_AT_ONCE, QUERIES_AT_ONCE + 3])
def test_real_numbers_and_many_queries(queries: int) -> None:
    rng = np.random.default_rng(queries)
    table = rng.normal(size=(300, 12)).astype(np.float32)
    query = rng.normal(size=(queries, 12)).astype(np.float32)
    alive = rng.random(300) < 0.9
    found = nearest(query, in_blocks(table, 64), alive, 7)
    distances = np.abs(query[:, None].astype(np.float64) - table[None]).sum(2)
    distances[:, ~alive] = np.inf
    np.testing.assert_array_equal(found.rows, np.argsort(distances, axis=1, kind="stable")[:, :7])
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :7], rtol=1e-5)


def test_blocks_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(100, 20)).astype(np.float32)
    query = rng.normal(size=(4, 20)).astype(np.float32)
    alive = np.ones(100, bool)
    whole = nearest(query, in_blocks(table, 100), alive, 10)
    for size in (1, 3, 64, 1000):
        some = nearest(query, in_blocks(table, size), alive, 10)
        assert np.array_equal(some.rows, whole.rows)
        assert np.array_equal(some.distances, whole.distances)


def test_rows_that_the_snapshot_does_not_know() -> None:
    """A table may have rows of labels that came later than the snapshot."""
    table = np.zeros((10, 2), np.float32)
    found = nearest(table[:1], in_blocks(table, 4), np.ones(6, bool), 99)
    assert found.rows.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_nobody_is_alive() -> None:
    table = np.zeros((10, 2), np.float32)
    found = nearest(table[:3], in_blocks(table, 4), np.zeros(10, bool), 5)
    assert found.rows.shape == found.distances.shape == (3, 0)
