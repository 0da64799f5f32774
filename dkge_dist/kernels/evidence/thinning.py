"""Thinned neighbour lists: a row with more than `limit` neighbours keeps those of the smallest hashes.

Walks for evidence run over thinned lists, so that a hub costs no more than the limit. The sample of a row is the
bottom-k of its neighbours by a hash of label digests, as in entity contexts: it depends on the set alone. A thinned
adjacency shares its base with the full one and has the lists of hubs in its overlay.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.contexts import bottom_k_offer
from dkge_dist.kernels.csr import FREE, Adjacency, Lists, _with_overlay, entry, list_sizes, locate
from dkge_dist.kernels.hashing import combine
from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange, subkernel
from dkge_dist.types import OFFSET, ROW, Array


class Cuts(NamedTuple):
    """The last neighbour that each hub keeps: its priority, and its row, which decides among equal priorities."""

    priority: Array
    row: Array


@subkernel
def is_kept(priority, row, cut_priority, cut_row):  # type: ignore[no-untyped-def]
    """Is a neighbour not beyond the cut?"""
    return priority < cut_priority or (priority == cut_priority and row <= cut_row)


@parallel_kernel
def _cuts(neighbours, digest, seed, limit, rows, priority, last):  # type: ignore[no-untyped-def]
    for i in prange(rows.shape[0]):
        key = combine(seed, digest[rows[i]])
        heap_priority, heap_row = np.empty(limit, np.uint64), np.empty(limit, np.int32)
        patched, begin, end = locate(neighbours, rows[i])
        size = 0
        for k in range(begin, end):
            neighbour = entry(neighbours, patched, k)
            rank = combine(key, digest[neighbour])
            size = bottom_k_offer(heap_priority, heap_row, size, limit, neighbour, rank, False)
        # A full heap has its largest entry on top; a list within the limit has no cut.
        priority[i] = heap_priority[0] if size == limit else np.uint64(0xFFFFFFFFFFFFFFFF)
        last[i] = heap_row[0] if size == limit else np.int32(0x7FFFFFFF)


def find_cuts(neighbours: Adjacency, digest: Array, seed: int, limit: int, rows: Array) -> Cuts:
    """Where the lists of `rows` are cut to `limit` neighbours; `digest` is that of every entity's label."""
    cuts = Cuts(np.empty(rows.shape[0], np.uint64), np.empty(rows.shape[0], ROW))
    _cuts(neighbours, as_readonly(digest), np.uint64(seed), limit, as_readonly(rows, ROW), *cuts)
    return cuts


@parallel_kernel
def _thin(adjacency, shift, digest, seed, rows, cuts, indptr, entries, sizes):  # type: ignore[no-untyped-def]
    """Write the kept entries of every row (unless `entries` is empty) and how many they are."""
    for i in prange(rows.shape[0]):
        key = combine(seed, digest[rows[i]])
        patched, begin, end = locate(adjacency, rows[i])
        kept = np.int64(0)
        for k in range(begin, end):
            value = entry(adjacency, patched, k)
            neighbour = np.int64(value) >> shift
            # A loop is no neighbour, and stands in the way of nothing: it always stays.
            loop = neighbour == rows[i]
            if loop or is_kept(combine(key, digest[neighbour]), neighbour, cuts.priority[i], cuts.row[i]):
                if entries.shape[0]:
                    entries[indptr[i] + kept] = value
                kept += 1
        sizes[i] = kept


def thin_lists(adjacency: Adjacency, digest: Array, seed: int, rows: Array, cuts: Cuts) -> Lists:
    """The lists of `rows` up to their cuts."""
    shift = 32 if adjacency.entries.dtype == np.int64 else 0
    rows, digest = as_readonly(rows, ROW), as_readonly(digest)
    frozen = Cuts(as_readonly(cuts.priority), as_readonly(cuts.row))
    sizes, indptr = np.empty(rows.shape[0], OFFSET), np.zeros(rows.shape[0] + 1, OFFSET)
    entries = np.empty(0, adjacency.entries.dtype)
    for _ in ("count", "fill"):
        _thin(adjacency, shift, digest, np.uint64(seed), rows, frozen, as_readonly(indptr), entries, sizes)
        if not entries.shape[0]:
            np.cumsum(sizes, out=indptr[1:])
            entries = np.empty(indptr[-1], adjacency.entries.dtype)
            if not entries.shape[0]:
                break
    return Lists(indptr, entries)


@parallel_kernel
def _copy_lists(adjacency, rows, indptr, entries):  # type: ignore[no-untyped-def]
    for i in prange(rows.shape[0]):
        patched, begin, end = locate(adjacency, rows[i])
        for k in range(begin, end):
            entries[indptr[i] + k - begin] = entry(adjacency, patched, k)


def patched_rows(adjacency: Adjacency) -> Array:
    """The rows that have their list in the overlay, ascending."""
    return np.sort(adjacency.slot_row[adjacency.slot_row != FREE])


def lists_of(adjacency: Adjacency, rows: Array) -> Lists:
    """The lists of `rows`."""
    indptr = np.zeros(rows.shape[0] + 1, OFFSET)
    np.cumsum(list_sizes(adjacency, rows), out=indptr[1:])
    entries = np.empty(indptr[-1], adjacency.entries.dtype)
    _copy_lists(adjacency, as_readonly(rows, ROW), as_readonly(indptr), entries)
    return Lists(indptr, entries)


def overlaid(adjacency: Adjacency, rows: Array, indptr: Array, entries: Array) -> Adjacency:
    """The base of an adjacency under the given lists of `rows`."""
    return _with_overlay(adjacency.indptr, adjacency.entries, rows, indptr, entries)


def with_lists(adjacency: Adjacency, kept: tuple[Adjacency, Array], rows: Array, lists: Lists) -> Adjacency:
    """The base of `adjacency`, under the lists of `kept` rows of another one and the given lists of other rows."""
    source, same = kept
    indptr, entries = lists_of(source, same)
    return _with_overlay(
        adjacency.indptr,
        adjacency.entries,
        np.concatenate([same, rows]).astype(ROW),
        np.concatenate([indptr, indptr[-1] + lists.indptr[1:]]),
        np.concatenate([entries, lists.entries]),
    )
