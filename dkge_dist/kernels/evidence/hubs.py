"""What the pairs of a hub say, counted beforehand: how many it has under a relation, and under two at once.

For an entity with few neighbours this is read off its lists when it is asked for. A hub's lists would cost too much,
so its counts are kept. A directed relation is `relation << 1 | direction`, where direction 0 leads to the hub and 1
leads away from it; a code is `directed relation << 32 | other directed relation`, and twice the same one counts pairs
under one relation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.buffers import append
from dkge_dist.kernels.csr import Adjacency, entry, locate
from dkge_dist.kernels.evidence.counts import joint_count
from dkge_dist.kernels.jit import as_readonly, kernel, subkernel
from dkge_dist.types import MAX_ROWS, ROW, Array


class HubCounts(NamedTuple):
    """Hub `rows[i]` (ascending) has the codes `codes[indptr[i]:indptr[i + 1]]`, sorted, each of `counts` pairs."""

    rows: Array
    indptr: Array
    codes: Array
    counts: Array


@subkernel
def _joining(out, into, ends, relations):  # type: ignore[no-untyped-def]
    """The directed relations that join a hub and its next neighbour; (relations, how many, the places after them)."""
    (out_patched, i, out_end), (in_patched, j, in_end) = ends
    ahead = entry(out, out_patched, i) >> 32 if i < out_end else np.int64(MAX_ROWS)
    behind = entry(into, in_patched, j) >> 32 if j < in_end else np.int64(MAX_ROWS)
    neighbour, count = min(ahead, behind), 0
    while j < in_end and entry(into, in_patched, j) >> 32 == neighbour:
        relations = append(relations, count, (entry(into, in_patched, j) & 0xFFFFFFFF) << 1)
        count, j = count + 1, j + 1
    while i < out_end and entry(out, out_patched, i) >> 32 == neighbour:
        relations = append(relations, count, ((entry(out, out_patched, i) & 0xFFFFFFFF) << 1) | 1)
        count, i = count + 1, i + 1
    return neighbour, relations, count, ((out_patched, i, out_end), (in_patched, j, in_end))


@kernel
def _count_hubs(out, into, rows):  # type: ignore[no-untyped-def]
    indptr, total = np.zeros(rows.shape[0] + 1, np.int64), 0
    codes, counts = np.empty(256, np.int64), np.empty(256, np.int64)
    relations = np.empty(16, np.int64)
    for h in range(rows.shape[0]):
        pairs, size = np.empty(256, np.int64), 0
        ends = locate(out, rows[h]), locate(into, rows[h])
        while ends[0][1] < ends[0][2] or ends[1][1] < ends[1][2]:
            neighbour, relations, count, ends = _joining(out, into, ends, relations)
            if neighbour == rows[h]:
                continue
            for i in range(count):
                for j in range(count):
                    pairs = append(pairs, size, (relations[i] << 32) | relations[j])
                    size += 1
        pairs[:size].sort()
        for k in range(size):
            if k == 0 or pairs[k] != pairs[k - 1]:
                codes, counts = append(codes, total, pairs[k]), append(counts, total, 0)
                total += 1
            counts[total - 1] += 1
        indptr[h + 1] = total
    return indptr, codes[:total].copy(), counts[:total].copy()


def count_hubs(out: Adjacency, into: Adjacency, rows: Array) -> HubCounts:
    """The counts of `rows` (ascending)."""
    return HubCounts(rows, *_count_hubs(out, into, as_readonly(rows, ROW)))


@subkernel
def hub_place(hubs, row):  # type: ignore[no-untyped-def]
    """Which hub a row is; -1 if it is none."""
    at = np.searchsorted(hubs.rows, row)
    return at if at < hubs.rows.shape[0] and hubs.rows[at] == row else -1


@subkernel
def hub_count(hubs, place, one, other):  # type: ignore[no-untyped-def]
    """How many pairs of a hub both directed relations join."""
    begin, end = hubs.indptr[place], hubs.indptr[place + 1]
    return joint_count(hubs.codes[begin:end], hubs.counts[begin:end], (np.int64(one) << 32) | np.int64(other))
