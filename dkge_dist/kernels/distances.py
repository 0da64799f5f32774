"""L1 distances of all pairs of two sets of vectors, their gradients, and losses over distances in one pass.

Shapes: Q queries, N candidates, B triples, E entities, R relations, D dimensions. Every output row is summed by one
thread in a fixed order (see `sums`).
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.exponentials import exponentials
from dkge_dist.kernels.jit import parallel_kernel, prange, subkernel
from dkge_dist.kernels.sums import largest, total, translated_distance

CHUNKS = 8
"""Shares of the queries that sum gradients of candidates separately; fixed, so that sums do not depend on threads."""

NEGLIGIBLE = np.float32(1e-7)
"""Softmax weights below this change no float32 gradient; most negatives of a trained model are that far away."""

SURE = np.float32(40)
"""A denied positive counts as no nearer than the others by more: p is 1 there, and they must not vanish beside it."""


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


@parallel_kernel
def softmax_l1(  # type: ignore[no-untyped-def]
    query_QD,
    candidate_ND,
    positive_Q,
    denied_Q,
    own_Q,
    known_QN,
    logq_N,
    margin,
    loss_Q,
    grad_positive_Q,
    grad_own_Q,
    grad_query_QD,
    parts_CND,
):
    """Cross-entropy of the positive among the candidates, with −distance as logit, and all its gradients.

    A candidate counts as if it were there exp(logq) times; known ones do not count. `own_Q` is the distance of one more
    candidate of each query, infinite where there is none. Where `denied_Q`, the positive is none any more: its loss is
    −log(1 − p) instead of −log p, which pulls the others by p, in the shares that they have among themselves. Without
    others it has none.
    The gradient by the candidates comes in `CHUNKS` parts to be added up. Distances are summed with the candidates side
    by side, dimension after dimension: no vector register has to be summed at the end.
    """
    queries, dim = query_QD.shape
    count = candidate_ND.shape[0]
    share = (queries + CHUNKS - 1) // CHUNKS
    across_DN = np.ascontiguousarray(candidate_ND.T)
    for chunk in prange(CHUNKS):
        parts_CND[chunk] = 0
        weights_2N = np.empty((2, count), np.float32)
        begin, end = chunk * share, min(queries, (chunk + 1) * share)
        for q in range(begin, end):
            weights = weights_2N[(q - begin) % 2]
            true = -positive_Q[q] - margin
            weights[:] = logq_N
            for d in range(0, dim - 3, 4):
                one, two, three, four = query_QD[q, d], query_QD[q, d + 1], query_QD[q, d + 2], query_QD[q, d + 3]
                for n in range(count):
                    near = abs(one - across_DN[d, n]) + abs(two - across_DN[d + 1, n])
                    weights[n] -= near + abs(three - across_DN[d + 2, n]) + abs(four - across_DN[d + 3, n])
            for d in range(dim - dim % 4, dim):
                for n in range(count):
                    weights[n] -= abs(query_QD[q, d] - across_DN[d, n])
            for n in range(count):
                if known_QN[q, n]:
                    weights[n] = -np.inf
            others = max(-own_Q[q], largest(weights))
            excess = np.float32(0)
            if denied_Q[q] and true > others + SURE and others > -np.inf:
                excess = true - (others + SURE)
                true = others + SURE
            top = max(true, others)
            exponentials(weights, top)
            chance, own = np.exp(true - top), np.exp(-own_Q[q] - top)
            rest = total(weights) + own
            normal = chance + rest
            chance /= normal
            loss_Q[q] = np.log(normal) + top - true
            grad_positive_Q[q] = 1 - chance
            # What the weights of the others are divided by, and multiplied with.
            base, sign = normal, np.float32(1)
            if denied_Q[q] and rest > 0:
                base, sign = rest, -chance
                loss_Q[q] = np.log(normal) - np.log(rest) + excess
                grad_positive_Q[q] = -chance
            grad_own_Q[q] = -sign * (own / base)
            for n in range(count):
                weight = sign * (weights[n] / base)
                weights[n] = np.float32(0) if abs(weight) <= NEGLIGIBLE else weight
            for d in range(dim):
                grad_query_QD[q, d] = 0
            if (q - begin) % 2 == 0:
                continue
            # Two queries and two candidates at a time: each of their rows is loaded and stored once for two pairs.
            # (In a function of its own the loop would not be vectorised: LLVM could not tell that the rows are apart.)
            for n in range(0, count - 1, 2):
                w00, w01, w10, w11 = weights_2N[0, n], weights_2N[0, n + 1], weights_2N[1, n], weights_2N[1, n + 1]
                if w00 != 0 or w01 != 0 or w10 != 0 or w11 != 0:
                    for d in range(dim):
                        q0, q1, c0, c1 = query_QD[q - 1, d], query_QD[q, d], candidate_ND[n, d], candidate_ND[n + 1, d]
                        s00 = w00 if q0 > c0 else -w00
                        s01 = w01 if q0 > c1 else -w01
                        s10 = w10 if q1 > c0 else -w10
                        s11 = w11 if q1 > c1 else -w11
                        grad_query_QD[q - 1, d] = grad_query_QD[q - 1, d] - s00 - s01
                        grad_query_QD[q, d] = grad_query_QD[q, d] - s10 - s11
                        parts_CND[chunk, n, d] = parts_CND[chunk, n, d] + s00 + s10
                        parts_CND[chunk, n + 1, d] = parts_CND[chunk, n + 1, d] + s01 + s11
            for n in range(count - count % 2, count):
                for row in range(2):
                    at, weight = q - 1 + row, weights_2N[row, n]
                    _add_slope(query_QD[at], candidate_ND[n], weight, grad_query_QD[at], parts_CND[chunk, n])
        for q in range(max(begin, end - (end - begin) % 2), end):
            for n in range(count):
                _add_slope(query_QD[q], candidate_ND[n], weights_2N[0, n], grad_query_QD[q], parts_CND[chunk, n])


@subkernel
def _add_slope(query_D, candidate_D, weight, by_query_D, by_candidate_D):  # type: ignore[no-untyped-def]
    """The gradients of one pair."""
    if weight != 0:
        for d in range(query_D.shape[0]):
            slope = weight if query_D[d] > candidate_D[d] else -weight
            by_query_D[d] -= slope
            by_candidate_D[d] += slope


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
        near = translated_distance(entity_ED[h], relation_RD[r], entity_ED[t])
        far = translated_distance(entity_ED[other_h], relation_RD[r], entity_ED[other_t])
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
