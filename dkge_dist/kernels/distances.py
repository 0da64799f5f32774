"""L1 distances of all pairs of two sets of vectors, their gradients, and the softmax loss over them in one go.

Shapes: Q queries, N candidates, D dimensions. Every output row is summed by one thread in a fixed order.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import fast_parallel_kernel, prange

CHUNKS = 8
"""Fixed shares of the queries that sum up candidates' gradients apart: the same sums for any number of threads."""

NEGLIGIBLE = np.float32(1e-7)
"""Softmax weights below this move nothing that 32 bits could hold; most negatives of a trained model are so far off."""


@fast_parallel_kernel
def l1_distances(query_QD, candidate_ND, out_QN):  # type: ignore[no-untyped-def]
    """out[q, n] = ‖query[q] − candidate[n]‖₁."""
    for q in prange(out_QN.shape[0]):
        for n in range(out_QN.shape[1]):
            total = np.float32(0)
            for d in range(query_QD.shape[1]):
                total += abs(query_QD[q, d] - candidate_ND[n, d])
            out_QN[q, n] = total


@fast_parallel_kernel
def l1_backward(query_QD, candidate_ND, grad_QN, grad_query_QD):  # type: ignore[no-untyped-def]
    """Gradient by the queries; swapped arguments (and the transposed gradient) give that by the candidates."""
    dim = query_QD.shape[1]
    for q in prange(grad_query_QD.shape[0]):
        for d in range(dim):
            grad_query_QD[q, d] = 0
        for n in range(candidate_ND.shape[0]):
            slope = grad_QN[q, n]
            if slope != 0:
                for d in range(dim):
                    grad_query_QD[q, d] += slope if query_QD[q, d] > candidate_ND[n, d] else -slope


@fast_parallel_kernel
def softmax_l1(  # type: ignore[no-untyped-def]
    query_QD, candidate_ND, positive_Q, blocked_QN, margin, loss_Q, grad_positive_Q, grad_query_QD, parts_CND
):
    """Cross-entropy of picking the positive among the candidates, by −distance, and all its gradients.

    The gradient by the candidates comes in `CHUNKS` parts to be added up.
    """
    queries, dim = query_QD.shape
    count = candidate_ND.shape[0]
    share = (queries + CHUNKS - 1) // CHUNKS
    for chunk in prange(CHUNKS):
        parts_CND[chunk] = 0
        logits = np.empty(count, np.float32)
        for q in range(chunk * share, min(queries, (chunk + 1) * share)):
            own = -positive_Q[q] - margin
            top = own
            for n in range(count):
                total = np.float32(0)
                for d in range(dim):
                    total += abs(query_QD[q, d] - candidate_ND[n, d])
                logits[n] = np.float32(-np.inf) if blocked_QN[q, n] else -total
                top = max(top, logits[n])
            normal = np.exp(own - top)
            for n in range(count):
                logits[n] = np.exp(logits[n] - top)
                normal += logits[n]
            loss_Q[q] = np.log(normal) + top - own
            grad_positive_Q[q] = 1 - np.exp(own - top) / normal
            for d in range(dim):
                grad_query_QD[q, d] = 0
            for n in range(count):
                weight = logits[n] / normal
                if weight > NEGLIGIBLE:
                    for d in range(dim):
                        slope = weight if query_QD[q, d] > candidate_ND[n, d] else -weight
                        grad_query_QD[q, d] -= slope
                        parts_CND[chunk, n, d] += slope
