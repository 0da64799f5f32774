"""The attentive graph convolution on ragged contexts, forward and backward.

The vertices of all contexts of a batch lie one after the other in *slots*. Many slots show the same row: `slot_row`
says which of the distinct rows. Results do not depend on the number of threads: every output row is summed by one
thread in a fixed order.

Shapes: B contexts, M vertex slots, U distinct rows, n vertices of one context, E entries of Â, D dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.adjacency import RaggedContexts
from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange, subkernel
from dkge_dist.kernels.triples import group
from dkge_dist.kernels.vectors import dot
from dkge_dist.types import OFFSET, ROW, Array

CHUNK = 16
"""Contexts that one thread takes with the same scratch memory."""


class RaggedBatch(NamedTuple):
    """A batch of contexts over distinct rows, and the inverse index from rows to slots for the backward pass.

    Context b has the slots `indptr[b]:indptr[b + 1]`. Slot i shows row `slot_row[i]` and has the entries
    `entry_ptr[i]:entry_ptr[i + 1]` of Â: the slots `entry_slot` with `entry_weight`. Row u is shown by the slots
    `row_slot[row_ptr[u]:row_ptr[u + 1]]`.
    """

    indptr: Array
    entry_ptr: Array
    entry_slot: Array
    entry_weight: Array
    slot_row: Array
    row_ptr: Array
    row_slot: Array

    def over_slots(self) -> RaggedBatch:
        """The same contexts with a row of its own for every slot: what layers after the first aggregate."""
        count = self.slot_row.shape[0]
        every = as_readonly(np.arange(count), ROW)
        return self._replace(slot_row=every, row_ptr=as_readonly(np.arange(count + 1), OFFSET), row_slot=every)


def ragged_batch(contexts: RaggedContexts, slot_row: Array, rows: int) -> RaggedBatch:
    """`slot_row` says which of `rows` distinct rows each vertex slot shows."""
    row_ptr, row_slot = group(slot_row, np.arange(slot_row.shape[0], dtype=ROW), rows)
    columns = (contexts.indptr, contexts.entry_ptr, contexts.entry_slot, contexts.entry_weight)
    return RaggedBatch(*(as_readonly(column) for column in (*columns, slot_row, row_ptr, row_slot)))


@parallel_kernel
def aggregate(contexts, rows_UD, out_MD):  # type: ignore[no-untyped-def]
    """out = ReLU(Â rows[slot_row])."""
    dim = rows_UD.shape[1]
    for slot in prange(out_MD.shape[0]):
        for d in range(dim):
            out_MD[slot, d] = 0
        for at in range(contexts.entry_ptr[slot], contexts.entry_ptr[slot + 1]):
            weight = contexts.entry_weight[at]
            row = contexts.slot_row[contexts.entry_slot[at]]
            for d in range(dim):
                out_MD[slot, d] += weight * rows_UD[row, d]
        for d in range(dim):
            out_MD[slot, d] = max(out_MD[slot, d], np.float32(0))


@parallel_kernel
def aggregate_backward(contexts, out_MD, grad_MD, grad_UD):  # type: ignore[no-untyped-def]
    """Gradient of `aggregate` by its rows, over the same entries: Â is symmetric. Overwrites `grad_MD`."""
    dim = grad_UD.shape[1]
    for slot in prange(grad_MD.shape[0]):
        for d in range(dim):
            # The gradient of a ReLU is zero where its output is.
            grad_MD[slot, d] *= np.float32(out_MD[slot, d] > 0)
    for row in prange(grad_UD.shape[0]):
        for d in range(dim):
            grad_UD[row, d] = 0
        for k in range(contexts.row_ptr[row], contexts.row_ptr[row + 1]):
            slot = contexts.row_slot[k]
            for at in range(contexts.entry_ptr[slot], contexts.entry_ptr[slot + 1]):
                weight = contexts.entry_weight[at]
                other = contexts.entry_slot[at]
                for d in range(dim):
                    grad_UD[row, d] += weight * grad_MD[other, d]


@subkernel
def _hidden(contexts, rows_UD, begin, end, hidden_nD):  # type: ignore[no-untyped-def]
    """ReLU(Â rows[slot_row]) of the slots of one context. Every slot has at least the entry of its self loop."""
    dim = rows_UD.shape[1]
    for slot in range(begin, end):
        i, first = slot - begin, contexts.entry_ptr[slot]
        weight, row = contexts.entry_weight[first], contexts.slot_row[contexts.entry_slot[first]]
        for d in range(dim):
            hidden_nD[i, d] = weight * rows_UD[row, d]
        for at in range(first + 1, contexts.entry_ptr[slot + 1]):
            weight, row = contexts.entry_weight[at], contexts.slot_row[contexts.entry_slot[at]]
            for d in range(dim):
                hidden_nD[i, d] += weight * rows_UD[row, d]
        for d in range(dim):
            hidden_nD[i, d] = max(hidden_nD[i, d], np.float32(0))


@subkernel
def _largest(indptr, first, last):  # type: ignore[no-untyped-def]
    """Size of the largest context among `first:last`."""
    size = 0
    for b in range(first, last):
        size = max(size, indptr[b + 1] - indptr[b])
    return size


@parallel_kernel
def attend(contexts, rows_UD, query_BD, attention_M, out_BD):  # type: ignore[no-untyped-def]
    """With H = ReLU(Â rows[slot_row]): attention = softmax over each context of H · query, out = Σ attention H.

    H of a context never leaves the cache. Keeping it for the backward pass would cost more than computing it again.
    """
    count, dim = out_BD.shape
    for chunk in prange((count + CHUNK - 1) // CHUNK):
        first, last = chunk * CHUNK, min(count, (chunk + 1) * CHUNK)
        hidden_nD = np.empty((_largest(contexts.indptr, first, last), dim), np.float32)
        for b in range(first, last):
            begin, end = contexts.indptr[b], contexts.indptr[b + 1]
            _hidden(contexts, rows_UD, begin, end, hidden_nD)
            top = np.float32(-np.inf)
            for i in range(end - begin):
                score = dot(hidden_nD[i], query_BD[b])
                attention_M[begin + i] = score
                top = max(top, score)
            total = np.float32(0)
            for slot in range(begin, end):
                attention_M[slot] = np.exp(attention_M[slot] - top)
                total += attention_M[slot]
            for d in range(dim):
                out_BD[b, d] = 0
            for i in range(end - begin):
                attention_M[begin + i] /= total
                for d in range(dim):
                    out_BD[b, d] += attention_M[begin + i] * hidden_nD[i, d]


@parallel_kernel
def attend_backward(contexts, rows_UD, query_BD, attention_M, grad_BD, grad_MD, grad_query_BD, grad_UD):  # type: ignore[no-untyped-def]
    """Gradients of `attend` by query and rows, over the same entries: Â is symmetric. `grad_MD` is scratch."""
    count, dim = grad_BD.shape
    for chunk in prange((count + CHUNK - 1) // CHUNK):
        first, last = chunk * CHUNK, min(count, (chunk + 1) * CHUNK)
        largest = _largest(contexts.indptr, first, last)
        hidden_nD, slope_n = np.empty((largest, dim), np.float32), np.empty(largest, np.float32)
        for b in range(first, last):
            begin, end = contexts.indptr[b], contexts.indptr[b + 1]
            _hidden(contexts, rows_UD, begin, end, hidden_nD)
            mean = np.float32(0)
            for i in range(end - begin):
                slope_n[i] = dot(grad_BD[b], hidden_nD[i])
                mean += attention_M[begin + i] * slope_n[i]
            for d in range(dim):
                grad_query_BD[b, d] = 0
            for i in range(end - begin):
                by_sum = attention_M[begin + i]
                by_score = by_sum * (slope_n[i] - mean)
                for d in range(dim):
                    hidden = hidden_nD[i, d]
                    grad_query_BD[b, d] += by_score * hidden
                    # The gradient of a ReLU is zero where its output is.
                    by_hidden = by_sum * grad_BD[b, d] + by_score * query_BD[b, d]
                    hidden_nD[i, d] = by_hidden if hidden > 0 else np.float32(0)
            for slot in range(begin, end):
                for d in range(dim):
                    grad_MD[slot, d] = 0
                for at in range(contexts.entry_ptr[slot], contexts.entry_ptr[slot + 1]):
                    weight = contexts.entry_weight[at]
                    i = contexts.entry_slot[at] - begin
                    for d in range(dim):
                        grad_MD[slot, d] += weight * hidden_nD[i, d]
    for row in prange(grad_UD.shape[0]):
        for d in range(dim):
            grad_UD[row, d] = 0
        for k in range(contexts.row_ptr[row], contexts.row_ptr[row + 1]):
            slot = contexts.row_slot[k]
            for d in range(dim):
                grad_UD[row, d] += grad_MD[slot, d]
