"""How often two relations join the same pair of entities, in the same or in opposite directions.

Counted over ordered pairs of different entities. One number is (asked relation, other relation, direction): it counts
the pairs (x, y) with (x, asked, y) and (x, other, y), or for the opposite direction (y, other, x). Few different ones
occur over millions of pairs, so they are added up in a small table while the pairs are walked over.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.buffers import append
from dkge_dist.kernels.csr import Adjacency, entries_to, entry, locate, lower_bound
from dkge_dist.kernels.hashing import avalanche
from dkge_dist.kernels.jit import as_readonly, kernel, subkernel
from dkge_dist.types import MAX_ROWS, ROW, Array

SAME, OPPOSITE = 0, 1
"""The direction of another relation, as the pair is asked about."""


@subkernel
def joint_code(asked, other, direction):  # type: ignore[no-untyped-def]
    """One sortable code of (asked relation, other relation, direction)."""
    return (np.int64(asked) << 33) | (np.int64(other) << 1) | direction


def split_joint_codes(codes: Array) -> tuple[Array, Array, Array]:
    """(asked relation, other relation, direction) of some codes."""
    return codes >> 33, (codes >> 1) & 0xFFFFFFFF, codes & 1


@subkernel
def _slot(codes, code):  # type: ignore[no-untyped-def]
    mask = np.uint64(codes.shape[0] - 1)
    at = avalanche(np.uint64(code)) & mask
    while codes[at] >= 0 and codes[at] != code:
        at = (at + np.uint64(1)) & mask
    return at


@subkernel
def _grown(codes, counts):  # type: ignore[no-untyped-def]
    bigger, sums = np.full(2 * codes.shape[0], -1, np.int64), np.zeros(2 * codes.shape[0], np.int64)
    for i in range(codes.shape[0]):
        if codes[i] >= 0:
            at = _slot(bigger, codes[i])
            bigger[at], sums[at] = codes[i], counts[i]
    return bigger, sums


@kernel
def _joined_twice(out, into, first_row, last_row):  # type: ignore[no-untyped-def]
    left, right, count = np.empty(256, np.int32), np.empty(256, np.int32), 0
    for row in range(first_row, last_row):
        out_patched, i, out_end = locate(out, row)
        in_patched, j, in_end = locate(into, row)
        i = lower_bound(out, out_patched, i, out_end, np.int64(row + 1) << 32)
        j = lower_bound(into, in_patched, j, in_end, np.int64(row + 1) << 32)
        while i < out_end or j < in_end:
            ahead = entry(out, out_patched, i) >> 32 if i < out_end else MAX_ROWS
            behind = entry(into, in_patched, j) >> 32 if j < in_end else MAX_ROWS
            neighbour, triples = min(ahead, behind), 0
            while i < out_end and entry(out, out_patched, i) >> 32 == neighbour:
                i += 1
                triples += 1
            while j < in_end and entry(into, in_patched, j) >> 32 == neighbour:
                j += 1
                triples += 1
            if triples > 1:
                left, right = append(left, count, row), append(right, count, neighbour)
                count += 1
    return left[:count].copy(), right[:count].copy()


def joined_twice(out: Adjacency, into: Adjacency, first_row: int, last_row: int) -> tuple[Array, Array]:
    """The pairs (left < right) that several triples join, in either direction, for left in a run of rows."""
    return _joined_twice(out, into, first_row, last_row)  # type: ignore[no-any-return]


@kernel
def _count_joint(out, left, right):  # type: ignore[no-untyped-def]
    codes, counts, used = np.full(1024, -1, np.int64), np.zeros(1024, np.int64), 0
    for p in range(left.shape[0]):
        for x, y in ((left[p], right[p]), (right[p], left[p])):
            ahead, first, last = entries_to(out, x, y)
            behind, back_first, back_last = entries_to(out, y, x)
            for i in range(first, last):
                asked = entry(out, ahead, i) & 0xFFFFFFFF
                for k in range((last - first) + (back_last - back_first)):
                    if k == i - first:
                        continue
                    if k < last - first:
                        code = joint_code(asked, entry(out, ahead, first + k) & 0xFFFFFFFF, SAME)
                    else:
                        other = entry(out, behind, back_first + k - (last - first)) & 0xFFFFFFFF
                        code = joint_code(asked, other, OPPOSITE)
                    at = _slot(codes, code)
                    if codes[at] < 0:
                        codes[at] = code
                        used += 1
                    counts[at] += 1
                    if 2 * used > codes.shape[0]:
                        codes, counts = _grown(codes, counts)
    return codes, counts


def count_joint(out: Adjacency, left: Array, right: Array) -> tuple[Array, Array]:
    """(codes, counts), sorted by code, over unordered pairs of different entities, each counted in both orders."""
    codes, counts = _count_joint(out, as_readonly(left, ROW), as_readonly(right, ROW))
    found = np.flatnonzero(codes >= 0)
    found = found[np.argsort(codes[found])]
    return codes[found], counts[found]


@subkernel
def joint_count(codes, counts, code):  # type: ignore[no-untyped-def]
    """The count of one code in a sorted table, 0 where it does not stand there."""
    at = np.searchsorted(codes, code)
    if at < codes.shape[0] and codes[at] == code:
        return counts[at]
    return np.int64(0)
