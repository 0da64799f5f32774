"""Vectors that are asked by L1 distance: the `VectorIndex` protocol, and the index that compares with all of them.

Every index is exact: answers do not depend on which one gives them.

Shapes: Q queries, N rows, D dimensions.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from dkge_dist.kernels.codes import count_closer_of_many
from dkge_dist.kernels.ranks import FilteredCandidates, distances_to_all, distances_to_rows
from dkge_dist.types import OFFSET, Array

QUERIES_AT_ONCE = 256
ROWS_AT_ONCE = 1 << 14
"""Rows whose distances to all queries are held at a time; bounds memory."""


class Nearest(NamedTuple):
    """The best rows of each query, best first, and their distances."""

    rows: Array
    distances: Array


class VectorIndex(Protocol):
    """Vectors by row, wherever they are held. Candidates are ascending rows."""

    @property
    def rows(self) -> int:
        """How many rows there are."""

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""

    def vectors(self, rows: Array) -> Array:
        """Copies of the vectors of distinct rows."""

    def distances(self, query_QD: Array, indptr: Array, rows: Array) -> Array:
        """L1 distances: of query q to the rows `rows[indptr[q]:indptr[q + 1]]`."""

    def count_closer(
        self, query_QD: Array, bound_Q: Array, candidates: Array, filtered: FilteredCandidates
    ) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""

    def nearest(self, query_QD: Array, candidates: Array, top: int) -> Nearest:
        """The `top` candidates nearest to each query, best first; among equals the smaller row."""


class ExactIndex:
    """All vectors in memory, compared one by one."""

    def __init__(self, values_ND: Array) -> None:
        self.values = np.ascontiguousarray(values_ND, np.float32)
        self.rows, self.dim = (int(size) for size in self.values.shape)

    def vectors(self, rows: Array) -> Array:
        """Copies of the vectors of distinct rows."""
        return self.values[rows]

    def distances(self, query_QD: Array, indptr: Array, rows: Array) -> Array:
        """L1 distances of each query to its own rows."""
        return distances_to_rows(query_QD, self.values, indptr, rows)

    def count_closer(
        self, query_QD: Array, bound_Q: Array, candidates: Array, filtered: FilteredCandidates
    ) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""
        return count_closer_of_many(query_QD, bound_Q, self.values, candidates, filtered)

    def nearest(self, query_QD: Array, candidates: Array, top: int) -> Nearest:
        """The `top` candidates nearest to each query."""
        return nearest(query_QD, self.values, candidates, top)


def nearest(query_QD: Array, values_ND: Array, candidates: Array, top: int) -> Nearest:
    """The `top` candidates (ascending rows) nearest to each query. Among equals the smaller row comes first."""
    queries = query_QD.shape[0]
    best = Nearest(np.empty((queries, 0), OFFSET), np.empty((queries, 0), np.float32))
    for begin in range(0, candidates.shape[0], ROWS_AT_ONCE):
        rows = candidates[begin : begin + ROWS_AT_ONCE]
        best = merged(best, _nearest_of(query_QD, values_ND, rows, top), top)
    return best


def _nearest_of(query_QD: Array, values_ND: Array, rows: Array, top: int) -> Nearest:
    found_rows, found = [], []
    for begin in range(0, query_QD.shape[0], QUERIES_AT_ONCE):
        distances = distances_to_all(query_QD[begin : begin + QUERIES_AT_ONCE], values_ND, rows)
        at = np.stack([_smallest(line, top) for line in distances])
        found_rows.append(rows[at].astype(OFFSET))
        found.append(np.take_along_axis(distances, at, axis=1))
    return Nearest(np.concatenate(found_rows), np.concatenate(found))


def _smallest(distances: Array, top: int) -> Array:
    """Positions of the smallest values, the earlier one first among equals."""
    if top >= distances.shape[0]:
        return np.argsort(distances, kind="stable")
    limit = np.partition(distances, top - 1)[top - 1]
    near = np.flatnonzero(distances <= limit)
    return near[np.argsort(distances[near], kind="stable")[:top]]


def merged(one: Nearest, other: Nearest, top: int) -> Nearest:
    """The best of both."""
    rows = np.concatenate([one.rows, other.rows], axis=1)
    distances = np.concatenate([one.distances, other.distances], axis=1)
    order = np.stack([np.lexsort((r, d))[:top] for r, d in zip(rows, distances, strict=True)])
    return Nearest(np.take_along_axis(rows, order, 1), np.take_along_axis(distances, order, 1))
