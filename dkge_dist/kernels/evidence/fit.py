"""The likelihood of true answers among candidates, and its gradient: what fitting evidence calls again and again.

Shapes: Q questions, N candidates of all questions together, J features.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange
from dkge_dist.types import Array


@parallel_kernel
def _likelihood(indptr, feature_NJ, fixed_N, distance_N, truth_Q, theta_QJ, scale, loss_Q, grad_QJ, slope_Q):  # type: ignore[no-untyped-def]
    features = feature_NJ.shape[1]
    for q in prange(truth_Q.shape[0]):
        begin, end = indptr[q], indptr[q + 1]
        score = np.empty(end - begin)
        highest = -np.inf
        for n in range(begin, end):
            total = fixed_N[n] - scale * distance_N[n]
            for j in range(features):
                total += theta_QJ[q, j] * feature_NJ[n, j]
            score[n - begin] = total
            highest = max(highest, total)
        truth, mass = truth_Q[q], 0.0
        loss_Q[q] = highest - score[truth - begin]
        # From here on `score` holds what every candidate weighs: an exponential costs more than all else here.
        for n in range(end - begin):
            score[n] = np.exp(score[n] - highest)
            mass += score[n]
        loss_Q[q] += np.log(mass)
        slope_Q[q] = distance_N[truth]
        for j in range(features):
            grad_QJ[q, j] = -feature_NJ[truth, j]
        for n in range(begin, end):
            chance = score[n - begin] / mass
            slope_Q[q] -= chance * distance_N[n]
            for j in range(features):
                grad_QJ[q, j] += chance * feature_NJ[n, j]


def likelihood(
    indptr: Array, feature_NJ: Array, fixed_N: Array, distance_N: Array, truth_Q: Array, theta_QJ: Array, scale: float
) -> tuple[Array, Array, Array]:
    """(−log likelihood, its gradient by θ, its slope by the scale) of every question.

    A candidate scores θ·features + fixed − scale·distance; question q has the candidates `indptr[q]:indptr[q + 1]`, of
    which `truth_Q[q]` is the true one.
    """
    questions, features = theta_QJ.shape
    loss, grad, slope = np.empty(questions), np.empty((questions, features)), np.empty(questions)
    columns = (
        as_readonly(feature_NJ, np.float32),
        as_readonly(fixed_N, np.float64),
        as_readonly(distance_N, np.float32),
    )
    truth, theta = as_readonly(truth_Q, np.int64), as_readonly(theta_QJ, np.float64)
    _likelihood(as_readonly(indptr, np.int64), *columns, truth, theta, float(scale), loss, grad, slope)
    return loss, grad, slope
