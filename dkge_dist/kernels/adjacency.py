"""Contexts in the two forms that encoders read: padded blocks (for GPU) and one ragged CSR (for CPU).

Both hold D̂^-1/2 Â D̂^-1/2 with Â = A + I. A padding slot has no vertex, and its row and column of Â are zero.

Shapes: n = width of a block, M = vertices of all contexts together, E = entries of all Â together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.contexts import Contexts
from dkge_dist.kernels.hashing import count_bits, lowest_set_bit
from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange
from dkge_dist.types import OFFSET, ROW, Array

WIDTHS = (8, 16, 24, 32, 40)
"""Width classes: few enough for large blocks, fine enough that little of a block is padding."""

PADDING = -1


class PaddedBlock(NamedTuple):
    """Contexts of one width class: their numbers in the batch, sizes, vertices (B, n) and normalised Â (B, n, n)."""

    contexts: Array
    size: Array
    vertices: Array
    adjacency: Array


class RaggedContexts(NamedTuple):
    """The vertices of all contexts of a batch in slots, one context after the other.

    Context b has the slots `indptr[b]:indptr[b + 1]`. Slot i has the entries `entry_ptr[i]:entry_ptr[i + 1]` of Â: the
    slots `entry_slot` (numbered over the whole batch, i itself included) with `entry_weight`.
    """

    indptr: Array
    vertices: Array
    entry_ptr: Array
    entry_slot: Array
    entry_weight: Array


@parallel_kernel
def _fill_padded(flat, members, vertices, adjacency):  # type: ignore[no-untyped-def]
    indptr, entry_ptr, entry_slot, entry_weight = flat.indptr, flat.entry_ptr, flat.entry_slot, flat.entry_weight
    for k in prange(members.shape[0]):
        first = indptr[members[k]]
        for slot in range(first, indptr[members[k] + 1]):
            vertices[k, slot - first] = flat.vertices[slot]
            for at in range(entry_ptr[slot], entry_ptr[slot + 1]):
                adjacency[k, slot - first, entry_slot[at] - first] = entry_weight[at]


def width_classes(slots: int) -> tuple[int, ...]:
    """The widths for contexts of up to `slots` vertices; beyond the widest class, one of exactly that size."""
    fitting = tuple(width for width in WIDTHS if width < slots)
    last = next((width for width in WIDTHS if width >= slots), slots)
    return (*fitting, last)


def padded_blocks(contexts: Contexts) -> list[PaddedBlock]:
    """The batch in its width classes; a class without contexts is left out."""
    flat, widths = ragged(contexts), np.array(width_classes(contexts.vertices.shape[1]))
    classes = np.searchsorted(widths, contexts.size)
    blocks = []
    for number, width in enumerate(widths):
        members = np.flatnonzero(classes == number)
        if members.shape[0]:
            vertices = np.full((members.shape[0], width), PADDING, flat.vertices.dtype)
            adjacency = np.zeros((members.shape[0], width, width), np.float32)
            _fill_padded(flat, as_readonly(members), vertices, adjacency)
            blocks.append(PaddedBlock(members, contexts.size[members], vertices, adjacency))
    return blocks


@kernel
def _count_entries(size, mask, indptr, degree):  # type: ignore[no-untyped-def]
    for b in range(size.shape[0]):
        for i in range(size[b]):
            degree[indptr[b] + i] = 1
            for w in range(mask.shape[2]):
                degree[indptr[b] + i] += count_bits(mask[b, i, w])


@parallel_kernel
def _fill_ragged(size, mask, indptr, degree, scale, entry_ptr, entry_slot, weight):  # type: ignore[no-untyped-def]
    for b in prange(size.shape[0]):
        first = indptr[b]
        for i in range(size[b]):
            at = entry_ptr[first + i]
            here = scale[degree[first + i]]
            entry_slot[at] = first + i
            weight[at] = here * here
            at += 1
            for w in range(mask.shape[2]):
                word = mask[b, i, w]
                while word:
                    j = first + (w << 6) + lowest_set_bit(word)
                    entry_slot[at] = j
                    weight[at] = here * scale[degree[j]]
                    at += 1
                    word &= word - np.uint64(1)


def ragged(contexts: Contexts) -> RaggedContexts:
    """The batch as one CSR, without any padding."""
    size, slots = contexts.size, contexts.vertices.shape[1]
    indptr = np.zeros(size.shape[0] + 1, OFFSET)
    np.cumsum(size, out=indptr[1:])
    degree = np.empty(indptr[-1], OFFSET)
    _count_entries(size, contexts.mask, indptr, degree)
    entry_ptr = np.zeros(indptr[-1] + 1, OFFSET)
    np.cumsum(degree, out=entry_ptr[1:])
    entry_slot, weight = np.empty(entry_ptr[-1], ROW), np.empty(entry_ptr[-1], np.float32)
    scale = np.arange(1, slots + 1, dtype=np.float32) ** np.float32(-0.5)
    scale = np.concatenate([np.ones(1, np.float32), scale])
    _fill_ragged(size, contexts.mask, indptr, degree, scale, entry_ptr, entry_slot, weight)
    vertices = contexts.vertices[np.arange(slots) < size[:, None]]
    return RaggedContexts(indptr, vertices, entry_ptr, entry_slot, weight)
