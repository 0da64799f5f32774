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
from dkge_dist.kernels.vectors import dot, slopes_of_attention, sum_rows
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
    entry_ptr, entry_slot, weight, slot_row = (
        contexts.entry_ptr, contexts.entry_slot, contexts.entry_weight, contexts.slot_row,
    )  # fmt: skip
    for slot in prange(out_MD.shape[0]):
        first, last = entry_ptr[slot], entry_ptr[slot + 1]
        sum_rows(out_MD[slot], rows_UD, entry_slot, slot_row, weight, first, last, 0, True)


@parallel_kernel
def aggregate_backward(contexts, out_MD, grad_MD, slot_MD, grad_UD):  # type: ignore[no-untyped-def]
    """Gradient of `aggregate` by its rows, over the same entries: Â is symmetric.

    Overwrites `grad_MD`; `slot_MD` is scratch.
    """
    dim = grad_UD.shape[1]
    entry_ptr, entry_slot, weight = contexts.entry_ptr, contexts.entry_slot, contexts.entry_weight
    row_ptr, row_slot = contexts.row_ptr, contexts.row_slot
    for slot in prange(grad_MD.shape[0]):
        for d in range(dim):
            # The gradient of a ReLU is zero where its output is.
            grad_MD[slot, d] *= np.float32(out_MD[slot, d] > 0)
    for slot in prange(grad_MD.shape[0]):
        sum_rows(slot_MD[slot], grad_MD, entry_slot, None, weight, entry_ptr[slot], entry_ptr[slot + 1], 0, False)
    for row in prange(grad_UD.shape[0]):
        sum_rows(grad_UD[row], slot_MD, row_slot, None, None, row_ptr[row], row_ptr[row + 1], 0, False)


@subkernel
def _hidden(contexts, rows_UD, begin, end, hidden_nD):  # type: ignore[no-untyped-def]
    """ReLU(Â rows[slot_row]) of the slots of one context."""
    for slot in range(begin, end):
        first, last = contexts.entry_ptr[slot], contexts.entry_ptr[slot + 1]
        sum_rows(
            hidden_nD[slot - begin], rows_UD, contexts.entry_slot, contexts.slot_row, contexts.entry_weight,
            first, last, 0, True,
        )  # fmt: skip


@subkernel
def _largest(indptr, first, last):  # type: ignore[no-untyped-def]
    """Size of the largest context among `first:last`."""
    size = 0
    for b in range(first, last):
        size = max(size, indptr[b + 1] - indptr[b])
    return size


@subkernel
def _gated(knowledge_D, context_D, share_D, out_D):  # type: ignore[no-untyped-def]
    """out = share · knowledge + (1 − share) · context."""
    for d in range(out_D.shape[0]):
        out_D[d] = context_D[d] + share_D[d] * (knowledge_D[d] - context_D[d])


@subkernel
def _query_of(knowledge_D, attention_D, query_D):  # type: ignore[no-untyped-def]
    """query = attention · ReLU(knowledge): what the attention compares vertices with."""
    for d in range(query_D.shape[0]):
        query_D[d] = attention_D[d] * max(knowledge_D[d], np.float32(0))


@parallel_kernel
def encode(contexts, rows_UD, knowledge_BD, attention_D, share_D, weight_M, context_BD, out_BD):  # type: ignore[no-untyped-def]
    """With H = ReLU(Â rows[slot_row]): weight = softmax over each context of H · query, context = Σ weight H; gated.

    H of a context never leaves the cache. Keeping it for the backward pass would cost more than computing it again.
    """
    count, dim = out_BD.shape
    for chunk in prange((count + CHUNK - 1) // CHUNK):
        first, last = chunk * CHUNK, min(count, (chunk + 1) * CHUNK)
        hidden_nD = np.empty((_largest(contexts.indptr, first, last), dim), np.float32)
        query_D = np.empty(dim, np.float32)
        for b in range(first, last):
            begin, end = contexts.indptr[b], contexts.indptr[b + 1]
            _hidden(contexts, rows_UD, begin, end, hidden_nD)
            _query_of(knowledge_BD[b], attention_D, query_D)
            weight_n = weight_M[begin:end]
            _softmax_weights(hidden_nD, 0, query_D, weight_n)
            sum_rows(context_BD[b], hidden_nD, None, None, weight_n, 0, end - begin, 0, False)
            _gated(knowledge_BD[b], context_BD[b], share_D, out_BD[b])


@subkernel
def _softmax_weights(hidden_MD, begin, query_D, weight_n):  # type: ignore[no-untyped-def]
    """weight = softmax of hidden · query over the rows of one context, which begin at `begin`."""
    top = np.float32(-np.inf)
    for i in range(weight_n.shape[0]):
        weight_n[i] = dot(hidden_MD[begin + i], query_D)
        top = max(top, weight_n[i])
    normal = np.float32(0)
    for i in range(weight_n.shape[0]):
        weight_n[i] = np.exp(weight_n[i] - top)
        normal += weight_n[i]
    for i in range(weight_n.shape[0]):
        weight_n[i] /= normal


@subkernel
def _slopes_of_scores(hidden_MD, begin, weight_n, grad_D, slope_n):  # type: ignore[no-untyped-def]
    """Gradients by the scores of one context, of which `weight` is the softmax, from the one by its weighted sum."""
    mean = np.float32(0)
    for i in range(weight_n.shape[0]):
        slope_n[i] = dot(grad_D, hidden_MD[begin + i])
        mean += weight_n[i] * slope_n[i]
    for i in range(weight_n.shape[0]):
        slope_n[i] = weight_n[i] * (slope_n[i] - mean)


@parallel_kernel
def encode_backward(  # type: ignore[no-untyped-def]
    contexts, rows_UD, knowledge_BD, attention_D, share_D, weight_M, context_BD, grad_BD, learns_U, slot_MD, by_rows_UD,
    by_knowledge_BD, by_attention_CD, by_share_CD,
):  # fmt: skip
    """Gradients of `encode`, over the same entries: Â is symmetric. Those of parameters are sums over each `CHUNK` of
    contexts, to be added up; of rows only those that learn are written. `slot_MD` is scratch."""
    count, dim = grad_BD.shape
    for chunk in prange(by_share_CD.shape[0]):
        first, last = chunk * CHUNK, min(count, (chunk + 1) * CHUNK)
        largest = _largest(contexts.indptr, first, last)
        hidden_nD, slope_n = np.empty((largest, dim), np.float32), np.empty(largest, np.float32)
        query_D, by_query_D = np.empty(dim, np.float32), np.empty(dim, np.float32)
        by_context_D = np.empty(dim, np.float32)
        by_attention_D, by_share_D = np.zeros(dim, np.float32), np.zeros(dim, np.float32)
        for b in range(first, last):
            begin, end = contexts.indptr[b], contexts.indptr[b + 1]
            _hidden(contexts, rows_UD, begin, end, hidden_nD)
            _query_of(knowledge_BD[b], attention_D, query_D)
            for d in range(dim):
                by_context_D[d] = grad_BD[b, d] - share_D[d] * grad_BD[b, d]
                by_share_D[d] += grad_BD[b, d] * (knowledge_BD[b, d] - context_BD[b, d])
            _slopes_of_scores(hidden_nD, 0, weight_M[begin:end], by_context_D, slope_n)
            slopes_of_attention(hidden_nD, end - begin, begin, weight_M, slope_n, by_context_D, query_D, by_query_D)
            for d in range(dim):
                own = max(knowledge_BD[b, d], np.float32(0))
                by_attention_D[d] += by_query_D[d] * own
                through = attention_D[d] * by_query_D[d] if own > 0 else np.float32(0)
                by_knowledge_BD[b, d] = share_D[d] * grad_BD[b, d] + through
            for slot in range(begin, end):
                if learns_U[contexts.slot_row[slot]]:
                    one, other, weight = contexts.entry_ptr[slot], contexts.entry_ptr[slot + 1], contexts.entry_weight
                    sum_rows(slot_MD[slot], hidden_nD, contexts.entry_slot, None, weight, one, other, begin, False)
        by_attention_CD[chunk, :] = by_attention_D
        by_share_CD[chunk, :] = by_share_D
    row_ptr, row_slot = contexts.row_ptr, contexts.row_slot
    for row in prange(by_rows_UD.shape[0]):
        if learns_U[row]:
            sum_rows(by_rows_UD[row], slot_MD, row_slot, None, None, row_ptr[row], row_ptr[row + 1], 0, False)


@parallel_kernel
def encode_frozen(begin, end, hidden_MD, knowledge_BD, attention_D, share_D, out_BD):  # type: ignore[no-untyped-def]
    """What `encode` gives, of objects over contexts whose H does not change: it is read from the slots begin:end."""
    dim = hidden_MD.shape[1]
    for b in prange(out_BD.shape[0]):
        weight, size = np.empty(end[b] - begin[b], np.float32), end[b] - begin[b]
        query_D, context_D = np.empty(dim, np.float32), np.empty(dim, np.float32)
        _query_of(knowledge_BD[b], attention_D, query_D)
        _softmax_weights(hidden_MD, begin[b], query_D, weight)
        sum_rows(context_D, hidden_MD, None, None, weight, 0, size, -begin[b], False)
        _gated(knowledge_BD[b], context_D, share_D, out_BD[b])


@parallel_kernel
def encode_frozen_backward(  # type: ignore[no-untyped-def]
    begin, end, hidden_MD, knowledge_BD, attention_D, share_D, grad_BD, by_knowledge_BD
):
    """Gradient of `encode_frozen` by `^k`."""
    dim = hidden_MD.shape[1]
    for b in prange(grad_BD.shape[0]):
        size = end[b] - begin[b]
        weight, slope = np.empty(size, np.float32), np.empty(size, np.float32)
        vector_D, by_query_D = np.empty(dim, np.float32), np.empty(dim, np.float32)
        _query_of(knowledge_BD[b], attention_D, vector_D)
        _softmax_weights(hidden_MD, begin[b], vector_D, weight)
        for d in range(dim):
            vector_D[d] = grad_BD[b, d] - share_D[d] * grad_BD[b, d]
        _slopes_of_scores(hidden_MD, begin[b], weight, vector_D, slope)
        sum_rows(by_query_D, hidden_MD, None, None, slope, 0, size, -begin[b], False)
        for d in range(dim):
            through = attention_D[d] * by_query_D[d] if knowledge_BD[b, d] > 0 else np.float32(0)
            by_knowledge_BD[b, d] = share_D[d] * grad_BD[b, d] + through


def chunks_of(count: int) -> int:
    """In how many parts gradients of parameters come."""
    return -(-count // CHUNK)
