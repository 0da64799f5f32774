"""8-bit codes of vectors, and exact counts and candidates by them: most rows are too far by their codes alone.

A number x has the code c nearest to y = (x − low) / scale, from 0 to 255. With e = Σ|y − c| of a row, all of its
dimensions together, the distance of a query to the row is at least scale · (Σ|query − c| − e): the triangle inequality.
Numbers outside of the range count in e, so that outliers cost themselves and nobody else. Rows that are left are
compared by their vectors, in the order of `ranks`: results are those of scoring everything, ties included.

Shapes: Q queries, E rows, D dimensions, T tiles (see `byte_distances`), G groups of 8 dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.buffers import first_from
from dkge_dist.kernels.byte_distances import ERROR_BITS, rows_within
from dkge_dist.kernels.hashing import count_bits, lowest_set_bit, xxh64
from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange, subkernel
from dkge_dist.kernels.ranks import TILE, FilteredCandidates, among_candidates, count_closer, ordered_distance
from dkge_dist.kernels.vectors import distance
from dkge_dist.types import OFFSET, ROW, Array

QUERIES = 1024
"""Queries that share a tile: so many that its rows are read from memory once for most of them."""

SPAN = 2048
"""Tiles that a thread takes at a time."""

SHARES = 16
"""Shares of the tiles, for threads, where rows are listed; each has a list of its own."""

NO_ERROR_KNOWN = (1 << ERROR_BITS) - 1
ALL, NONE_BELOW = 1 << 40, -(1 << 31)
"""Limits of distances by codes: whoever is not finite is within; no row with an unknown error is beyond."""

_LOWER = np.uint64(0xFFFFFFFF)


class Grid(NamedTuple):
    """What codes stand for: `low` + `scale` · code."""

    low: float
    scale: float


SAMPLE = 1 << 13
"""Rows that the grid of a table is chosen by."""


def sample_of(rows: int) -> Array:
    """The rows that the grid of a table is chosen by, whoever holds them."""
    return np.arange(0, rows, -(-rows // SAMPLE) or 1, dtype=ROW)


RANGE = (0.002, 0.998)


def grid_of(sample_ND: Array) -> Grid:
    """A grid for vectors like these. What few numbers exceed is left out of it, so that the others are told apart."""
    finite = sample_ND[np.isfinite(sample_ND)].astype(np.float64)
    low, high = np.quantile(finite, RANGE).tolist() if finite.shape[0] else (0.0, 0.0)
    return Grid(low, (high - low) / 255 or 1.0)


def groups_of(dim: int) -> int:
    """Words that hold the codes of a row."""
    return -(-dim // 8)


def tiles_of(rows: int) -> int:
    """Tiles that hold so many rows."""
    return -(-rows // TILE)


@parallel_kernel
def _encode(values_ED, bytes_, low, scale, tiles_TGW):  # type: ignore[no-untyped-def]
    rows, dim = values_ED.shape
    groups = tiles_TGW.shape[1] - 1
    for tile in prange(tiles_TGW.shape[0]):
        for t in range(TILE):
            row = tile * TILE + t
            if row >= rows:
                for g in range(groups + 1):
                    tiles_TGW[tile, g, t] = 0
                continue
            error = 0.0
            for g in range(groups):
                word = np.uint64(0)
                for d in range(8 * g, min(dim, 8 * g + 8)):
                    place = (np.float64(values_ED[row, d]) - low) / scale
                    # Not a number: the code is 0, and the error is none either.
                    code = np.rint(min(max(place, 0.0), 255.0)) if place == place else 0.0
                    error += abs(place - code)
                    word |= np.uint64(code) << np.uint64(8 * (d - 8 * g))
                tiles_TGW[tile, g, t] = word
            # Rounded up, the rounding of the sum itself included.
            error = np.ceil(error * (1 + 1e-9) + 1e-6)
            known = np.uint64(error) if error < NO_ERROR_KNOWN else np.uint64(NO_ERROR_KNOWN)
            check = xxh64(bytes_, row * dim * 4, (row + 1) * dim * 4) & _LOWER
            tiles_TGW[tile, groups, t] = (check << np.uint64(ERROR_BITS)) | known


def encode(values_ED: Array, grid: Grid) -> Array:
    """The tiles of some rows. The upper half of a row's last word is a checksum of its vector: half of its XXH64."""
    values = as_readonly(values_ED, np.float32)
    tiles = np.empty((tiles_of(values.shape[0]), groups_of(values.shape[1]) + 1, TILE), np.uint64)
    _encode(values, values.reshape(-1).view(np.uint8), grid.low, grid.scale, tiles)
    return tiles


def checks_of(tiles_TGW: Array, rows: Array) -> Array:
    """The checksums of the vectors of some rows, in the lower half of each number."""
    found: Array = tiles_TGW[rows // TILE, -1, rows % TILE] >> np.uint64(ERROR_BITS)
    return found


class CodedQueries(NamedTuple):
    """Vectors that are asked, with a bound each, and their codes.

    A row is closer than the bound if a sum in any order is below `surely`, or its distance by codes is at most `sure`
    with its error; farther if they are above `hardly`, or `limit` without it.
    """

    query_QD: Array
    bound_Q: Array
    surely_Q: Array
    hardly_Q: Array
    codes_QG: Array
    limit_Q: Array
    sure_Q: Array


def coded(query_QD: Array, bound_Q: Array, grid: Grid) -> CodedQueries:
    """Queries that look for rows at most `bound_Q` away."""
    query, bound = as_readonly(query_QD, np.float32), as_readonly(bound_Q, np.float32)
    queries, dim = query.shape
    with np.errstate(over="ignore", invalid="ignore"):
        place = (query.astype(np.float64) - grid.low) / grid.scale
        inside = np.clip(place, 0.0, 255.0)
        code = np.rint(np.nan_to_num(inside))
        # By so much of itself may a sum of float32 differ from another one, or from what it should be.
        rounded = (dim + 2) * 2.0**-22
        surely, hardly = ((bound.astype(np.float64) * (1 + sign * rounded)).astype(np.float32) for sign in (-1, 1))
        surely[~np.isfinite(bound)] = -np.inf
        rounding, beyond = np.abs(inside - code).sum(1), np.abs(place - inside).sum(1)
        reach, inner = (bound.astype(np.float64) * (1 + sign * rounded) / grid.scale for sign in (1, -1))
        slack = 1e-9 * (reach + rounding + beyond) + 1e-6
        limit, sure = reach + rounding - beyond + slack, inner - rounding - beyond - slack
    limit = np.where(np.isfinite(limit), np.clip(np.floor(limit), NONE_BELOW, ALL), ALL).astype(np.int64)
    known = np.clip(np.ceil(sure) - 1, NONE_BELOW, NO_ERROR_KNOWN - 1)
    sure = np.where(np.isfinite(sure), known, NONE_BELOW)
    words = np.zeros((queries, 8 * groups_of(dim)), np.uint8)
    words[:, :dim] = code
    surely, hardly, limit, codes = (as_readonly(array) for array in (surely, hardly, limit, words.view(np.uint64)))
    return CodedQueries(query, bound, surely, hardly, codes, limit, as_readonly(sure, np.int64))


@subkernel
def _asked_of(candidates, at, tile):  # type: ignore[no-untyped-def]
    """A bit for each candidate, from position `at` on, in a tile; and the position after them."""
    asked = np.uint64(0)
    while at < candidates.shape[0] and candidates[at] < (tile + 1) * TILE:
        if candidates[at] >= tile * TILE:
            asked |= np.uint64(1) << np.uint64(candidates[at] - tile * TILE)
        at += 1
    return asked, at


@parallel_kernel
def _count_closer(asking, table_ED, tiles_TGW, candidates, filtered, closer_SQ, equal_SQ):  # type: ignore[no-untyped-def]
    queries = asking.query_QD.shape[0]
    blocks = (queries + QUERIES - 1) // QUERIES
    for number in prange(blocks * closer_SQ.shape[0]):
        span = number // blocks
        first, last = (number % blocks) * QUERIES, min(queries, (number % blocks + 1) * QUERIES)
        begin, end = span * SPAN, min(tiles_TGW.shape[0], (span + 1) * SPAN)
        skip_Q = np.empty(last - first, np.int64)
        for q in range(first, last):
            skip_Q[q - first] = first_from(filtered.rows, filtered.indptr[q], filtered.indptr[q + 1], begin * TILE)
            closer_SQ[span, q] = 0
            equal_SQ[span, q] = 0
        at = first_from(candidates, 0, candidates.shape[0], begin * TILE)
        for tile in range(begin, end):
            asked, at = _asked_of(candidates, at, tile)
            if asked == 0:
                continue
            for q in range(first, last):
                near, sure = rows_within(tiles_TGW, tile, asking.codes_QG, q, asking.limit_Q[q], asking.sure_Q[q])
                near &= asked
                if near == 0:
                    continue
                skipped, skip_Q[q - first] = _asked_of(filtered.rows[: filtered.indptr[q + 1]], skip_Q[q - first], tile)
                near &= ~skipped
                closer_SQ[span, q] += count_bits(near & sure)
                near &= ~sure
                while near != 0:
                    row, near = tile * TILE + lowest_set_bit(near), near & (near - np.uint64(1))
                    about = distance(asking.query_QD[q], table_ED[row])
                    closer_SQ[span, q] += about < asking.surely_Q[q]
                    if not (about < asking.surely_Q[q] or about > asking.hardly_Q[q]):
                        exactly = ordered_distance(asking.query_QD[q], table_ED[row])
                        closer_SQ[span, q] += exactly < asking.bound_Q[q]
                        equal_SQ[span, q] += exactly == asking.bound_Q[q]


def count_closer_by_codes(
    asking: CodedQueries, table_ED: Array, tiles_TGW: Array, candidates: Array, filtered: FilteredCandidates
) -> tuple[Array, Array]:
    """As `ranks.count_closer`, of a table and its codes."""
    spans = -(-tiles_TGW.shape[0] // SPAN)
    closer, equal = (np.empty((spans, asking.bound_Q.shape[0]), OFFSET) for _ in range(2))
    skipped = FilteredCandidates(as_readonly(filtered.indptr), as_readonly(filtered.rows))
    table, tiles = as_readonly(table_ED, np.float32), as_readonly(tiles_TGW)
    _count_closer(asking, table, tiles, as_readonly(candidates, ROW), skipped, closer, equal)
    return closer.sum(0), equal.sum(0)


PAYS = 600
"""Queries that codes save as much time in as it takes to encode a row for them alone."""


def count_closer_of_many(
    query_QD: Array, bound_Q: Array, table_ED: Array, candidates: Array, filtered: FilteredCandidates
) -> tuple[Array, Array]:
    """As `ranks.count_closer`, of a table without codes: with codes made for these queries, if there are enough."""
    if query_QD.shape[0] < PAYS:
        return count_closer(query_QD, bound_Q, table_ED, candidates, filtered)
    if 2 * candidates.shape[0] < table_ED.shape[0]:
        # Tiles are read whole: few candidates among many rows come closer together first.
        filtered = among_candidates(filtered, candidates)
        table_ED, candidates = table_ED[candidates], np.arange(candidates.shape[0], dtype=ROW)
    grid = grid_of(table_ED[sample_of(table_ED.shape[0])])
    return count_closer_by_codes(coded(query_QD, bound_Q, grid), table_ED, encode(table_ED, grid), candidates, filtered)


@parallel_kernel
def _list_near(codes_QG, limit_Q, tiles_TGW, first_tile, candidates, rows_QN, counts_SQ):  # type: ignore[no-untyped-def]
    spans, tiles = counts_SQ.shape[0], tiles_TGW.shape[0]
    for span in prange(spans):
        begin, end = span * tiles // spans, (span + 1) * tiles // spans
        for q in range(codes_QG.shape[0]):
            counts_SQ[span, q] = 0
        first = first_from(candidates, 0, candidates.shape[0], (first_tile + begin) * TILE)
        at = first
        for tile in range(begin, end):
            asked, at = _asked_of(candidates, at, first_tile + tile)
            if asked == 0:
                continue
            for q in range(codes_QG.shape[0]):
                near, _ = rows_within(tiles_TGW, tile, codes_QG, q, limit_Q[q], 0)
                near &= asked
                if near == 0:
                    continue
                while near != 0:
                    rows_QN[q, first + counts_SQ[span, q]] = (first_tile + tile) * TILE + lowest_set_bit(near)
                    near &= near - np.uint64(1)
                    counts_SQ[span, q] += 1


def list_near(asking: CodedQueries, tiles_TGW: Array, first_tile: int, candidates: Array) -> list[list[Array]]:
    """Of each query the candidates (ascending rows) in some tiles that may be within its bound: ascending lists.

    `first_tile` is the number of the first of these tiles. A list of every query has one after the other.
    """
    queries, tiles = asking.limit_Q.shape[0], tiles_TGW.shape[0]
    # Memory that nobody writes to is none.
    rows, counts = np.empty((queries, candidates.shape[0]), ROW), np.empty((SHARES, queries), OFFSET)
    _list_near(
        asking.codes_QG, asking.limit_Q, as_readonly(tiles_TGW), first_tile, as_readonly(candidates, ROW), rows, counts
    )
    firsts = (first_tile + np.arange(SHARES) * tiles // SHARES) * TILE
    starts = np.searchsorted(candidates, firsts.astype(candidates.dtype)).tolist()
    return [
        [line[start : start + count] for start, count in zip(starts, counts[:, q].tolist(), strict=True) if count]
        for q, line in enumerate(rows)
    ]
