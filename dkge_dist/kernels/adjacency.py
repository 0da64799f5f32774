"""Contexts in the two forms that encoders read: padded blocks (for GPU) and one ragged CSR (for CPU).

Both hold D̂^-1/2 Â D̂^-1/2 with Â = A + I. A padding slot has no vertex, and its row and column of Â are zero.

Shapes: n = width of a block, M = vertices of all contexts together, E = entries of all Â together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.contexts import Contexts
from dkge_dist.kernels.hashing import count_bits, lowest_set_bit
from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange, subkernel
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


@subkernel
def _degree(mask, b, i):  # type: ignore[no-untyped-def]
    """Degree in Â: the neighbours and the self loop."""
    degree = 1
    for w in range(mask.shape[2]):
        degree += count_bits(mask[b, i, w])
    return degree


@parallel_kernel
def _fill_padded(contexts, members, scale, size, vertices, adjacency):  # type: ignore[no-untyped-def]
    width = vertices.shape[1]
    for k in prange(members.shape[0]):
        b = members[k]
        n = contexts.size[b]
        size[k] = n
        adjacency[k] = 0
        for i in range(width):
            vertices[k, i] = contexts.vertices[b, i] if i < n else PADDING
        for i in range(n):
            here = scale[_degree(contexts.mask, b, i)]
            adjacency[k, i, i] = here * here
            for w in range(contexts.mask.shape[2]):
                word = contexts.mask[b, i, w]
                while word:
                    j = (w << 6) + lowest_set_bit(word)
                    if j < i:
                        value = here * scale[_degree(contexts.mask, b, j)]
                        adjacency[k, i, j] = value
                        adjacency[k, j, i] = value
                    word &= word - np.uint64(1)


def _inverse_roots(largest: int) -> Array:
    """degree^-1/2 for degrees up to `largest`."""
    degree = np.arange(largest + 1, dtype=np.float32)
    degree[0] = 1
    return as_readonly(degree**-0.5, np.float32)


def width_classes(slots: int) -> tuple[int, ...]:
    """The widths for contexts of up to `slots` vertices; beyond the widest class, one of exactly that size."""
    fitting = tuple(width for width in WIDTHS if width < slots)
    last = next((width for width in WIDTHS if width >= slots), slots)
    return (*fitting, last)


def padded_blocks(contexts: Contexts) -> list[PaddedBlock]:
    """The batch in its width classes; a class without contexts is left out."""
    slots = contexts.vertices.shape[1]
    widths = np.array(width_classes(slots))
    classes = np.searchsorted(widths, contexts.size)
    blocks = []
    for number, width in enumerate(widths):
        members = np.flatnonzero(classes == number)
        if members.shape[0]:
            block = PaddedBlock(
                members,
                np.empty(members.shape[0], ROW),
                np.empty((members.shape[0], width), contexts.vertices.dtype),
                np.empty((members.shape[0], width, width), np.float32),
            )
            _fill_padded(contexts, as_readonly(members), _inverse_roots(slots), *block[1:])
            blocks.append(block)
    return blocks


@kernel
def _count_entries(contexts, indptr, degree):  # type: ignore[no-untyped-def]
    for b in range(contexts.size.shape[0]):
        for i in range(contexts.size[b]):
            degree[indptr[b] + i] = _degree(contexts.mask, b, i)


@parallel_kernel
def _fill_ragged(contexts, indptr, degree, scale, ragged_vertices, entry_ptr, entry_slot, weight):  # type: ignore[no-untyped-def]
    for b in prange(contexts.size.shape[0]):
        first = indptr[b]
        for i in range(contexts.size[b]):
            ragged_vertices[first + i] = contexts.vertices[b, i]
            at = entry_ptr[first + i]
            here = scale[degree[first + i]]
            entry_slot[at] = first + i
            weight[at] = here * here
            at += 1
            for w in range(contexts.mask.shape[2]):
                word = contexts.mask[b, i, w]
                while word:
                    j = first + (w << 6) + lowest_set_bit(word)
                    entry_slot[at] = j
                    weight[at] = here * scale[degree[j]]
                    at += 1
                    word &= word - np.uint64(1)


def ragged(contexts: Contexts) -> RaggedContexts:
    """The batch as one CSR, without any padding."""
    indptr = np.zeros(contexts.size.shape[0] + 1, OFFSET)
    np.cumsum(contexts.size, out=indptr[1:])
    degree = np.empty(indptr[-1], OFFSET)
    _count_entries(contexts, as_readonly(indptr), degree)
    entry_ptr = np.zeros(indptr[-1] + 1, OFFSET)
    np.cumsum(degree, out=entry_ptr[1:])
    out = RaggedContexts(
        indptr,
        np.empty(indptr[-1], contexts.vertices.dtype),
        entry_ptr,
        np.empty(entry_ptr[-1], ROW),
        np.empty(entry_ptr[-1], np.float32),
    )
    scale = _inverse_roots(contexts.vertices.shape[1])
    _fill_ragged(
        contexts,
        as_readonly(indptr),
        as_readonly(degree),
        scale,
        out.vertices,
        as_readonly(entry_ptr),
        out.entry_slot,
        out.entry_weight,
    )
    return out
