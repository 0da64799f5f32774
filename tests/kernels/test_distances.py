"""L1 distances and the fused margin loss with their gradients, against sums in 64 bits."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from dkge_dist.kernels.distances import l1_backward, l1_distances, margin_l1
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


@example(19, 30, 11, 549)  # two numbers are equal
@given(sizes, sizes, sizes, seeds)
def test_gradient_of_distances_is_the_weighted_sum_of_signs(queries: int, candidates: int, dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, candidate, grad = normal(rng, queries, dim), normal(rng, candidates, dim), normal(rng, queries, candidates)
    grad[rng.random(grad.shape) < 0.2] = 0
    # Any slope between both is one of equal numbers; the kernel takes that of a smaller first argument.
    more, less = (np.where(one, 1.0, -1.0) for one in (query[:, None] > candidate, query[:, None] < candidate))
    by_query, by_candidate = np.full_like(query, np.nan), np.full_like(candidate, np.nan)
    l1_backward(query, candidate, grad, by_query)
    l1_backward(candidate, query, np.ascontiguousarray(grad.T), by_candidate)
    np.testing.assert_allclose(by_query, np.einsum("qn,qnd->qd", grad, more), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(by_candidate, np.einsum("qn,qnd->nd", grad, less), rtol=1e-4, atol=1e-4)


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
