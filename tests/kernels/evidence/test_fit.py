"""The likelihood of true answers against plain sums, and its gradients against finite differences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.evidence.fit import likelihood
from dkge_dist.types import Array


class Given(NamedTuple):
    indptr: Array
    features: Array
    fixed: Array
    distance: Array
    truth: Array


def drawn(seed: int) -> tuple[Given, Array]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, rng.integers(1, 6))
    indptr = np.append(0, np.cumsum(sizes))
    count = int(indptr[-1])
    distance = rng.random(count).astype(np.float32) * 9
    features = rng.normal(size=(count, 3)).astype(np.float32)
    given_ = Given(indptr, features, rng.normal(size=count), distance, indptr[:-1] + rng.integers(0, sizes))
    return given_, rng.normal(size=(sizes.shape[0], 3))


def slow(problem: Given, theta: Array, scale: float) -> Array:
    losses = []
    for q in range(theta.shape[0]):
        part = slice(problem.indptr[q], problem.indptr[q + 1])
        distance = problem.distance[part].astype(np.float64)
        scores = problem.features[part].astype(np.float64) @ theta[q] + problem.fixed[part] - scale * distance
        losses.append(np.log(np.exp(scores).sum()) - scores[problem.truth[q] - problem.indptr[q]])
    return np.array(losses)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.01, 3))
def test_values_and_gradients(seed: int, scale: float) -> None:
    problem, theta = drawn(seed)
    loss, by_theta, by_scale = likelihood(*problem, theta, scale)
    np.testing.assert_allclose(loss, slow(problem, theta, scale), rtol=1e-6, atol=1e-9)
    step = 1e-6
    difference = (slow(problem, theta, scale + step) - slow(problem, theta, scale - step)) / (2 * step)
    np.testing.assert_allclose(by_scale, difference, rtol=1e-4, atol=1e-6)
    for column in range(3):
        moved = np.zeros_like(theta)
        moved[:, column] = step
        difference = (slow(problem, theta + moved, scale) - slow(problem, theta - moved, scale)) / (2 * step)
        np.testing.assert_allclose(by_theta[:, column], difference, rtol=1e-4, atol=1e-6)


def test_an_answer_without_rivals_is_certain() -> None:
    one = Given(np.array([0, 1]), np.ones((1, 2), np.float32), np.zeros(1), np.ones(1, np.float32), np.array([0]))
    loss, by_theta, by_scale = likelihood(*one, np.ones((1, 2)), 2.0)
    assert (loss.tolist(), by_theta.tolist(), by_scale.tolist()) == ([0.0], [[0.0, 0.0]], [0.0])


def test_scores_of_thousands_do_not_overflow() -> None:
    problem, theta = drawn(3)
    loss, by_theta, by_scale = likelihood(*problem, theta * 1e5, 1.0)
    assert all(np.isfinite(part).all() for part in (loss, by_theta, by_scale))
    assert loss.max() > 1e3
