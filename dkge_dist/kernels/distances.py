"""L1 distances of all pairs of two sets of vectors, their gradients, and losses over distances in one pass.

Shapes: Q queries, N candidates, B triples, E entities, R relations, D dimensions. Every output row is summed by one
thread in a fixed order (see `vectors`).
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import estimate, parallel_kernel, prange


@parallel_kernel
def l1_distances(query_QD, candidate_ND, out_QN):  # type: ignore[no-untyped-def]
    """out[q, n] = ‖query[q] − candidate[n]‖₁, with the candidates side by side, dimension after dimension."""
    across_DN = np.ascontiguousarray(candidate_ND.T)
    for q in prange(out_QN.shape[0]):
        for n in range(out_QN.shape[1]):
            out_QN[q, n] = 0
        for d in range(query_QD.shape[1]):
            for n in range(out_QN.shape[1]):
                out_QN[q, n] += abs(query_QD[q, d] - across_DN[d, n])


@parallel_kernel
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


@estimate
def _translated_distance(head_D, relation_D, tail_D):  # type: ignore[no-untyped-def]
    """‖head + relation − tail‖₁."""
    found = np.float32(0)
    for d in range(head_D.shape[0]):
        found += abs(head_D[d] + relation_D[d] - tail_D[d])
    return found


@parallel_kernel
def margin_l1(entity_ED, relation_RD, triples, margin, loss_B, grad_entity_ED, grad_relation_RD):  # type: ignore[no-untyped-def]
    """max(0, f(pos) + margin − f(neg)) of every triple, and the gradients of their sum.

    `triples`: numbers of (head, relation, tail, negative), and whether the negative replaces the head. The gradients
    are added by one thread: triples share rows, and synchronising threads would take longer.
    """
    head, relation, tail, negative, corrupts_head = triples
    dim = entity_ED.shape[1]
    for i in prange(loss_B.shape[0]):
        h, r, t = head[i], relation[i], tail[i]
        other_h, other_t = (negative[i], t) if corrupts_head[i] else (h, negative[i])
        near = _translated_distance(entity_ED[h], relation_RD[r], entity_ED[t])
        far = _translated_distance(entity_ED[other_h], relation_RD[r], entity_ED[other_t])
        loss = near + margin - far
        loss_B[i] = np.float32(0) if loss <= 0 else loss  # NaN stays NaN
    grad_entity_ED[:] = 0
    grad_relation_RD[:] = 0
    near_D, far_D = np.empty(dim, np.float32), np.empty(dim, np.float32)
    for i in range(loss_B.shape[0]):
        if loss_B[i] > 0:
            h, r, t = head[i], relation[i], tail[i]
            other_h, other_t = (negative[i], t) if corrupts_head[i] else (h, negative[i])
            for d in range(dim):
                near_D[d] = np.sign(entity_ED[h, d] + relation_RD[r, d] - entity_ED[t, d])
                far_D[d] = np.sign(entity_ED[other_h, d] + relation_RD[r, d] - entity_ED[other_t, d])
            # The rows may coincide: each has a loop of its own.
            for d in range(dim):
                grad_relation_RD[r, d] += near_D[d] - far_D[d]
            for d in range(dim):
                grad_entity_ED[h, d] += near_D[d]
            for d in range(dim):
                grad_entity_ED[t, d] -= near_D[d]
            for d in range(dim):
                grad_entity_ED[other_h, d] -= far_D[d]
            for d in range(dim):
                grad_entity_ED[other_t, d] += far_D[d]
