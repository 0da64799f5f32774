"""The index of all vectors; the nearest rows, some rows and queries at a time, against a sort over all rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.tables import index as module
from dkge_dist.tables.index import QUERIES_AT_ONCE, ExactIndex, Nearest, VectorIndex, merged, nearest
from dkge_dist.types import ROW, Array
from tests import reference
from tests.tables.index_contract import IndexContract


class TestExactIndex(IndexContract):
    def index_of(self, values: Array) -> VectorIndex:
        # Of any type and layout; they are copied where that is not what kernels read.
        return ExactIndex(np.asfortranarray(values.astype(np.float64)))


@settings(max_examples=80)
@given(
    st.integers(1, 60), st.integers(1, 5), st.integers(1, 70), st.integers(1, 20), st.integers(0, 10**6), st.booleans()
)
def test_equal_to_a_sort_over_all_rows(
    rows: int, queries: int, top: int, at_once: int, seed: int, all_alive: bool
) -> None:
    """Whole numbers, so that sums are exact and many are equal: of those the smaller row comes first."""
    rng = np.random.default_rng(seed)
    table = rng.integers(-2, 3, (rows, 3)).astype(np.float32)
    query = rng.integers(-2, 3, (queries, 3)).astype(np.float32)
    alive = np.ones(rows, bool) if all_alive else rng.random(rows) < 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROWS_AT_ONCE", at_once)
        found = nearest(query, table, np.flatnonzero(alive).astype(ROW), top)
    for number in range(queries):
        expected = reference.nearest(query[number], table, alive.tolist(), top)
        assert list(zip(found.rows[number].tolist(), found.distances[number].tolist(), strict=True)) == expected


@pytest.mark.parametrize("queries", [1, QUERIES_AT_ONCE, QUERIES_AT_ONCE + 3])
def test_real_numbers_and_many_queries(queries: int) -> None:
    rng = np.random.default_rng(queries)
    table = rng.normal(size=(300, 12)).astype(np.float32)
    query = rng.normal(size=(queries, 12)).astype(np.float32)
    alive = rng.random(300) < 0.9
    found = nearest(query, table, np.flatnonzero(alive), 7)
    distances = np.abs(query[:, None].astype(np.float64) - table[None]).sum(2)
    distances[:, ~alive] = np.inf
    np.testing.assert_array_equal(found.rows, np.argsort(distances, axis=1, kind="stable")[:, :7])
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :7], rtol=1e-5)


@pytest.mark.parametrize("at_once", [1, 3, 64, 1000])
def test_how_many_rows_are_held_at_once_does_not_matter(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(100, 20)).astype(np.float32)
    query = rng.normal(size=(4, 20)).astype(np.float32)
    every_row = np.arange(100, dtype=ROW)
    whole = nearest(query, table, every_row, 10)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", at_once)
    some = nearest(query, table, every_row, 10)
    assert np.array_equal(some.rows, whole.rows)
    assert np.array_equal(some.distances, whole.distances)


def test_merging_takes_the_best_of_both() -> None:
    one = Nearest(np.array([[4, 1], [0, 2]]), np.array([[0.5, 2.0], [1.0, 1.0]], np.float32))
    other = Nearest(np.array([[3], [1]]), np.array([[0.5], [1.0]], np.float32))
    best = merged(one, other, 2)
    assert best.rows.tolist() == [[3, 4], [0, 1]]
    assert best.distances.tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert merged(one, other, 9).rows.tolist() == [[3, 4, 1], [0, 1, 2]]
