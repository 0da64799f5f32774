"""Attention over contexts whose hidden features do not change: nothing of them is copied, nothing goes back to them.

Shapes: B objects, M places of all constant contexts, D dimensions. Object b sees the places `begin[b]:end[b]`.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import parallel_kernel, prange, subkernel
from dkge_dist.kernels.sums import dot


@subkernel
def _weights(begin, end, hidden_MD, query_D, weight):  # type: ignore[no-untyped-def]
    """weight = softmax of hidden · query over one context."""
    top = np.float32(-np.inf)
    for i in range(end - begin):
        weight[i] = dot(hidden_MD[begin + i], query_D)
        top = max(top, weight[i])
    normal = np.float32(0)
    for i in range(end - begin):
        weight[i] = np.exp(weight[i] - top)
        normal += weight[i]
    for i in range(end - begin):
        weight[i] /= normal


@parallel_kernel
def attend_frozen(begin, end, hidden_MD, query_BD, out_BD):  # type: ignore[no-untyped-def]
    """out = hidden, weighted by the softmax of hidden · query over each context."""
    dim = hidden_MD.shape[1]
    for b in prange(out_BD.shape[0]):
        score = np.empty(end[b] - begin[b], np.float32)
        _weights(begin[b], end[b], hidden_MD, query_BD[b], score)
        for d in range(dim):
            out_BD[b, d] = 0
        for i in range(score.shape[0]):
            for d in range(dim):
                out_BD[b, d] += score[i] * hidden_MD[begin[b] + i, d]


@parallel_kernel
def attend_frozen_backward(begin, end, hidden_MD, query_BD, grad_BD, grad_query_BD):  # type: ignore[no-untyped-def]
    """Gradient by the query."""
    dim = hidden_MD.shape[1]
    for b in prange(grad_BD.shape[0]):
        weight = np.empty(end[b] - begin[b], np.float32)
        slope = np.empty(end[b] - begin[b], np.float32)
        _weights(begin[b], end[b], hidden_MD, query_BD[b], weight)
        mean = np.float32(0)
        for i in range(weight.shape[0]):
            slope[i] = dot(grad_BD[b], hidden_MD[begin[b] + i])
            mean += weight[i] * slope[i]
        for d in range(dim):
            grad_query_BD[b, d] = 0
        for i in range(weight.shape[0]):
            by_score = weight[i] * (slope[i] - mean)
            for d in range(dim):
                grad_query_BD[b, d] += by_score * hidden_MD[begin[b] + i, d]
