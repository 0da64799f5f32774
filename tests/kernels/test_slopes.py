"""Gradients of weighted L1 distances: the sums of signs that they are, in the order that they are promised in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.jit import kernel
from dkge_dist.kernels.slopes import GROUP, slopes_of_group, slopes_of_one
from dkge_dist.types import ROW

dims = st.integers(1, 200)
seeds = st.integers(0, 2**32 - 1)


@kernel
def one(query, candidate, near, weight, count, by_query, by_candidate):  # type: ignore[no-untyped-def]
    """Of one query."""
    slopes_of_one(query, candidate, near, weight, count, by_query, by_candidate)


@kernel
def group(queries, candidate, weight, by_queries, by_candidate):  # type: ignore[no-untyped-def]
    """Of a group."""
    slopes_of_group(queries, candidate, weight, by_queries, by_candidate)


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of which many are equal: the slope of equal ones is promised too."""
    values = rng.normal(size=shape).astype(np.float32)
    values[rng.random(shape) < 0.3] = 0
    return values


def add_slowly(
    query: np.ndarray, candidate: np.ndarray, weight: np.float32, by_query: np.ndarray, by_candidate: np.ndarray
) -> None:
    slope = np.where(query > candidate, weight, -weight)
    by_query -= slope
    by_candidate += slope


@given(dims, st.integers(1, 9), st.integers(0, 12), seeds)
def test_one_query_and_some_candidates(dim: int, candidates: int, count: int, seed: int) -> None:
    """To the bit; a candidate may come again."""
    rng = np.random.default_rng(seed)
    query, candidate, weight = drawn(rng, dim), drawn(rng, candidates, dim), drawn(rng, count + 2)
    near = rng.integers(0, candidates, count + 2).astype(ROW)
    by_query, by_candidate = drawn(rng, dim), drawn(rng, candidates, dim)
    expected = by_query.copy(), by_candidate.copy()
    for n, some in zip(near[:count], weight[:count], strict=True):
        add_slowly(query, candidate[n], some, expected[0], expected[1][n])
    one(query, candidate, near, weight, count, by_query, by_candidate)
    assert np.array_equal(by_query, expected[0])
    assert np.array_equal(by_candidate, expected[1])


@given(dims, st.integers(0, 12), seeds)
def test_a_group_of_queries_and_all_candidates(dim: int, candidates: int, seed: int) -> None:
    """To the bit, however many dimensions a register takes."""
    rng = np.random.default_rng(seed)
    queries, candidate, weight = drawn(rng, GROUP, dim), drawn(rng, candidates, dim), drawn(rng, GROUP, candidates)
    by_queries, by_candidate = drawn(rng, GROUP, dim), drawn(rng, candidates, dim)
    expected = by_queries.copy(), by_candidate.copy()
    for n in range(candidates):
        for k in range(GROUP):
            add_slowly(queries[k], candidate[n], weight[k, n], expected[0][k], expected[1][n])
    group(queries, candidate, weight, by_queries, by_candidate)
    assert np.array_equal(by_queries, expected[0])
    assert np.array_equal(by_candidate, expected[1])
