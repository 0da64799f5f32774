"""Sorted neighbour lists (CSR) that can be patched: a shared base, and an overlay with the lists of changed rows.

The graph before a change and the graph after it share the base, so that the second costs only the change. Entries
are either neighbours (32 bits, the undirected simple graph) or codes `neighbour << 32 | relation` (64 bits, the
directed labelled graph). A list is sorted and without duplicates. Rows beyond the base have their list in the overlay,
or none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange, subkernel
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import group, pack
from dkge_dist.types import OFFSET, ROW, Array, Triples

FREE = -1
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing


class Lists(NamedTuple):
    """List i is `entries[indptr[i]:indptr[i + 1]]`."""

    indptr: Array
    entries: Array


class Adjacency(NamedTuple):
    """Lists by row. `slot_row` and `slot_list` are an open-addressing hash table from patched rows to overlay lists."""

    indptr: Array
    entries: Array
    slot_row: Array
    slot_list: Array
    patch_indptr: Array
    patch_entries: Array

    @staticmethod
    def of(indptr: Array, entries: Array) -> Adjacency:
        """Without an overlay."""
        return _with_overlay(indptr, entries, np.empty(0, ROW), np.zeros(1, OFFSET), np.empty(0, entries.dtype))


@subkernel
def hashed(row, mask):  # type: ignore[no-untyped-def]
    """Where to look for a row first among `mask` + 1 slots, a power of two."""
    return ((np.uint64(row) * _MULTIPLIER) >> np.uint64(32)) & mask


@subkernel
def _slot(slot_row, row):  # type: ignore[no-untyped-def]
    """The hash slot that holds `row`, or the free one where it would be."""
    mask = np.uint64(slot_row.shape[0] - 1)
    at = hashed(row, mask)
    while slot_row[at] != FREE and slot_row[at] != row:
        at = (at + np.uint64(1)) & mask
    return at


@subkernel
def locate(adjacency, row):  # type: ignore[no-untyped-def]
    """(is it in the overlay, begin, end) of a row's list; `entry` reads it."""
    if adjacency.patch_indptr.shape[0] > 1:
        at = _slot(adjacency.slot_row, row)
        if adjacency.slot_row[at] == row:
            at_list = adjacency.slot_list[at]
            return True, adjacency.patch_indptr[at_list], adjacency.patch_indptr[at_list + 1]
    if row + 1 >= adjacency.indptr.shape[0]:
        return False, np.int64(0), np.int64(0)
    return False, adjacency.indptr[row], adjacency.indptr[row + 1]


@subkernel
def entry(adjacency, patched, i):  # type: ignore[no-untyped-def]
    """Entry `i` of the overlay or of the base."""
    if patched:
        return adjacency.patch_entries[i]
    return adjacency.entries[i]


@subkernel
def lower_bound(adjacency, patched, begin, end, value):  # type: ignore[no-untyped-def]
    """Position of the first entry of a list that is not below `value`."""
    while begin < end:
        middle = (begin + end) >> 1
        if entry(adjacency, patched, middle) < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@subkernel
def advance(adjacency, patched, at, end, value):  # type: ignore[no-untyped-def]
    """The same from a place before it, entry by entry: for who asks for ascending values."""
    while at < end and entry(adjacency, patched, at) < value:
        at += 1
    return at


@subkernel
def has(adjacency, patched, begin, end, value):  # type: ignore[no-untyped-def]
    """Is `value` in the list?"""
    at = lower_bound(adjacency, patched, begin, end, value)
    return at < end and entry(adjacency, patched, at) == value


@subkernel
def linked(adjacency, row, neighbour):  # type: ignore[no-untyped-def]
    """Does the labelled list of `row` hold `neighbour`, under any relation?"""
    patched, begin, end = locate(adjacency, row)
    at = lower_bound(adjacency, patched, begin, end, np.int64(neighbour) << 32)
    return at < end and entry(adjacency, patched, at) >> 32 == neighbour


@subkernel
def joins(adjacency, row, relation, other):  # type: ignore[no-untyped-def]
    """Does the labelled list of `row` hold `other` under `relation`?"""
    patched, begin, end = locate(adjacency, row)
    return has(adjacency, patched, begin, end, (np.int64(other) << 32) | np.int64(relation))


@subkernel
def entries_to(adjacency, row, other):  # type: ignore[no-untyped-def]
    """(in the overlay?, begin, end) of the entries of `row` that lead to `other`."""
    patched, begin, end = locate(adjacency, row)
    first = lower_bound(adjacency, patched, begin, end, np.int64(other) << 32)
    last = first
    while last < end and entry(adjacency, patched, last) >> 32 == other:
        last += 1
    return patched, first, last


def _with_overlay(indptr: Array, entries: Array, rows: Array, patch_indptr: Array, patch_entries: Array) -> Adjacency:
    slots = 1 << max(1, int(2 * rows.shape[0]).bit_length())
    slot_row, slot_list = np.full(slots, FREE, ROW), np.zeros(slots, ROW)
    _fill_slots(as_readonly(rows), slot_row, slot_list)
    return Adjacency(
        *(as_readonly(array) for array in (indptr, entries, slot_row, slot_list, patch_indptr, patch_entries))
    )


@kernel
def _fill_slots(rows, slot_row, slot_list):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        at = _slot(slot_row, rows[i])
        slot_row[at] = rows[i]
        slot_list[at] = i


@kernel
def _list_sizes(adjacency, rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        _, begin, end = locate(adjacency, rows[i])
        out[i] = end - begin


def list_sizes(adjacency: Adjacency, rows: Array) -> Array:
    """Lengths of the lists of `rows`."""
    out = np.empty(rows.shape[0], OFFSET)
    _list_sizes(adjacency, as_readonly(rows, ROW), out)
    return out


@kernel
def _patch_lists(adjacency, rows, removed, added, out):  # type: ignore[no-untyped-def]
    """Write the lists of `rows` without `removed` and with `added`, which have one list per position in `rows`."""
    entries = out.entries
    for i in range(rows.shape[0]):
        patched, begin, end = locate(adjacency, rows[i])
        old, new, at = removed.indptr[i], added.indptr[i], out.indptr[i]
        for k in range(begin, end):
            value = entry(adjacency, patched, k)
            if old < removed.indptr[i + 1] and removed.entries[old] == value:
                old += 1
                continue
            while new < added.indptr[i + 1] and added.entries[new] < value:
                entries[at] = added.entries[new]
                at += 1
                new += 1
            entries[at] = value
            at += 1
        while new < added.indptr[i + 1]:
            entries[at] = added.entries[new]
            at += 1
            new += 1


def patch(adjacency: Adjacency, removed: tuple[Array, Array], added: tuple[Array, Array]) -> Adjacency:
    """A new adjacency without the entries `removed` and with `added`, each as (rows, entries) in any order.

    Every removed entry must exist, no added one may. The cost follows the lists of the rows that differ from the base,
    by this patch and by earlier ones.
    """
    before = adjacency.slot_row[adjacency.slot_row != FREE]
    rows = distinct(removed[0], added[0], before).astype(ROW)
    old, new = _by_position(rows, *removed), _by_position(rows, *added)
    indptr = np.zeros(rows.shape[0] + 1, OFFSET)
    np.cumsum(list_sizes(adjacency, rows) - np.diff(old.indptr) + np.diff(new.indptr), out=indptr[1:])
    out = Lists(as_readonly(indptr), np.empty(indptr[-1], adjacency.entries.dtype))
    _patch_lists(adjacency, as_readonly(rows), old, new, out)
    return _with_overlay(adjacency.indptr, adjacency.entries, rows, *out)


def _by_position(rows: Array, at: Array, entries: Array) -> Lists:
    """Entries of rows `at` as sorted lists, one per position in ascending `rows`."""
    order = np.lexsort((entries, at))
    indptr = np.zeros(rows.shape[0] + 1, OFFSET)
    np.cumsum(np.bincount(np.searchsorted(rows, at), minlength=rows.shape[0]), out=indptr[1:])
    return Lists(as_readonly(indptr), as_readonly(entries[order]))


def outgoing(triples: Triples, rows: int) -> Adjacency:
    """From canonical triples: lists of (tail, relation) codes by head."""
    indptr = np.zeros(rows + 1, OFFSET)
    np.cumsum(np.bincount(triples.head, minlength=rows), out=indptr[1:])
    return Adjacency.of(indptr, pack(triples.tail, triples.relation))


def incoming(triples: Triples, rows: int) -> Adjacency:
    """From canonical triples: lists of (head, relation) codes by tail. Grouping is stable, so lists come out sorted."""
    return Adjacency.of(*group(triples.tail, pack(triples.head, triples.relation), rows))


@subkernel
def _merge_neighbours(out, into, row, target, at):  # type: ignore[no-untyped-def]
    """Write the distinct neighbours of a row to `target` from `at` on, unless it is empty; returns their number."""
    i, out_end = out.indptr[row], out.indptr[row + 1]
    j, in_end = into.indptr[row], into.indptr[row + 1]
    last = np.int64(-1)
    count = 0
    while i < out_end or j < in_end:
        if j == in_end or (i < out_end and out.entries[i] < into.entries[j]):
            neighbour = out.entries[i] >> 32
            i += 1
        else:
            neighbour = into.entries[j] >> 32
            j += 1
        if neighbour != last and neighbour != row:
            if target.shape[0]:
                target[at + count] = neighbour
            count += 1
        last = neighbour
    return count


@parallel_kernel
def _neighbours(out, into, indptr, target, sizes):  # type: ignore[no-untyped-def]
    for row in prange(sizes.shape[0]):
        sizes[row] = _merge_neighbours(out, into, row, target, indptr[row])


def undirected(out: Adjacency, into: Adjacency) -> Adjacency:
    """The simple graph behind two labelled adjacencies without overlay: either direction, no duplicates, no loops."""
    rows = out.indptr.shape[0] - 1
    sizes = np.empty(rows, OFFSET)
    indptr = np.zeros(rows + 1, OFFSET)
    _neighbours(out, into, as_readonly(indptr), np.empty(0, ROW), sizes)
    np.cumsum(sizes, out=indptr[1:])
    entries = np.empty(indptr[-1], ROW)
    if entries.shape[0]:
        _neighbours(out, into, as_readonly(indptr), entries, sizes)
    return Adjacency.of(indptr, entries)


@kernel
def _joined(out, left, right, result):  # type: ignore[no-untyped-def]
    for i in range(left.shape[0]):
        result[i] = linked(out, left[i], right[i]) or linked(out, right[i], left[i])


def joined(out: Adjacency, left: Array, right: Array) -> Array:
    """For each pair: is there a triple between the two, in either direction?"""
    result = np.empty(left.shape[0], np.bool_)
    _joined(out, as_readonly(left, ROW), as_readonly(right, ROW), result)
    return result


def list_of(adjacency: Adjacency, row: int) -> Array:
    """The list of one row."""
    patched, begin, end = locate(adjacency, np.int64(row))
    found: Array = (adjacency.patch_entries if patched else adjacency.entries)[begin:end].copy()
    return found
