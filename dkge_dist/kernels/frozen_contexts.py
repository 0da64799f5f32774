"""Objects over contexts whose H does not change: H is read where it lies and gets no gradient.

Shapes: B objects, M vertex slots of all frozen contexts, D dimensions. Object b has the slots `begin[b]:end[b]`.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import parallel_kernel, prange
from dkge_dist.kernels.ragged import gated, query_of, slopes_of_scores, softmax_weights
from dkge_dist.kernels.vectors import sum_rows


@parallel_kernel
def encode_frozen(begin, end, hidden_MD, knowledge_BD, attention_D, share_D, out_BD):  # type: ignore[no-untyped-def]
    """What `ragged.encode` gives."""
    dim = hidden_MD.shape[1]
    for b in prange(out_BD.shape[0]):
        weight, size = np.empty(end[b] - begin[b], np.float32), end[b] - begin[b]
        query_D, context_D = np.empty(dim, np.float32), np.empty(dim, np.float32)
        query_of(knowledge_BD[b], attention_D, query_D)
        softmax_weights(hidden_MD, begin[b], query_D, weight)
        sum_rows(context_D, hidden_MD, None, None, weight, 0, size, -begin[b], False)
        gated(knowledge_BD[b], context_D, share_D, out_BD[b])


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
        query_of(knowledge_BD[b], attention_D, vector_D)
        softmax_weights(hidden_MD, begin[b], vector_D, weight)
        for d in range(dim):
            vector_D[d] = grad_BD[b, d] - share_D[d] * grad_BD[b, d]
        slopes_of_scores(hidden_MD, begin[b], weight, vector_D, slope)
        sum_rows(by_query_D, hidden_MD, None, None, slope, 0, size, -begin[b], False)
        for d in range(dim):
            through = attention_D[d] * by_query_D[d] if knowledge_BD[b, d] > 0 else np.float32(0)
            by_knowledge_BD[b, d] = share_D[d] * grad_BD[b, d] + through
