"""The fused softmax loss with all its gradients: exactly as sums in 64 bits, and with what is negligible left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.softmax import CHUNKS, NEGLIGIBLE, softmax_l1
from tests import reference

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


@given(sizes, sizes, sizes, st.sampled_from([0.0, 2.5]), seeds)
def test_fused_softmax_equals_the_reference(queries: int, candidates: int, dim: int, margin: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, candidate = normal(rng, queries, dim), normal(rng, candidates, dim)
    positive, logq = np.abs(normal(rng, queries)) * dim, normal(rng, candidates)
    known = rng.random((queries, candidates)) < 0.2
    own = np.abs(normal(rng, queries)) * dim
    own[rng.random(queries) < 0.3] = np.inf
    denied = rng.random(queries) < 0.4
    # Something competes with every denied positive.
    known[denied, 0] = False
    found = softmax(query, candidate, positive, own, known, logq, margin, denied)
    expected = reference.softmax_loss(query, candidate, positive, denied, own, known, logq, margin)
    for mine, truth in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-4, atol=1e-4)
    assert not found[2][np.isinf(own)].any()


@given(sizes, sizes, seeds)
def test_own_entity_counts_as_one_more_candidate_at_its_distance(queries: int, dim: int, seed: int) -> None:
    """And where it is infinitely far, as none: all numbers keep their bits."""
    rng = np.random.default_rng(seed)
    query, candidate = normal(rng, queries, dim), normal(rng, 9, dim)
    positive, logq = np.abs(normal(rng, queries)) * dim, normal(rng, 9)
    known = rng.random((queries, 9)) < 0.2
    far = np.full(queries, np.inf, np.float32)
    # A known candidate takes no part, so that one which is never known can stand for the own entity.
    extra = np.concatenate([candidate, query[:1]])
    with_extra = np.concatenate([known, np.ones((queries, 1), bool)], 1)
    with_extra[0, 9] = False
    own = far.copy()
    own[0] = 0
    as_own = softmax(query, candidate, positive, own, known, logq, 0.0)
    as_candidate = softmax(query, extra, positive, far, with_extra, np.append(logq, np.float32(0)), 0.0)
    np.testing.assert_allclose(as_own[0], as_candidate[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(as_own[1], as_candidate[1], rtol=1e-5, atol=1e-6)
    alone = softmax(query[1:], candidate, positive[1:], far[1:], known[1:], logq, 0.0)
    for mine, theirs in zip(as_own[:4], alone[:4], strict=True):
        assert mine[1:].tobytes() == theirs.tobytes(), "the own entity of one query is nothing to another"


@pytest.mark.parametrize("has_own", [False, True])
def test_denied_positive_is_pushed_away_however_sure_its_vectors_are(has_own: bool) -> None:
    """Where 1 − p is below what 32 bits hold, too: the nearest other candidate is pulled as hard as it is pushed."""
    query = np.zeros((3, 2), np.float32)
    candidate = np.array([[150, 150], [200, 200]], np.float32)
    known, denied = np.zeros((3, 2), bool), np.array([True, True, False])
    own = np.array([250 if has_own else np.inf] * 3, np.float32)
    positive = np.array([1, 299, 1], np.float32)
    loss, by_positive, by_own, by_query, by_candidate = softmax(
        query, candidate, positive, own, known, np.zeros(2, np.float32), 0.0, denied
    )
    nearest, p = (250, 0.0) if has_own else (300, 1 / (1 + np.exp(-1)))
    np.testing.assert_allclose(loss, [nearest - 1, -np.log(1 - p), 0], rtol=1e-5)
    np.testing.assert_allclose(by_positive, [-1, -p, 0], atol=1e-6)
    if has_own:
        np.testing.assert_allclose(by_own, [1, 0, 0], atol=1e-6)
    else:
        np.testing.assert_allclose(by_candidate, [[1 + p, 1 + p], [0, 0]], rtol=1e-5)
        np.testing.assert_allclose(by_query[:, 0], [-1, -p, 0], rtol=1e-5)


def test_denied_positive_that_nothing_competes_with_is_left_alone() -> None:
    """There is no other answer for its question to take its place."""
    query, candidate = np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)
    far, denied = np.full(2, np.inf, np.float32), np.array([True, False])
    found = softmax(
        query, candidate, np.ones(2, np.float32), far, np.ones((2, 4), bool), np.zeros(4, np.float32), 0.0, denied
    )
    for values in found:
        assert not values.any()


def softmax(
    query: np.ndarray, candidate: np.ndarray, positive: np.ndarray, own: np.ndarray, known: np.ndarray,
    logq: np.ndarray, margin: float, denied: np.ndarray | None = None, negligible: float = 0.0,
) -> list[np.ndarray]:  # fmt: skip
    """Loss and gradients by positive, own entity, query and candidates."""
    denied = np.zeros(query.shape[0], np.bool_) if denied is None else denied
    found = softmax_l1(query, candidate, positive, denied, own, known, logq, margin, negligible)
    return [*found[:-1], found.by_candidate_CND.sum(0)]


@given(st.integers(1, 12), st.integers(1, 300), sizes, st.sampled_from([0.1, 1.0, 5.0]), seeds)
def test_what_is_left_out_is_negligible(queries: int, candidates: int, dim: int, scale: float, seed: int) -> None:
    """Each candidate by no more than its share: of the loss, of what speaks for the positive, of every gradient."""
    rng = np.random.default_rng(seed)
    query, candidate = scale * normal(rng, queries, dim), scale * normal(rng, candidates, dim)
    # Outliers lie outside of the codes.
    query[0], candidate[-1] = 9 * query[0], 9 * candidate[-1]
    nearest = np.abs(query[:, None] - candidate).sum(-1).min(1)
    positive, logq = nearest + scale * normal(rng, queries), normal(rng, candidates)
    known = rng.random((queries, candidates)) < 0.1
    own = np.where(rng.random(queries) < 0.3, np.inf, nearest + scale * normal(rng, queries)).astype(np.float32)
    denied = rng.random(queries) < 0.3
    known[denied, 0] = False
    arguments = (query, candidate, positive, own, known, logq, 0.0, denied)
    found, exact = softmax(*arguments, NEGLIGIBLE), softmax(*arguments)
    off = 2 * candidates * NEGLIGIBLE
    for mine, truth in zip(found[:4], exact[:4], strict=True):
        np.testing.assert_allclose(mine, truth, rtol=1e-5, atol=off + 1e-5)
    np.testing.assert_allclose(found[4], exact[4], atol=queries * off + 1e-5)


def test_what_is_far_is_left_out() -> None:
    """Else nothing is saved: beyond the line no candidate gets a gradient, within it each does."""
    query, candidate = np.zeros((1, 16), np.float32), np.full((130, 16), 2.0, np.float32)
    candidate[5] = candidate[77] = 0.25
    arguments = (query, candidate, np.ones(1), np.full(1, np.inf), np.zeros((1, 130), bool), np.zeros(130), 0.0)
    (by_candidate,) = softmax(*arguments, None, NEGLIGIBLE)[4:]
    assert np.flatnonzero(by_candidate.any(1)).tolist() == [5, 77]
    assert softmax(*arguments)[4].any(1).all()


@pytest.mark.parametrize("which", ["query", "candidate", "positive"])
def test_what_is_not_a_number_shows_in_the_loss(which: str) -> None:
    """Training stops there; codes know nothing of it."""
    rng = np.random.default_rng(0)
    given = {"query": normal(rng, 3, 9), "candidate": normal(rng, 70, 9), "positive": normal(rng, 3)}
    given[which][2] = np.nan
    far, known, logq = np.full(3, np.inf, np.float32), np.zeros((3, 70), bool), np.zeros(70, np.float32)
    loss = softmax(*given.values(), far, known, logq, 0.0, None, NEGLIGIBLE)[0]
    assert np.isnan(loss[2])


@pytest.mark.parametrize("queries", [1, CHUNKS - 1, CHUNKS, CHUNKS + 1, 5 * CHUNKS + 3])
def test_every_query_is_in_exactly_one_chunk(queries: int) -> None:
    """With one candidate at distance 0 the gradients count the queries."""
    query, candidate = np.ones((queries, 4), np.float32), np.zeros((1, 4), np.float32)
    known = np.zeros((queries, 1), np.bool_)
    distance, far = np.full(queries, 4, np.float32), np.full(queries, np.inf, np.float32)
    loss, *_, by_candidate = softmax(query, candidate, distance, far, known, np.zeros(1, np.float32), 0.0)
    np.testing.assert_allclose(loss, np.full(queries, np.log(2)), rtol=1e-5)
    np.testing.assert_allclose(by_candidate.sum(0), np.full(4, queries / 2), rtol=1e-5)
