"""Entity contexts, built on demand for a batch of entities.

A context is the object, up to `cap` sampled vertices around it (nearer hops first), and all edges among them. The
sample is the bottom-k by a hash of label digests: it depends on the set of candidates alone, so one neighbour more or
less changes a hub's context with probability cap / degree.

Shapes: B contexts, V = cap + 1 vertex slots, W = 64-bit words of an adjacency row. Vertex 0 is the object, the others
follow in ascending row order. Bit j of `mask[b, i]` says that vertices i and j are adjacent; there are no loops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.buffers import sort_few
from dkge_dist.kernels.csr import Adjacency, entry, has, locate
from dkge_dist.kernels.hashing import combine
from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange, subkernel
from dkge_dist.types import OFFSET, ROW, Array

SCAN_UP_TO, SCAN_FACTOR = 48, 4
"""Neighbour lists up to this long, or this many times the size of the context, are scanned; longer ones searched."""

CHUNK = 32
"""Contexts that one thread builds with the same scratch memory."""

KEPT_AT_ONCE = 1 << 16
"""Contexts that are built at once to be kept."""


class Contexts(NamedTuple):
    """A batch of contexts; only the first `size[b]` vertices and mask rows of a context are defined."""

    size: Array
    vertices: Array
    mask: Array


class Sampling(NamedTuple):
    """How contexts are sampled. Part of the model version: an update may not change it."""

    seed: int
    cap: int
    hops: int


@subkernel
def _sift_down(priority, vertex, size, at):  # type: ignore[no-untyped-def]
    """Restore a max-heap by (priority, vertex) below position `at`."""
    while True:
        largest = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < size and (
                priority[child] > priority[largest]
                or (priority[child] == priority[largest] and vertex[child] > vertex[largest])
            ):
                largest = child
        if largest == at:
            return
        priority[at], priority[largest] = priority[largest], priority[at]
        vertex[at], vertex[largest] = vertex[largest], vertex[at]
        at = largest


@subkernel
def bottom_k_offer(priority, vertex, size, room, candidate, rank, repeats):  # type: ignore[no-untyped-def]
    """Offer a candidate to a bottom-k heap of at most `room`; returns the new size.

    With `repeats` a candidate may be offered more than once, and is kept once.
    """
    if size == room and (rank > priority[0] or (rank == priority[0] and candidate >= vertex[0])):
        return size
    if repeats:
        for i in range(size):
            if vertex[i] == candidate:
                return size
    if size == room:
        priority[0], vertex[0] = rank, candidate
        _sift_down(priority, vertex, size, 0)
        return size
    priority[size], vertex[size] = rank, candidate
    if size + 1 == room:
        for at in range(room // 2 - 1, -1, -1):
            _sift_down(priority, vertex, room, at)
    return size + 1


@subkernel
def _sample(adjacency, digest, sampling, row, vertices, priority, heap):  # type: ignore[no-untyped-def]
    """Fill `vertices` with the object and its sample; returns the number of vertices."""
    vertices[0] = row
    size, layer = 1, 0
    for _hop in range(sampling.hops):
        room = sampling.cap + 1 - size
        layer_end = size
        patched, begin, end = locate(adjacency, row)
        if layer == 0 and end - begin <= room:
            for k in range(begin, end):
                vertices[size] = entry(adjacency, patched, k)
                size += 1
        else:
            found = 0
            key = combine(np.uint64(sampling.seed), digest[row])
            for v in range(layer, layer_end):
                patched, begin, end = locate(adjacency, vertices[v])
                for k in range(begin, end):
                    candidate = entry(adjacency, patched, k)
                    nearer = False
                    for other in range(layer_end):
                        nearer |= vertices[other] == candidate
                    if not nearer:
                        rank = combine(key, digest[candidate])
                        found = bottom_k_offer(priority, heap, found, room, candidate, rank, layer > 0)
            for i in range(found):
                vertices[size + i] = heap[i]
            size += found
        layer = layer_end
        if size == sampling.cap + 1 or size == layer_end:
            break
    sort_few(vertices, 1, size)
    return size


@subkernel
def join_vertices(mask, i, j):  # type: ignore[no-untyped-def]
    """Make vertices i and j of a context adjacent."""
    mask[i, j >> 6] |= np.uint64(1) << np.uint64(j & 63)
    mask[j, i >> 6] |= np.uint64(1) << np.uint64(i & 63)


@subkernel
def _scan_edges(adjacency, vertices, size, signature, i, patched, begin, end, mask):  # type: ignore[no-untyped-def]
    """Edges of vertex i to all vertices but the object, by scanning its neighbour list.

    Nearly all neighbours are outside the context: one bit of a signature (a Bloom filter of 256 bits) rules most of
    them out, in a branch that the processor predicts.
    """
    for k in range(begin, end):
        neighbour = entry(adjacency, patched, k)
        if (signature[(neighbour >> 6) & 3] >> np.uint64(neighbour & 63)) & np.uint64(1):
            low, high = 1, size
            while low < high:
                middle = (low + high) >> 1
                if vertices[middle] < neighbour:
                    low = middle + 1
                else:
                    high = middle
            if low < size and vertices[low] == neighbour:
                join_vertices(mask, i, low)


@subkernel
def _edges(adjacency, vertices, size, one_hop, mask, lists, signature):  # type: ignore[no-untyped-def]
    """Set the mask bits of all edges among the vertices. `lists` and `signature` are scratch."""
    patched, begin, end = lists
    signature[:] = 0
    for i in range(size):
        patched[i], begin[i], end[i] = locate(adjacency, vertices[i])
        signature[(vertices[i] >> 6) & 3] |= np.uint64(1) << np.uint64(vertices[i] & 63)
        for w in range(mask.shape[1]):
            mask[i, w] = 0
    long = max(SCAN_UP_TO, SCAN_FACTOR * size)
    for i in range(1, size):
        if one_hop or has(adjacency, patched[i], begin[i], end[i], vertices[0]):
            join_vertices(mask, 0, i)
        if end[i] - begin[i] <= long:
            _scan_edges(adjacency, vertices, size, signature, i, patched[i], begin[i], end[i], mask)
            continue
        # Edges to short lists are found from there; between two long ones the shorter is searched.
        for j in range(i + 1, size):
            if end[j] - begin[j] > long:
                a, b = (i, j) if end[i] - begin[i] <= end[j] - begin[j] else (j, i)
                if has(adjacency, patched[a], begin[a], end[a], vertices[b]):
                    join_vertices(mask, i, j)


@subkernel
def _prefetch(adjacency, rows, first, last, cap):  # type: ignore[no-untyped-def]
    """Load into the cache the lists that the contexts of `rows[first:last]` will read, in three steps.

    A context waits for its own list, then for the offsets of its neighbours' lists, then for these lists. Reads of one
    step do not depend on each other, so doing a step for many contexts at once hides most of the latency of a graph
    that no cache holds. The result only keeps the compiler from removing the reads.
    """
    indptr, entries = adjacency.indptr, adjacency.entries
    known = indptr.shape[0] - 1
    seen = np.int64(0)
    for step in range(3):
        for b in range(first, last):
            row = rows[b]
            if row >= known or indptr[row] == indptr[row + 1]:
                continue
            if step == 0:
                seen += entries[indptr[row]]
                continue
            for k in range(indptr[row], min(indptr[row + 1], indptr[row] + cap)):
                if entries[k] < known:
                    begin = indptr[entries[k]]
                    seen += begin if step == 1 else entries[min(begin, entries.shape[0] - 1)]
    return seen


@parallel_kernel
def _build(adjacency, digest, sampling, rows, size, vertices, mask):  # type: ignore[no-untyped-def]
    slots = sampling.cap + 1
    chunks = (rows.shape[0] + CHUNK - 1) // CHUNK
    seen = np.empty(chunks, np.int64)
    for chunk in prange(chunks):
        first, last = chunk * CHUNK, min(rows.shape[0], (chunk + 1) * CHUNK)
        seen[chunk] = _prefetch(adjacency, rows, first, last, sampling.cap)
        priority, heap = np.empty(slots, np.uint64), np.empty(slots, np.int32)
        lists = (np.empty(slots, np.bool_), np.empty(slots, np.int64), np.empty(slots, np.int64))
        signature = np.empty(4, np.uint64)
        for b in range(first, last):
            size[b] = _sample(adjacency, digest, sampling, rows[b], vertices[b], priority, heap)
            _edges(adjacency, vertices[b], size[b], sampling.hops == 1, mask[b], lists, signature)


def build_contexts(neighbours: Adjacency, digest: Array, sampling: Sampling, rows: Array) -> Contexts:
    """The contexts of entities `rows` in the simple graph `neighbours`; `digest` is that of every entity's label."""
    words = (sampling.cap >> 6) + 1
    size = np.empty(rows.shape[0], ROW)
    vertices = np.empty((rows.shape[0], sampling.cap + 1), ROW)
    mask = np.empty((rows.shape[0], sampling.cap + 1, words), np.uint64)
    _build(neighbours, as_readonly(digest), sampling, as_readonly(rows, ROW), size, vertices, mask)
    return Contexts(size, vertices, mask)


class KeptContexts(NamedTuple):
    """Contexts of some entities without padding: vertices and mask rows of number n from `indptr[n]` on."""

    indptr: Array
    vertices: Array
    mask: Array


@parallel_kernel
def _unpack(kept, numbers, size, vertices, mask):  # type: ignore[no-untyped-def]
    for b in prange(numbers.shape[0]):
        first = kept.indptr[numbers[b]]
        size[b] = kept.indptr[numbers[b] + 1] - first
        for i in range(size[b]):
            vertices[b, i] = kept.vertices[first + i]
            for w in range(mask.shape[2]):
                mask[b, i, w] = kept.mask[first + i, w]


def keep_contexts(neighbours: Adjacency, digest: Array, sampling: Sampling, rows: Array) -> KeptContexts:
    """`build_contexts` of many rows, some at a time, without the padding."""
    words = (sampling.cap >> 6) + 1
    indptr, vertices, mask = np.zeros(rows.shape[0] + 1, OFFSET), np.empty(0, ROW), np.empty((0, words), np.uint64)
    for first in range(0, rows.shape[0], KEPT_AT_ONCE):
        some = rows[first : first + KEPT_AT_ONCE]
        contexts = build_contexts(neighbours, digest, sampling, some)
        begin = indptr[first]
        np.cumsum(contexts.size, out=indptr[first + 1 : first + 1 + some.shape[0]])
        indptr[first + 1 : first + 1 + some.shape[0]] += begin
        # Large arrays grow in place: the system moves their pages.
        end = int(indptr[first + some.shape[0]])
        vertices.resize(end, refcheck=False)
        mask.resize((end, words), refcheck=False)
        is_vertex = np.arange(contexts.vertices.shape[1]) < contexts.size[:, None]
        vertices[begin:], mask[begin:] = contexts.vertices[is_vertex], contexts.mask[is_vertex]
    return KeptContexts(*(as_readonly(array) for array in (indptr, vertices, mask)))


def kept_contexts(kept: KeptContexts, numbers: Array, sampling: Sampling) -> Contexts:
    """Copies of some kept contexts, as `build_contexts` gives them."""
    count, slots = numbers.shape[0], sampling.cap + 1
    size, vertices = np.empty(count, ROW), np.empty((count, slots), ROW)
    mask = np.empty((count, slots, kept.mask.shape[1]), np.uint64)
    _unpack(kept, as_readonly(numbers, ROW), size, vertices, mask)
    return Contexts(size, vertices, mask)


@subkernel
def _remove_bit(words, at):  # type: ignore[no-untyped-def]
    """Remove bit `at`; the bits above it move down by one."""
    last = words.shape[0] - 1
    for w in range(at >> 6, last + 1):
        below = (np.uint64(1) << np.uint64(at & 63)) - np.uint64(1) if w == at >> 6 else np.uint64(0)
        moved = words[w] >> np.uint64(1)
        if w < last:
            moved |= words[w + 1] << np.uint64(63)
        words[w] = (words[w] & below) | (moved & ~below)


@kernel
def _drop(size, vertices, mask, contexts, dropped):  # type: ignore[no-untyped-def]
    for i in range(contexts.shape[0]):
        b = contexts[i]
        at = 1
        while at < size[b] and vertices[b, at] != dropped[i]:
            at += 1
        if at >= size[b]:
            continue
        for v in range(size[b]):
            _remove_bit(mask[b, v], at)
        for v in range(at, size[b] - 1):
            vertices[b, v] = vertices[b, v + 1]
            mask[b, v] = mask[b, v + 1]
        size[b] -= 1


def drop_vertices(contexts: Contexts, numbers: Array, dropped: Array) -> None:
    """Remove vertex `dropped[i]` from context `numbers[i]`, in place, unless it is absent or the object itself."""
    _drop(contexts.size, contexts.vertices, contexts.mask, as_readonly(numbers, ROW), as_readonly(dropped, ROW))


def contexts_differ(one: Contexts, other: Contexts) -> Array:
    """For each object of two batches over the same objects: are its two contexts different?"""
    is_vertex = np.arange(one.vertices.shape[1]) < one.size[:, None]
    is_other = (one.vertices != other.vertices) | (one.mask != other.mask).any(2)
    found: Array = (one.size != other.size) | (is_vertex & is_other).any(1)
    return found
