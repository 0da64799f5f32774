"""L1 distances and the fused losses with all their gradients, against sums in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.distances import CHUNKS, l1_backward, l1_distances, margin_l1, softmax_l1
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.types import ROW
from tests import reference

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32 - 1)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


@given(sizes, sizes, sizes, seeds)
def test_distances_of_all_pairs_are_exact_sums(queries: int, candidates: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, candidate = normal(rng, queries, dim), normal(rng, candidates, dim)
    out = np.full((queries, candidates), np.nan, np.float32)
    l1_distances(query, candidate, out)
    expected = [[reference.sequential_l1(q, c) for c in candidate] for q in query[:3]]
    assert out[:3].tolist() == [[float(value) for value in row] for row in expected]


@given(sizes, sizes, sizes, seeds)
def test_gradient_of_distances_is_the_weighted_sum_of_signs(queries: int, candidates: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, candidate, grad = normal(rng, queries, dim), normal(rng, candidates, dim), normal(rng, queries, candidates)
    grad[rng.random(grad.shape) < 0.2] = 0
    signs = np.sign(query[:, None].astype(np.float64) - candidate[None])
    by_query, by_candidate = np.full_like(query, np.nan), np.full_like(candidate, np.nan)
    l1_backward(query, candidate, grad, by_query)
    l1_backward(candidate, query, np.ascontiguousarray(grad.T), by_candidate)
    np.testing.assert_allclose(by_query, np.einsum("qn,qnd->qd", grad, signs), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_candidate, -np.einsum("qn,qnd->nd", grad, signs), rtol=1e-4, atol=1e-4)


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
    logq: np.ndarray, margin: float, denied: np.ndarray | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Loss and gradients by positive, own entity, query and candidates, as the kernel fills them."""
    queries = query.shape[0]
    denied = np.zeros(queries, np.bool_) if denied is None else denied
    loss, by_positive, by_own = (np.full(queries, np.nan, np.float32) for _ in range(3))
    by_query, parts = np.full_like(query, np.nan), np.full((CHUNKS, *candidate.shape), np.nan, np.float32)
    own = own.astype(np.float32)
    out = (loss, by_positive, by_own, by_query, parts)
    softmax_l1(query, candidate, positive, denied, own, known, logq, np.float32(margin), *out)
    return [loss, by_positive, by_own, by_query, parts.sum(0)]


@given(sizes, st.integers(1, 6), sizes, seeds)
def test_fused_margin_loss_equals_the_reference(triples: int, entities: int, dim: int, seed: int) -> None:
    """Few entities: triples share them, and a head may be its own tail or negative."""
    rng = np.random.default_rng(seed)
    entity, relation = normal(rng, entities, dim), normal(rng, 2, dim)
    columns = [rng.integers(0, limit, triples).astype(ROW) for limit in (entities, 2, entities, entities)]
    at_head = rng.random(triples) < 0.5
    loss, by_entity = np.full(triples, np.nan, np.float32), np.full_like(entity, np.nan)
    by_relation = np.full_like(relation, np.nan)
    given = tuple(as_readonly(column) for column in (*columns, at_head))
    margin_l1(entity, relation, given, np.float32(2.0), loss, by_entity, by_relation)
    chosen = list(zip(*(column.tolist() for column in columns), at_head.tolist(), strict=True))
    expected = reference.margin_loss(entity, relation, chosen, 2.0)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-4, atol=1e-4)
    # A loss within rounding of zero may count in one of the two and not in the other.
    if np.abs(expected[0][expected[0] > 0]).min(initial=1) > 1e-4:
        np.testing.assert_allclose(by_entity, expected[1], atol=1e-4)
        np.testing.assert_allclose(by_relation, expected[2], atol=1e-4)


@pytest.mark.parametrize("queries", [1, CHUNKS - 1, CHUNKS, CHUNKS + 1, 5 * CHUNKS + 3])
def test_every_query_is_in_exactly_one_chunk(queries: int) -> None:
    """With one candidate at distance 0 the gradients count the queries."""
    query, candidate = np.ones((queries, 4), np.float32), np.zeros((1, 4), np.float32)
    known = np.zeros((queries, 1), np.bool_)
    distance, far = np.full(queries, 4, np.float32), np.full(queries, np.inf, np.float32)
    loss, *_, by_candidate = softmax(query, candidate, distance, far, known, np.zeros(1, np.float32), 0.0)
    np.testing.assert_allclose(loss, np.full(queries, np.log(2)), rtol=1e-5)
    np.testing.assert_allclose(by_candidate.sum(0), np.full(4, queries / 2), rtol=1e-5)
