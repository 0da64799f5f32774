"""Relation paths between entity pairs: which paths link a pair, how often two paths link the same pair.

A path of up to `length` relations is one code: relation i of it, plus one, in the i-th group of `bits` bits. Shorter
paths have smaller codes. Evidence pairs are the ordered pairs that at least one triple links directly. Walks count:
vertices may repeat, self loops included.

Millions of pairs have only a few different *sets* of paths, so sets are counted first, and only the different ones are
expanded into pairs of paths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.buffers import append, first_from, sort_distinct, sort_few
from dkge_dist.kernels.contexts import Contexts, Sampling, bottom_k_offer, join_vertices
from dkge_dist.kernels.csr import Adjacency, entry, locate, lower_bound
from dkge_dist.kernels.hashing import combine
from dkge_dist.kernels.jit import as_readonly, kernel, subkernel
from dkge_dist.kernels.walks import SEARCH_FACTOR
from dkge_dist.types import OFFSET, ROW, Array, DkgeError


class PathSets(NamedTuple):
    """Different sets of paths (`codes[indptr[i]:indptr[i + 1]]`, sorted) and how many pairs have each."""

    indptr: Array
    codes: Array
    pairs: Array


def path_bits(length: int, relations: int) -> int:
    """Number of bits of a relation in a code."""
    bits = 63 // max(2, length)
    if relations >= (1 << bits) - 1:
        raise DkgeError(
            f"context.path_length={length} allows {(1 << bits) - 2:,} relations, the graph has {relations:,}"
        )
    return bits


@subkernel
def _group_end(adjacency, patched, at, end):  # type: ignore[no-untyped-def]
    """End of the run of entries with the same neighbour as entry `at`."""
    neighbour = entry(adjacency, patched, at) >> 32
    while at < end and entry(adjacency, patched, at) >> 32 == neighbour:
        at += 1
    return at


@subkernel
def _skip_to(adjacency, patched, at, end, neighbour, search):  # type: ignore[no-untyped-def]
    """First entry from `at` on whose neighbour is not below `neighbour`."""
    if search:
        return lower_bound(adjacency, patched, at, end, np.int64(neighbour) << 32)
    while at < end and entry(adjacency, patched, at) >> 32 < neighbour:
        at += 1
    return at


@subkernel
def _relation_code(code):  # type: ignore[no-untyped-def]
    return (code & 0xFFFFFFFF) + 1


@subkernel
def _two_step(out, into, left, right, prefix, shift, bits, buffer, count):  # type: ignore[no-untyped-def]
    """Append the codes of all walks left -r1-> m -r2-> right, after `prefix`; (buffer, count)."""
    a_patched, a, a_end = locate(out, left)
    b_patched, b, b_end = locate(into, right)
    search_a = a_end - a > SEARCH_FACTOR * (b_end - b)
    search_b = b_end - b > SEARCH_FACTOR * (a_end - a)
    while a < a_end and b < b_end:
        over = entry(out, a_patched, a) >> 32
        under = entry(into, b_patched, b) >> 32
        if over < under:
            a = _skip_to(out, a_patched, a, a_end, under, search_a)
        elif under < over:
            b = _skip_to(into, b_patched, b, b_end, over, search_b)
        else:
            a_stop = _group_end(out, a_patched, a, a_end)
            b_stop = _group_end(into, b_patched, b, b_end)
            for i in range(a, a_stop):
                first = prefix | (_relation_code(entry(out, a_patched, i)) << shift)
                for j in range(b, b_stop):
                    code = first | (_relation_code(entry(into, b_patched, j)) << (shift + bits))
                    buffer = append(buffer, count, code)
                    count += 1
            a, b = a_stop, b_stop
    return buffer, count


@subkernel
def _paths(out, into, left, right, length, bits, buffer):  # type: ignore[no-untyped-def]
    """The codes of all paths from left to right, unsorted, with duplicates; (buffer, count). Needs a direct triple."""
    patched, begin, end = locate(out, left)
    at = lower_bound(out, patched, begin, end, np.int64(right) << 32)
    count = 0
    while at < end and entry(out, patched, at) >> 32 == right:
        buffer = append(buffer, count, _relation_code(entry(out, patched, at)))
        count += 1
        at += 1
    if count and length >= 2:
        buffer, count = _two_step(out, into, left, right, np.int64(0), 0, bits, buffer, count)
    if count and length >= 3:
        for i in range(begin, end):
            step = entry(out, patched, i)
            buffer, count = _two_step(out, into, step >> 32, right, _relation_code(step), bits, bits, buffer, count)
            if length >= 4:
                next_patched, next_begin, next_end = locate(out, step >> 32)
                for j in range(next_begin, next_end):
                    next_step = entry(out, next_patched, j)
                    prefix = _relation_code(step) | (_relation_code(next_step) << bits)
                    buffer, count = _two_step(out, into, next_step >> 32, right, prefix, 2 * bits, bits, buffer, count)
    return buffer, count


@subkernel
def _same_set(buffer, count, codes, begin, end):  # type: ignore[no-untyped-def]
    if end - begin != count:
        return False
    for i in range(count):
        if codes[begin + i] != buffer[i]:
            return False
    return True


@subkernel
def _set_hash(buffer, count):  # type: ignore[no-untyped-def]
    value = np.uint64(count)
    for i in range(count):
        value = combine(value, np.uint64(buffer[i]))
    return value


@subkernel
def _rehash(indptr, codes, sets, slots):  # type: ignore[no-untyped-def]
    """Fill empty `slots` with all sets so far."""
    mask = np.uint64(slots.shape[0] - 1)
    for s in range(sets):
        at = _set_hash(codes[indptr[s] : indptr[s + 1]], indptr[s + 1] - indptr[s]) & mask
        while slots[at] >= 0:
            at = (at + np.uint64(1)) & mask
        slots[at] = s


@kernel
def _count_sets(out, into, left, right, length, bits):  # type: ignore[no-untyped-def]
    buffer = np.empty(64, np.int64)
    codes, indptr, pairs = np.empty(256, np.int64), np.zeros(64, np.int64), np.zeros(64, np.int64)
    slots = np.full(256, -1, np.int64)
    sets = 0
    for p in range(left.shape[0]):
        buffer, count = _paths(out, into, left[p], right[p], length, bits, buffer)
        if count == 0:
            continue
        count = sort_distinct(buffer, count)
        mask = np.uint64(slots.shape[0] - 1)
        at = _set_hash(buffer, count) & mask
        while slots[at] >= 0 and not _same_set(buffer, count, codes, indptr[slots[at]], indptr[slots[at] + 1]):
            at = (at + np.uint64(1)) & mask
        if slots[at] < 0:
            slots[at] = sets
            for i in range(count):
                codes = append(codes, indptr[sets] + i, buffer[i])
            indptr = append(indptr, sets + 1, indptr[sets] + count)
            pairs = append(pairs, sets, 0)
            sets += 1
            if 2 * sets > slots.shape[0]:
                slots = np.full(2 * slots.shape[0], -1, np.int64)
                _rehash(indptr, codes, sets, slots)
                pairs[sets - 1] += 1
                continue
        pairs[slots[at]] += 1
    return indptr[: sets + 1].copy(), codes[: indptr[sets]].copy(), pairs[:sets].copy()


def count_path_sets(out: Adjacency, into: Adjacency, left: Array, right: Array, length: int, bits: int) -> PathSets:
    """The path sets of ordered pairs (left[i], right[i]); pairs that no triple links directly are left out."""
    return PathSets(*_count_sets(out, into, as_readonly(left, ROW), as_readonly(right, ROW), length, bits))


@kernel
def _expand_pairs(sets, left, right, count):  # type: ignore[no-untyped-def]
    at = 0
    for s in range(sets.pairs.shape[0]):
        for i in range(sets.indptr[s], sets.indptr[s + 1]):
            for j in range(sets.indptr[s], sets.indptr[s + 1]):
                if i != j:
                    left[at], right[at], count[at] = sets.codes[i], sets.codes[j], sets.pairs[s]
                    at += 1


def expand_pairs(sets: PathSets) -> tuple[Array, Array, Array]:
    """(path, other path, number of pairs with both) for every ordered pair of different paths of every set."""
    sizes = np.diff(sets.indptr)
    total = int((sizes * (sizes - 1)).sum())
    left, right, count = (np.empty(total, OFFSET) for _ in range(3))
    _expand_pairs(PathSets(*(as_readonly(column) for column in sets)), left, right, count)
    return left, right, count


@subkernel
def _row_range(left, code):  # type: ignore[no-untyped-def]
    begin = first_from(left, 0, left.shape[0], code)
    end = begin
    while end < left.shape[0] and left[end] == code:
        end += 1
    return begin, end


@subkernel
def _path_digest(code, bits, digest):  # type: ignore[no-untyped-def]
    value = np.uint64(0)
    while code:
        value = combine(value, digest[(code & ((np.int64(1) << bits) - 1)) - 1])
        code >>= bits
    return value


@subkernel
def _path_length(code, bits):  # type: ignore[no-untyped-def]
    length = 0
    while code:
        length += 1
        code >>= bits
    return length


@kernel
def _build(left, right, bits, digest, sampling, rows, size, vertices, mask):  # type: ignore[no-untyped-def]
    priority, heap = np.empty(sampling.cap + 1, np.uint64), np.empty(sampling.cap + 1, np.int64)
    for b in range(rows.shape[0]):
        own = np.int64(rows[b]) + 1
        key = combine(np.uint64(sampling.seed), digest[rows[b]])
        begin, end = _row_range(left, own)
        vertices[b, 0] = own
        n = 1
        at = begin
        while at < end and n < sampling.cap + 1:
            # Shorter paths first: codes are sorted by length.
            length, found, room = _path_length(right[at], bits), 0, sampling.cap + 1 - n
            while at < end and _path_length(right[at], bits) == length:
                rank = combine(key, _path_digest(right[at], bits, digest))
                found = bottom_k_offer(priority, heap, found, room, right[at], rank, False)
                at += 1
            vertices[b, n : n + found] = heap[:found]
            n += found
        sort_few(vertices[b], 1, n)
        size[b] = n
        mask[b, :n] = 0
        for i in range(1, n):
            join_vertices(mask[b], 0, i)
            others, others_end = _row_range(left, vertices[b, i])
            for j in range(i + 1, n):
                others = first_from(right, others, others_end, vertices[b, j])
                if others < others_end and right[others] == vertices[b, j]:
                    join_vertices(mask[b], i, j)


def build_relation_contexts(
    pairs: tuple[Array, Array], bits: int, digest: Array, sampling: Sampling, rows: Array
) -> Contexts:
    """The contexts of relations `rows`: vertices are path codes, the relation's own first.

    `pairs` are the ordered pairs of paths that link a common evidence pair, sorted; `digest` is that of every relation.
    """
    words = (sampling.cap >> 6) + 1
    size = np.empty(rows.shape[0], ROW)
    vertices = np.empty((rows.shape[0], sampling.cap + 1), np.int64)
    mask = np.empty((rows.shape[0], sampling.cap + 1, words), np.uint64)
    left, right = (as_readonly(side) for side in pairs)
    _build(left, right, bits, as_readonly(digest), sampling, as_readonly(rows, ROW), size, vertices, mask)
    return Contexts(size, vertices, mask)
