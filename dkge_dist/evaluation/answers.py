"""Answers: the entities nearest to h* + r* (who is the tail?) or to t* − r* (who is the head?), block by block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.distances import l1_distances
from dkge_dist.types import OFFSET, Array

Blocks = Iterable[tuple[int, Array]]
"""A table as (first row, vectors), one run of rows after the other."""

QUERIES_AT_ONCE = 256


class Answers(NamedTuple):
    """The best rows of each query, best first, and their distances."""

    rows: Array
    distances: Array


def nearest(query_QD: Array, blocks: Blocks, alive: Array, top: int) -> Answers:
    """The `top` alive rows nearest to each query. Among equals the smaller row comes first: answers are stable."""
    queries = query_QD.shape[0]
    best = Answers(np.empty((queries, 0), OFFSET), np.empty((queries, 0), np.float32))
    for first, values in blocks:
        rows = first + np.flatnonzero(alive[first : first + values.shape[0]])
        if rows.shape[0]:
            best = merged(best, _in_block(query_QD, np.ascontiguousarray(values[rows - first]), rows, top), top)
    return best


def _in_block(query_QD: Array, values_ND: Array, rows: Array, top: int) -> Answers:
    found_rows, found = [], []
    for begin in range(0, query_QD.shape[0], QUERIES_AT_ONCE):
        some = np.ascontiguousarray(query_QD[begin : begin + QUERIES_AT_ONCE])
        distances = np.empty((some.shape[0], values_ND.shape[0]), np.float32)
        l1_distances(some, values_ND, distances)
        places = np.stack([_smallest(line, top) for line in distances])
        found_rows.append(rows[places])
        found.append(np.take_along_axis(distances, places, axis=1))
    return Answers(np.concatenate(found_rows), np.concatenate(found))


def _smallest(distances: Array, top: int) -> Array:
    """Places of the smallest values, the earlier one first among equals."""
    if top >= distances.shape[0]:
        return np.argsort(distances, kind="stable")
    limit = np.partition(distances, top - 1)[top - 1]
    near = np.flatnonzero(distances <= limit)
    return near[np.argsort(distances[near], kind="stable")[:top]]


def merged(one: Answers, other: Answers, top: int) -> Answers:
    """The best of both."""
    rows = np.concatenate([one.rows, other.rows], axis=1)
    distances = np.concatenate([one.distances, other.distances], axis=1)
    order = np.stack([np.lexsort((r, d))[:top] for r, d in zip(rows, distances, strict=True)])
    return Answers(np.take_along_axis(rows, order, 1), np.take_along_axis(distances, order, 1))
