"""Ranks without sorting: count the entities that are closer than the true one, abandoning those that cannot be.

Rows are taken in transposed tiles, so that a vector unit adds one dimension of many rows at once. A tile is abandoned
when all of its rows are too far. Many queries share each tile, so that a table of any size is read from memory once for
all of them.

Shapes: Q queries, E rows of the table, D dimensions, T rows of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.csr import Adjacency, entry, locate
from dkge_dist.kernels.jit import as_readonly, inlined, kernel, parallel_kernel, prange, subkernel
from dkge_dist.kernels.sets import among, distinct
from dkge_dist.types import OFFSET, ROW, Array

STRIDE = 20
"""Dimensions added between two comparisons with the bound; a multiple of the four that are added at once."""

QUERIES, TILE = 64, 64
"""Queries that share a tile, and rows of a tile."""


class FilteredCandidates(NamedTuple):
    """Candidates removed from each query: `rows[indptr[q]:indptr[q + 1]]`, ascending."""

    indptr: Array
    rows: Array


@subkernel
def _load_tile(table_ED, candidates, first, tile_DT):  # type: ignore[no-untyped-def]
    """Load the candidates from `first` on, transposed; columns beyond the last candidate are infinitely far."""
    for t in range(TILE):
        if first + t < candidates.shape[0]:
            row = candidates[first + t]
            for d in range(tile_DT.shape[0]):
                tile_DT[d, t] = table_ED[row, d]
        else:
            for d in range(tile_DT.shape[0]):
                tile_DT[d, t] = np.inf


@subkernel
def _tile_distances(query_D, tile_DT, bound, total_T):  # type: ignore[no-untyped-def]
    """Distances of a query to the rows of a tile; False as soon as all exceed `bound`, with the sums unfinished."""
    dim = query_D.shape[0]
    for t in range(TILE):
        total_T[t] = 0
    for begin in range(0, dim, STRIDE):
        d = begin
        while d + 4 <= min(dim, begin + STRIDE):
            a, b, c, e = query_D[d], query_D[d + 1], query_D[d + 2], query_D[d + 3]
            for t in range(TILE):
                total = total_T[t] + abs(a - tile_DT[d, t])
                total += abs(b - tile_DT[d + 1, t])
                total += abs(c - tile_DT[d + 2, t])
                total_T[t] = total + abs(e - tile_DT[d + 3, t])
            d += 4
        while d < min(dim, begin + STRIDE):
            for t in range(TILE):
                total_T[t] += abs(query_D[d] - tile_DT[d, t])
            d += 1
        near = 0
        for t in range(TILE):
            near += total_T[t] <= bound
        if near == 0:
            return False
    return True


@parallel_kernel
def _count_closer(query_QD, bound_Q, table_ED, candidates, filtered, closer_Q, equal_Q):  # type: ignore[no-untyped-def]
    blocks = (query_QD.shape[0] + QUERIES - 1) // QUERIES
    for block in prange(blocks):
        first, last = block * QUERIES, min(query_QD.shape[0], (block + 1) * QUERIES)
        next_filtered = filtered.indptr[first:last].copy()
        tile_DT = np.empty((query_QD.shape[1], TILE), np.float32)
        total_T = np.empty(TILE, np.float32)
        for q in range(first, last):
            closer_Q[q] = 0
            equal_Q[q] = 0
        for begin in range(0, candidates.shape[0], TILE):
            _load_tile(table_ED, candidates, begin, tile_DT)
            end = min(candidates.shape[0], begin + TILE)
            for q in range(first, last):
                bound = bound_Q[q]
                if not _tile_distances(query_QD[q], tile_DT, bound, total_T):
                    continue
                skip = next_filtered[q - first]
                for c in range(begin, end):
                    while skip < filtered.indptr[q + 1] and filtered.rows[skip] < candidates[c]:
                        skip += 1
                    if skip < filtered.indptr[q + 1] and filtered.rows[skip] == candidates[c]:
                        continue
                    closer_Q[q] += total_T[c - begin] < bound
                    equal_Q[q] += total_T[c - begin] == bound
                next_filtered[q - first] = skip


def count_closer(
    query_QD: Array, bound_Q: Array, table_ED: Array, candidates: Array, filtered: FilteredCandidates
) -> tuple[Array, Array]:
    """How many `candidates` (ascending rows) are closer to each query than its bound, and how many just as close."""
    closer, equal = np.empty(query_QD.shape[0], OFFSET), np.empty(query_QD.shape[0], OFFSET)
    query, bound, table = (as_readonly(array, np.float32) for array in (query_QD, bound_Q, table_ED))
    skipped = FilteredCandidates(as_readonly(filtered.indptr), as_readonly(filtered.rows))
    _count_closer(query, bound, table, as_readonly(candidates, ROW), skipped, closer, equal)
    return closer, equal


@parallel_kernel
def _distances_to_all(query_QD, table_ED, candidates, out_QN):  # type: ignore[no-untyped-def]
    tiles = (candidates.shape[0] + TILE - 1) // TILE
    for number in prange(tiles):
        begin, end = number * TILE, min(candidates.shape[0], (number + 1) * TILE)
        tile_DT = np.empty((query_QD.shape[1], TILE), np.float32)
        total_T = np.empty(TILE, np.float32)
        _load_tile(table_ED, candidates, begin, tile_DT)
        for q in range(query_QD.shape[0]):
            _tile_distances(query_QD[q], tile_DT, np.inf, total_T)
            for c in range(begin, end):
                out_QN[q, c] = total_T[c - begin]


def distances_to_all(query_QD: Array, table_ED: Array, candidates: Array) -> Array:
    """The distances of all queries to all candidates (rows), summed in the order of `count_closer`."""
    out = np.empty((query_QD.shape[0], candidates.shape[0]), np.float32)
    query, table = as_readonly(query_QD, np.float32), as_readonly(table_ED, np.float32)
    _distances_to_all(query, table, as_readonly(candidates, ROW), out)
    return out


def distances_between(query_QD: Array, true_QD: Array) -> Array:
    """The distance of each query to its true row, summed in the order of `count_closer`, so that ties are exact."""
    count = query_QD.shape[0]
    return distances_to_rows(query_QD, true_QD, np.arange(count + 1), np.arange(count))


@inlined
def ordered_distance(query_D, row_D):  # type: ignore[no-untyped-def]
    """‖query − row‖₁, added in the order of `count_closer`."""
    total = np.float32(0)
    for d in range(query_D.shape[0]):
        total += abs(query_D[d] - row_D[d])
    return total


@parallel_kernel
def _distances_to_rows(query_QD, table_ED, indptr, rows, out):  # type: ignore[no-untyped-def]
    for q in prange(query_QD.shape[0]):
        for k in range(indptr[q], indptr[q + 1]):
            out[k] = ordered_distance(query_QD[q], table_ED[rows[k]])


def distances_to_rows(query_QD: Array, table_ED: Array, indptr: Array, rows: Array) -> Array:
    """The distances of query q to `rows[indptr[q]:indptr[q + 1]]`, summed in the order of `count_closer`."""
    out = np.empty(rows.shape[0], np.float32)
    query, table = as_readonly(query_QD, np.float32), as_readonly(table_ED, np.float32)
    _distances_to_rows(query, table, as_readonly(indptr, OFFSET), as_readonly(rows, ROW), out)
    return out


@subkernel
def _merge_one(rows, at, value, true, placed):  # type: ignore[no-untyped-def]
    """Write the next of ascending values, and `true` before it if it is due; (where to go on, is `true` there now?)."""
    if not placed and value >= true:
        placed = True
        if value != true:
            if rows.shape[0]:
                rows[at] = true
            at += 1
    if rows.shape[0]:
        rows[at] = value
    return at + 1, placed


@subkernel
def _merge_last(rows, at, true, placed):  # type: ignore[no-untyped-def]
    """Write `true` at the end if it has not been written; where to go on."""
    if placed:
        return at
    if rows.shape[0]:
        rows[at] = true
    return at + 1


@kernel
def _known(adjacency, asked, indptr, rows):  # type: ignore[no-untyped-def]
    """Count (or, with `rows` given, list) the known answers to each (anchor, relation), `true` included."""
    anchors, relations, true = asked
    for q in range(anchors.shape[0]):
        patched, begin, end = locate(adjacency, anchors[q])
        at, placed = indptr[q], False
        for k in range(begin, end):
            code = entry(adjacency, patched, k)
            if code & 0xFFFFFFFF == relations[q]:
                at, placed = _merge_one(rows, at, code >> 32, true[q], placed)
        at = _merge_last(rows, at, true[q], placed)
        indptr[q + 1] = at


def _readonly(*columns: Array) -> tuple[Array, ...]:
    return tuple(as_readonly(column, ROW) for column in columns)


def answer_counts(adjacency: Adjacency, anchors: Array, relations: Array, true: Array) -> Array:
    """How many rows `known_answers` would list for each query."""
    indptr = np.zeros(anchors.shape[0] + 1, OFFSET)
    asked = _readonly(anchors, relations, true)
    _known(adjacency, asked, indptr, np.empty(0, ROW))
    return np.diff(indptr)


def known_answers(adjacency: Adjacency, anchors: Array, relations: Array, true: Array) -> FilteredCandidates:
    """For each query: its known answers and the true one, none of which competes with the true one."""
    asked = _readonly(anchors, relations, true)
    indptr = np.zeros(anchors.shape[0] + 1, OFFSET)
    _known(adjacency, asked, indptr, np.empty(0, ROW))
    rows = np.empty(indptr[-1], ROW)
    if rows.shape[0]:
        _known(adjacency, asked, indptr, rows)
    return FilteredCandidates(indptr, rows)


def among_candidates(filtered: FilteredCandidates, candidates: Array) -> FilteredCandidates:
    """The same rows as places in ascending candidates, without those that are none."""
    here = np.flatnonzero(among(candidates, filtered.rows))
    places = np.searchsorted(candidates, filtered.rows[here]).astype(ROW)
    return FilteredCandidates(np.searchsorted(here, filtered.indptr), places)


def concatenated(parts: Sequence[FilteredCandidates]) -> FilteredCandidates:
    """Of the queries of several lists, one after the other."""
    sizes = [np.zeros(1, OFFSET), *(np.diff(part.indptr) for part in parts)]
    return FilteredCandidates(
        np.cumsum(np.concatenate(sizes)), np.concatenate([np.empty(0, ROW), *(part.rows for part in parts)])
    )


@kernel
def _shared(indptr, rows, number, true, out_indptr, out):  # type: ignore[no-untyped-def]
    """Count (or, with `out` given, write) the list that each query shares, with its own true row in it."""
    for q in range(number.shape[0]):
        at, placed = out_indptr[q], true[q] < 0
        for k in range(indptr[number[q]], indptr[number[q] + 1]):
            at, placed = _merge_one(out, at, rows[k], true[q], placed)
        at = _merge_last(out, at, true[q], placed)
        out_indptr[q + 1] = at


def shared_lists(lists: FilteredCandidates, number: Array, true: Array) -> FilteredCandidates:
    """Of each query the list with its number, and its true row too, if that is not negative."""
    given = (
        as_readonly(lists.indptr, OFFSET), as_readonly(lists.rows, ROW), as_readonly(number, OFFSET),
        as_readonly(true, ROW),
    )  # fmt: skip
    indptr = np.zeros(number.shape[0] + 1, OFFSET)
    _shared(*given, indptr, np.empty(0, ROW))
    out = np.empty(indptr[-1], ROW)
    if out.shape[0]:
        _shared(*given, indptr, out)
    return FilteredCandidates(indptr, out)


def _codes(indptr: Array, rows: Array) -> Array:
    """(query, row) as one sortable number each."""
    query = np.repeat(np.arange(indptr.shape[0] - 1, dtype=np.int64), np.diff(indptr))
    return (query << 32) | rows


def positions_in(indptr: Array, rows: Array, asked_indptr: Array, asked_rows: Array) -> Array:
    """Where the asked rows of each query stand among its ascending rows; -1 where they do not."""
    here, asked = _codes(indptr, rows), _codes(asked_indptr, asked_rows)
    if not here.shape[0]:
        return np.full(asked.shape[0], -1)
    at = np.minimum(np.searchsorted(here, asked), here.shape[0] - 1)
    return np.where(here[at] == asked, at, -1)


def in_lists(filtered: FilteredCandidates, indptr: Array, rows: Array) -> Array:
    """Which of the rows `rows[indptr[q]:indptr[q + 1]]` of query q are removed from it."""
    found: Array = positions_in(*filtered, indptr, rows) >= 0
    return found


def merge_filtered(filtered: FilteredCandidates, indptr: Array, rows: Array) -> FilteredCandidates:
    """Both lists of each query in one, ascending and without repeats."""
    codes = distinct(_codes(*filtered), _codes(indptr, rows))
    starts = np.arange(indptr.shape[0], dtype=np.int64) << 32
    return FilteredCandidates(np.searchsorted(codes, starts), (codes & 0xFFFFFFFF).astype(ROW))
