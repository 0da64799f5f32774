"""Attention over contexts whose H does not change: H is read where it lies and gets no gradient.

Shapes: B objects, M vertex slots of all frozen contexts, D dimensions. Object b has the slots `begin[b]:end[b]`.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import parallel_kernel, prange, subkernel
from dkge_dist.kernels.vectors import dot


@subkernel
def _softmax_weights(begin, end, hidden_MD, query_D, weight):  # type: ignore[no-untyped-def]
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
    """out = Σ weight · hidden over each context, weight = softmax of hidden · query."""
    dim = hidden_MD.shape[1]
    for b in prange(out_BD.shape[0]):
        score = np.empty(end[b] - begin[b], np.float32)
        _softmax_weights(begin[b], end[b], hidden_MD, query_BD[b], score)
        for d in range(dim):
            out_BD[b, d] = 0
        for i in range(score.shape[0]):
            for d in range(dim):
                out_BD[b, d] += score[i] * hidden_MD[begin[b] + i, d]


@parallel_kernel
def attend_frozen_backward(begin, end, hidden_MD, query_BD, grad_BD, grad_query_BD):  # type: ignore[no-untyped-def]
    """Gradient of `attend_frozen` by the query."""
    dim = hidden_MD.shape[1]
    for b in prange(grad_BD.shape[0]):
        weight = np.empty(end[b] - begin[b], np.float32)
        slope = np.empty(end[b] - begin[b], np.float32)
        _softmax_weights(begin[b], end[b], hidden_MD, query_BD[b], weight)
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
