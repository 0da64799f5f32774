"""Ranks without sorting: count the entities that are closer than the true one, giving a row up as soon as it is not.

Shapes: Q queries, E rows of the table, D dimensions. A few queries share each tile of rows, so that a table of any size
is read from memory once for many of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.csr import Adjacency, entry, locate
from dkge_dist.kernels.jit import fast_parallel_kernel, frozen, kernel, prange, subkernel
from dkge_dist.types import OFFSET, ROW, Array

STRIDE = 16
"""Dimensions added up between two looks at the bound."""

QUERIES, TILE = 32, 64
"""Queries that share a tile, and rows of a tile: both stay in the first-level cache."""


class Skips(NamedTuple):
    """Rows that each query leaves out: `rows[indptr[q]:indptr[q + 1]]`, ascending."""

    indptr: Array
    rows: Array


@subkernel
def _distance(query_QD, q, table_ED, row, bound):  # type: ignore[no-untyped-def]
    """‖query − row‖₁, or any number over `bound` once it is certain to be over."""
    dim = query_QD.shape[1]
    total = np.float32(0)
    begin = 0
    while begin + STRIDE <= dim and total <= bound:
        for d in range(STRIDE):
            total += abs(query_QD[q, begin + d] - table_ED[row, begin + d])
        begin += STRIDE
    if total <= bound:
        for d in range(begin, dim):
            total += abs(query_QD[q, d] - table_ED[row, d])
    return total


@fast_parallel_kernel
def _count_closer(query_QD, bound_Q, table_ED, candidates, skips, closer_Q, equal_Q):  # type: ignore[no-untyped-def]
    blocks = (query_QD.shape[0] + QUERIES - 1) // QUERIES
    for block in prange(blocks):
        first, last = block * QUERIES, min(query_QD.shape[0], (block + 1) * QUERIES)
        left_out = skips.indptr[first:last].copy()
        for q in range(first, last):
            closer_Q[q] = 0
            equal_Q[q] = 0
        for tile in range(0, candidates.shape[0], TILE):
            for q in range(first, last):
                skip = left_out[q - first]
                for c in range(tile, min(candidates.shape[0], tile + TILE)):
                    row = candidates[c]
                    while skip < skips.indptr[q + 1] and skips.rows[skip] < row:
                        skip += 1
                    if skip < skips.indptr[q + 1] and skips.rows[skip] == row:
                        continue
                    total = _distance(query_QD, q, table_ED, row, bound_Q[q])
                    closer_Q[q] += total < bound_Q[q]
                    equal_Q[q] += total == bound_Q[q]
                left_out[q - first] = skip


def count_closer(
    query_QD: Array, bound_Q: Array, table_ED: Array, candidates: Array, skips: Skips
) -> tuple[Array, Array]:
    """How many `candidates` (ascending rows) are closer to each query than its bound, and how many just as close."""
    closer, equal = np.empty(query_QD.shape[0], OFFSET), np.empty(query_QD.shape[0], OFFSET)
    query, bound, table = (frozen(array, np.float32) for array in (query_QD, bound_Q, table_ED))
    left_out = Skips(frozen(skips.indptr), frozen(skips.rows))
    _count_closer(query, bound, table, frozen(candidates, ROW), left_out, closer, equal)
    return closer, equal


@fast_parallel_kernel
def _distances_to(query_QD, table_ED, rows, out_Q):  # type: ignore[no-untyped-def]
    for q in prange(query_QD.shape[0]):
        out_Q[q] = _distance(query_QD, q, table_ED, rows[q], np.float32(np.inf))


def distances_to(query_QD: Array, table_ED: Array, rows: Array) -> Array:
    """The distance of each query to one row, added up in the same order as `count_closer` does: ties are exact."""
    out = np.empty(query_QD.shape[0], np.float32)
    _distances_to(frozen(query_QD, np.float32), frozen(table_ED, np.float32), frozen(rows, ROW), out)
    return out


@kernel
def _known(adjacency, anchors, relations, true, indptr, rows):  # type: ignore[no-untyped-def]
    """Count (or, with `rows` given, list) the answers that `adjacency` knows to each (anchor, relation), and `true`."""
    for q in range(anchors.shape[0]):
        patched, begin, end = locate(adjacency, anchors[q])
        count = 0
        placed = False
        for k in range(begin, end):
            code = entry(adjacency, patched, k)
            if code & 0xFFFFFFFF != relations[q]:
                continue
            answer = code >> 32
            if not placed and answer >= true[q]:
                placed = True
                if answer != true[q]:
                    if rows.shape[0]:
                        rows[indptr[q] + count] = true[q]
                    count += 1
            if rows.shape[0]:
                rows[indptr[q] + count] = answer
            count += 1
        if not placed:
            if rows.shape[0]:
                rows[indptr[q] + count] = true[q]
            count += 1
        if not rows.shape[0]:
            indptr[q + 1] = count


def known_answers(adjacency: Adjacency, anchors: Array, relations: Array, true: Array) -> Skips:
    """For each query: the known answers and the true one itself, which never competes with itself."""
    indptr = np.zeros(anchors.shape[0] + 1, OFFSET)
    anchors, relations, true = (frozen(column, ROW) for column in (anchors, relations, true))
    _known(adjacency, anchors, relations, true, indptr, np.empty(0, ROW))
    np.cumsum(indptr, out=indptr)
    rows = np.empty(indptr[-1], ROW)
    if rows.shape[0]:
        _known(adjacency, anchors, relations, true, indptr, rows)
    return Skips(indptr, rows)
