"""The attentive graph convolution on ragged contexts, forward and backward.

Shapes: B contexts, M vertex places, U distinct rows that the places show, E entries of Â, D dimensions. `place_row`
says which of the U rows stands at a place. Results do not depend on the number of threads: every output row is summed
by one thread in a fixed order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.adjacency import RaggedContexts
from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange, subkernel
from dkge_dist.kernels.sums import dot
from dkge_dist.kernels.triples import group
from dkge_dist.types import OFFSET, ROW, Array

CHUNK = 16
"""Contexts that one thread takes with the same scratch memory."""


class RaggedBatch(NamedTuple):
    """A ragged batch with its places resolved to distinct rows, and the way back (`row_ptr`, `row_place`).

    Context b has the places `indptr[b]:indptr[b + 1]`; row u stands at `row_place[row_ptr[u]:row_ptr[u + 1]]`.
    """

    indptr: Array
    entry_ptr: Array
    entry_place: Array
    entry_weight: Array
    place_row: Array
    row_ptr: Array
    row_place: Array

    def own(self) -> RaggedBatch:
        """The same contexts over rows that are the places themselves: for the second and third layer."""
        count = self.place_row.shape[0]
        every = as_readonly(np.arange(count), ROW)
        return self._replace(place_row=every, row_ptr=as_readonly(np.arange(count + 1), OFFSET), row_place=every)


def ragged_batch(contexts: RaggedContexts, place_row: Array, rows: int) -> RaggedBatch:
    """With `place_row` naming which of `rows` distinct rows stands at each place."""
    row_ptr, row_place = group(place_row, np.arange(place_row.shape[0], dtype=ROW), rows)
    columns = (contexts.indptr, contexts.entry_ptr, contexts.entry_place, contexts.entry_weight)
    return RaggedBatch(*(as_readonly(column) for column in (*columns, place_row, row_ptr, row_place)))


@parallel_kernel
def aggregate(places, rows_UD, out_MD):  # type: ignore[no-untyped-def]
    """out = ReLU(Â rows[place_row])."""
    dim = rows_UD.shape[1]
    for place in prange(out_MD.shape[0]):
        for d in range(dim):
            out_MD[place, d] = 0
        for at in range(places.entry_ptr[place], places.entry_ptr[place + 1]):
            weight = places.entry_weight[at]
            row = places.place_row[places.entry_place[at]]
            for d in range(dim):
                out_MD[place, d] += weight * rows_UD[row, d]
        for d in range(dim):
            out_MD[place, d] = max(out_MD[place, d], np.float32(0))


@parallel_kernel
def aggregate_backward(places, out_MD, grad_MD, grad_UD):  # type: ignore[no-untyped-def]
    """Gradient of `aggregate` by its rows; Â is symmetric, so the same entries lead back. Overwrites `grad_MD`."""
    dim = grad_UD.shape[1]
    for place in prange(grad_MD.shape[0]):
        for d in range(dim):
            # A ReLU that gave nothing passes nothing back.
            grad_MD[place, d] *= np.float32(out_MD[place, d] > 0)
    for row in prange(grad_UD.shape[0]):
        for d in range(dim):
            grad_UD[row, d] = 0
        for k in range(places.row_ptr[row], places.row_ptr[row + 1]):
            place = places.row_place[k]
            for at in range(places.entry_ptr[place], places.entry_ptr[place + 1]):
                weight = places.entry_weight[at]
                other = places.entry_place[at]
                for d in range(dim):
                    grad_UD[row, d] += weight * grad_MD[other, d]


@subkernel
def _hidden(places, rows_UD, begin, end, hidden_nD):  # type: ignore[no-untyped-def]
    """ReLU(Â rows[place_row]) of the places of one context; a place has one entry at least, its own."""
    dim = rows_UD.shape[1]
    for place in range(begin, end):
        i, first = place - begin, places.entry_ptr[place]
        weight, row = places.entry_weight[first], places.place_row[places.entry_place[first]]
        for d in range(dim):
            hidden_nD[i, d] = weight * rows_UD[row, d]
        for at in range(first + 1, places.entry_ptr[place + 1]):
            weight, row = places.entry_weight[at], places.place_row[places.entry_place[at]]
            for d in range(dim):
                hidden_nD[i, d] += weight * rows_UD[row, d]
        for d in range(dim):
            hidden_nD[i, d] = max(hidden_nD[i, d], np.float32(0))


@subkernel
def _largest(indptr, first, last):  # type: ignore[no-untyped-def]
    """RaggedBatch of the largest context among some."""
    size = 0
    for b in range(first, last):
        size = max(size, indptr[b + 1] - indptr[b])
    return size


@parallel_kernel
def attend(places, rows_UD, query_BD, attention_M, out_BD):  # type: ignore[no-untyped-def]
    """With H = ReLU(Â rows[place_row]): attention = softmax over each context of H · query, out = Σ attention H.

    H of a context never leaves the cache. To keep it for the way back would cost more than to compute it again.
    """
    contexts, dim = out_BD.shape
    for chunk in prange((contexts + CHUNK - 1) // CHUNK):
        first, last = chunk * CHUNK, min(contexts, (chunk + 1) * CHUNK)
        hidden_nD = np.empty((_largest(places.indptr, first, last), dim), np.float32)
        for b in range(first, last):
            begin, end = places.indptr[b], places.indptr[b + 1]
            _hidden(places, rows_UD, begin, end, hidden_nD)
            top = np.float32(-np.inf)
            for i in range(end - begin):
                score = dot(hidden_nD[i], query_BD[b])
                attention_M[begin + i] = score
                top = max(top, score)
            total = np.float32(0)
            for place in range(begin, end):
                attention_M[place] = np.exp(attention_M[place] - top)
                total += attention_M[place]
            for d in range(dim):
                out_BD[b, d] = 0
            for i in range(end - begin):
                attention_M[begin + i] /= total
                for d in range(dim):
                    out_BD[b, d] += attention_M[begin + i] * hidden_nD[i, d]


@parallel_kernel
def attend_backward(places, rows_UD, query_BD, attention_M, grad_BD, grad_MD, grad_query_BD, grad_UD):  # type: ignore[no-untyped-def]
    """Gradients of `attend` by query and rows; Â is symmetric, so the same entries lead back. `grad_MD` is scratch."""
    contexts, dim = grad_BD.shape
    for chunk in prange((contexts + CHUNK - 1) // CHUNK):
        first, last = chunk * CHUNK, min(contexts, (chunk + 1) * CHUNK)
        largest = _largest(places.indptr, first, last)
        hidden_nD, slope_n = np.empty((largest, dim), np.float32), np.empty(largest, np.float32)
        for b in range(first, last):
            begin, end = places.indptr[b], places.indptr[b + 1]
            _hidden(places, rows_UD, begin, end, hidden_nD)
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
                    # A ReLU that gave nothing passes nothing back.
                    by_hidden = by_sum * grad_BD[b, d] + by_score * query_BD[b, d]
                    hidden_nD[i, d] = by_hidden if hidden > 0 else np.float32(0)
            for place in range(begin, end):
                for d in range(dim):
                    grad_MD[place, d] = 0
                for at in range(places.entry_ptr[place], places.entry_ptr[place + 1]):
                    weight = places.entry_weight[at]
                    i = places.entry_place[at] - begin
                    for d in range(dim):
                        grad_MD[place, d] += weight * hidden_nD[i, d]
    for row in prange(grad_UD.shape[0]):
        for d in range(dim):
            grad_UD[row, d] = 0
        for k in range(places.row_ptr[row], places.row_ptr[row + 1]):
            place = places.row_place[k]
            for d in range(dim):
                grad_UD[row, d] += grad_MD[place, d]


@parallel_kernel
def gather_rows(table_RD, rows_U, out_UD):  # type: ignore[no-untyped-def]
    """out[u] = table[rows[u]]."""
    for u in prange(out_UD.shape[0]):
        for d in range(out_UD.shape[1]):
            out_UD[u, d] = table_RD[rows_U[u], d]
