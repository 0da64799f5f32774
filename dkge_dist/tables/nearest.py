"""The rows nearest to a query, by L1 distance. In: vectors and candidate rows. Out: the best rows, best first. Exact.

Shapes: Q queries, N rows, D dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.ranks import distances_to_all
from dkge_dist.types import OFFSET, Array

QUERIES_AT_ONCE = 256
ROWS_AT_ONCE = 1 << 14
"""Rows whose distances to all queries are held at a time; bounds memory."""


class Nearest(NamedTuple):
    """The best rows of each query, best first, and their distances."""

    rows: Array
    distances: Array


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
