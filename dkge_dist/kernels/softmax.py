"""Cross-entropy of positives among candidates that a batch shares, by L1 distances, and all its gradients, in one pass.

Most candidates of a trained model are so far away that they weigh nothing. 8-bit codes (see `codes`) tell which: a
lower bound of 64 distances costs as much as a distance or two. Who may weigh more than `negligible` beside the positive
or the question's own entity is computed exactly; who weighs less is left out of the loss and of all gradients. So the
loss of a positive among N candidates is off by at most N · negligible, and each of its gradients by twice that.

Shapes: Q queries, N candidates, D dimensions, T tiles of candidates (see `byte_distances`), G groups of 8 dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.byte_distances import rows_within
from dkge_dist.kernels.codes import ALL, NO_ERROR_KNOWN, NONE_BELOW, groups_of, tiles_of
from dkge_dist.kernels.hashing import lowest_set_bit
from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange, subkernel
from dkge_dist.kernels.ranks import TILE
from dkge_dist.kernels.vectors import add_slopes, distance, exponentials, total
from dkge_dist.types import Array

CHUNKS = 8
"""Shares of the queries that sum gradients of candidates separately; fixed, so that sums do not depend on threads."""

NEGLIGIBLE = 1e-5
"""Weights below this are left out: N of them are far less than what drawing N candidates at random leaves to chance."""

SURE = np.float32(40)
"""A denied positive counts as no nearer than the others by more: p is 1 there, and they must not vanish beside it."""

WIDTH = 4.0
"""Codes go so many root mean squares to either side of 0; what lies beyond costs precision, not correctness."""


class SoftmaxLoss(NamedTuple):
    """The loss of every query, and the gradients of their sum; those by candidates in `CHUNKS` parts to be added up."""

    loss_Q: Array
    by_positive_Q: Array
    by_own_Q: Array
    by_query_QD: Array
    by_candidate_CND: Array


@subkernel
def _encode(vector_D, low, per_unit, codes):  # type: ignore[no-untyped-def]
    """Fill the codes of a vector; how far it may be from them, in their units."""
    error = np.float32(0)
    for d in range(vector_D.shape[0]):
        place = (vector_D[d] - low) * per_unit
        code = np.rint(min(max(place, np.float32(0)), np.float32(255)))
        error += abs(place - code)
        codes[d] = np.uint8(code)
    # The rounding of the sum included.
    return error * np.float32(1.0001) + np.float32(0.01)


@parallel_kernel
def _encode_candidates(candidate_ND, logq_N, least_logq, low, per_unit, tiles_TGW):  # type: ignore[no-untyped-def]
    """Fill the tiles. Who counts more than the least may be farther away by as much, which is added to its error."""
    count, groups = candidate_ND.shape[0], tiles_TGW.shape[1] - 1
    for tile in prange(tiles_TGW.shape[0]):
        words = np.zeros(groups, np.uint64)
        for t in range(TILE):
            n = tile * TILE + t
            error = np.float32(np.inf)
            if n < count:
                error = _encode(candidate_ND[n], low, per_unit, words.view(np.uint8))
                error += max(logq_N[n] - least_logq, np.float32(0)) * per_unit
            for g in range(groups):
                tiles_TGW[tile, g, t] = words[g]
            # Of what is not finite nothing is known: it is always compared exactly, and shows in the loss.
            is_known = error < NO_ERROR_KNOWN
            tiles_TGW[tile, groups, t] = np.uint64(np.ceil(error)) if is_known else np.uint64(NO_ERROR_KNOWN)


@subkernel
def _reach(nearest, least_logq, log_negligible, per_unit, error):  # type: ignore[no-untyped-def]
    """The distance by codes from which on a candidate that counts least is negligible beside a logit of `nearest`."""
    reach = (least_logq - nearest - log_negligible) * per_unit + error
    if not reach < np.float32(ALL):
        return np.int64(ALL)
    return np.int64(max(np.ceil(reach), np.float32(NONE_BELOW)))


@parallel_kernel
def _softmax(  # type: ignore[no-untyped-def]
    query_QD,
    candidate_ND,
    tiles_TGW,
    low,
    per_unit,
    positive_Q,
    denied_Q,
    own_Q,
    known_QN,
    logq_N,
    least_logq,
    margin,
    negligible,
    out,
):
    loss_Q, by_positive_Q, by_own_Q, by_query_QD, parts_CND = out
    queries, count = known_QN.shape
    groups = tiles_TGW.shape[1] - 1
    share = (queries + CHUNKS - 1) // CHUNKS
    log_negligible = np.log(negligible)
    for chunk in prange(CHUNKS):
        parts_CND[chunk, :] = 0  # `parts_CND[chunk] = 0` would make numba take 0 for `parts_CND[chunk]` below
        near_N, weight_N = np.empty(count, np.int32), np.empty(count, np.float32)
        words = np.zeros((1, groups), np.uint64)
        begin, end = chunk * share, min(queries, (chunk + 1) * share)
        for q in range(begin, end):
            true = -positive_Q[q] - margin
            # The weights of others beside a denied positive are those among themselves.
            nearest = -own_Q[q] if denied_Q[q] else max(true, -own_Q[q])
            error = _encode(query_QD[q], low, per_unit, words[0].view(np.uint8))
            limit = _reach(nearest, least_logq, log_negligible, per_unit, error)
            found, others = 0, -own_Q[q]
            for tile in range(tiles_TGW.shape[0]):
                rows, _ = rows_within(tiles_TGW, tile, words, 0, limit, NONE_BELOW)
                while rows:
                    n = tile * TILE + lowest_set_bit(rows)
                    rows &= rows - np.uint64(1)
                    if n < count and not known_QN[q, n]:
                        near_N[found] = n
                        weight_N[found] = logq_N[n] - distance(query_QD[q], candidate_ND[n])
                        others = max(others, weight_N[found])
                        found += 1
            weights = weight_N[:found]
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
            by_positive_Q[q] = 1 - chance
            # What the weights of the others are divided by, and multiplied with.
            base, sign = normal, np.float32(1)
            if denied_Q[q] and rest > 0:
                base, sign = rest, -chance
                loss_Q[q] = np.log(normal) - np.log(rest) + excess
                by_positive_Q[q] = -chance
            by_own_Q[q] = -sign * (own / base)
            by_query_QD[q] = 0
            kept = 0
            for i in range(found):
                weight = sign * (weights[i] / base)
                if abs(weight) > negligible:
                    near_N[kept], weight_N[kept] = near_N[i], weight
                    kept += 1
            add_slopes(query_QD[q], candidate_ND, near_N, weight_N, kept, by_query_QD[q], parts_CND[chunk])


def softmax_l1(
    query_QD: Array,
    candidate_ND: Array,
    positive_Q: Array,
    denied_Q: Array,
    own_Q: Array,
    known_QN: Array,
    logq_N: Array,
    margin: float,
    negligible: float = NEGLIGIBLE,
) -> SoftmaxLoss:
    """Cross-entropy of the positive among the candidates, with −distance as logit, and all its gradients.

    A candidate counts as if it were there exp(logq) times; known ones do not count. `own_Q` is the distance of one more
    candidate of each query, infinite where there is none. Where `denied_Q`, the positive is none any more: its loss is
    −log(1 − p) instead of −log p, which pulls the others by p, in the shares that they have among themselves. Without
    others it has none.
    """
    count, dim = candidate_ND.shape
    query, candidate, positive, own, logq = (
        as_readonly(array, np.float32) for array in (query_QD, candidate_ND, positive_Q, own_Q, logq_N)
    )
    width = WIDTH * float(np.sqrt(np.einsum("nd,nd->", candidate, candidate) / max(candidate.size, 1))) or 1.0
    low, per_unit = np.float32(-width), np.float32(255 / (2 * width))
    tiles = np.empty((tiles_of(count), groups_of(dim) + 1, TILE), np.uint64)
    least_logq = np.float32(np.min(logq, where=np.isfinite(logq), initial=np.inf))
    _encode_candidates(candidate, logq, least_logq, low, per_unit, tiles)
    loss, by_positive, by_own = (np.empty(query.shape[0], np.float32) for _ in range(3))
    by_query, by_candidate = np.empty(query.shape, np.float32), np.empty((CHUNKS, count, dim), np.float32)
    out = SoftmaxLoss(loss, by_positive, by_own, by_query, by_candidate)
    denied, known = as_readonly(denied_Q), as_readonly(known_QN)
    _softmax(
        query, candidate, as_readonly(tiles), low, per_unit, positive, denied, own, known, logq, least_logq,
        np.float32(margin), np.float32(negligible), out,
    )  # fmt: skip
    return out
