"""Intersections of neighbour lists, rows within a few steps of a changed edge, and triples of given entities.

Where two lists differ much in length, the cost follows the shorter one: an edge of a hub costs what its other end does.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.buffers import append, sort_distinct
from dkge_dist.kernels.csr import Adjacency, entry, list_sizes, locate, lower_bound
from dkge_dist.kernels.hashing import combine
from dkge_dist.kernels.jit import as_readonly, kernel, subkernel
from dkge_dist.types import OFFSET, ROW, Array, Triples

SEARCH_FACTOR = 16
"""A list this many times longer than the other is searched instead of scanned."""


@kernel
def _common(one, ones, other, others, shift):  # type: ignore[no-untyped-def]
    which, found = np.empty(256, np.int64), np.empty(256, np.int32)
    count = 0
    for p in range(ones.shape[0]):
        a_patched, a, a_end = locate(one, ones[p])
        b_patched, b, b_end = locate(other, others[p])
        search_a = a_end - a > SEARCH_FACTOR * (b_end - b)
        search_b = b_end - b > SEARCH_FACTOR * (a_end - a)
        last = np.int64(-1)
        while a < a_end and b < b_end:
            x, y = np.int64(entry(one, a_patched, a)) >> shift, np.int64(entry(other, b_patched, b)) >> shift
            if x < y:
                a = lower_bound(one, a_patched, a, a_end, y << shift) if search_a else a + 1
            elif y < x:
                b = lower_bound(other, b_patched, b, b_end, x << shift) if search_b else b + 1
            else:
                if x != last:
                    which, found = append(which, count, p), append(found, count, x)
                    count += 1
                last = x
                a += 1
                b += 1
    return which[:count].copy(), found[:count].copy()


def common_neighbours(one: Adjacency, ones: Array, other: Adjacency, others: Array) -> tuple[Array, Array]:
    """(p, neighbour) for every neighbour that row ones[p] of `one` and row others[p] of `other` have in common."""
    shift = 32 if one.entries.dtype == np.int64 else 0
    return _common(one, as_readonly(ones, ROW), other, as_readonly(others, ROW), shift)  # type: ignore[no-any-return]


@subkernel
def _step(adjacency, rows, count, shift, buffer):  # type: ignore[no-untyped-def]
    """The distinct neighbours of `rows[:count]`, sorted; (buffer, their number)."""
    found = 0
    for i in range(count):
        patched, begin, end = locate(adjacency, rows[i])
        for k in range(begin, end):
            buffer = append(buffer, found, np.int64(entry(adjacency, patched, k)) >> shift)
            found += 1
    return buffer, sort_distinct(buffer, found)


@kernel
def _longer_walk_pairs(out, into, head, tail, length):  # type: ignore[no-untyped-def]
    pairs = np.empty(256, np.int64)
    total = 0
    for p in range(head.shape[0]):
        starts, start_count = np.full(64, np.int64(head[p])), 1
        for back in range(length):
            ends, end_count = np.full(64, np.int64(tail[p])), 1
            for ahead in range(length - back):
                if back + ahead >= 2:
                    for i in range(start_count):
                        patched, at, end = locate(out, starts[i])
                        for j in range(end_count):
                            at = lower_bound(out, patched, at, end, ends[j] << 32)
                            if at < end and entry(out, patched, at) >> 32 == ends[j]:
                                pairs = append(pairs, total, (starts[i] << 32) | ends[j])
                                total += 1
                if ahead + 1 < length - back:
                    ends, end_count = _step(out, ends, end_count, 32, np.empty(64, np.int64))
            if back + 1 < length:
                starts, start_count = _step(into, starts, start_count, 32, np.empty(64, np.int64))
    return pairs[:total].copy()


def longer_walk_pairs(out: Adjacency, into: Adjacency, head: Array, tail: Array, length: int) -> Array:
    """Evidence pairs, packed, at the ends of walks of 3 to `length` steps over one of the triples (head, ., tail).

    Enumerates every walk: for studies of long paths, not for graphs with large hubs.
    """
    return _longer_walk_pairs(out, into, as_readonly(head, ROW), as_readonly(tail, ROW), length)  # type: ignore[no-any-return]


@subkernel
def _ball(adjacency, row, radius, buffer):  # type: ignore[no-untyped-def]
    """The distinct rows within `radius` steps of `row`, sorted; (buffer, their number)."""
    buffer[0] = row
    count = 1
    for _ in range(radius):
        step, found = _step(adjacency, buffer, count, 0, np.empty(64, np.int64))
        for i in range(found):
            buffer = append(buffer, count + i, step[i])
        count = sort_distinct(buffer, count + found)
    return buffer, count


@kernel
def _near_both(adjacency, left, right, hops):  # type: ignore[no-untyped-def]
    near = np.empty(256, np.int64)
    total = 0
    for p in range(left.shape[0]):
        for end in (left[p], right[p]):
            ball, count = _ball(adjacency, end, hops - 1, np.empty(64, np.int64))
            for i in range(count):
                near = append(near, total, ball[i])
                total += 1
        one, ones = _ball(adjacency, left[p], hops, np.empty(64, np.int64))
        other, others = _ball(adjacency, right[p], hops, np.empty(64, np.int64))
        j = 0
        for i in range(ones):
            while j < others and other[j] < one[i]:
                j += 1
            if j < others and other[j] == one[i]:
                near = append(near, total, one[i])
                total += 1
        total = sort_distinct(near, total)
    return near[:total].astype(np.int32)


def near_both(neighbours: Adjacency, left: Array, right: Array, hops: int) -> Array:
    """Rows within `hops` - 1 of an end of one of the edges, or within `hops` of both its ends."""
    return _near_both(neighbours, as_readonly(left, ROW), as_readonly(right, ROW), hops)  # type: ignore[no-any-return]


@kernel
def _fill(outgoing, incoming, rows, seed, indptr, head, relation, tail):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out_patched, out_begin, out_end = locate(outgoing, rows[i])
        in_patched, in_begin, in_end = locate(incoming, rows[i])
        total = (out_end - out_begin) + (in_end - in_begin)
        wanted = indptr[i + 1] - indptr[i]
        # A random start and an even stride: every triple has the same probability, none is taken twice.
        first = np.int64(combine(seed, np.uint64(rows[i])) % np.uint64(max(total, 1)))
        for k in range(wanted):
            position = (first + (k * total) // wanted) % total
            at = indptr[i] + k
            if position < out_end - out_begin:
                code = entry(outgoing, out_patched, out_begin + position)
                head[at], tail[at] = rows[i], code >> 32
            else:
                code = entry(incoming, in_patched, in_begin + position - (out_end - out_begin))
                head[at], tail[at] = code >> 32, rows[i]
            relation[at] = code & 0xFFFFFFFF


def triples_of(outgoing: Adjacency, incoming: Adjacency, rows: Array, limit: int, seed: int) -> Triples:
    """The triples of each of `rows`, sampled where they are more than `limit`, at a cost that follows the sample.

    A triple of two of the rows may be in the result twice.
    """
    indptr = np.zeros(rows.shape[0] + 1, OFFSET)
    rows = as_readonly(rows, ROW)
    np.cumsum(np.minimum(list_sizes(outgoing, rows) + list_sizes(incoming, rows), limit), out=indptr[1:])
    columns = Triples(*(np.empty(indptr[-1], ROW) for _ in range(3)))
    _fill(outgoing, incoming, rows, np.uint64(seed), as_readonly(indptr), *columns)
    return columns
