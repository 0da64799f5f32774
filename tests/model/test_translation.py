"""The score and distances of all pairs, with their gradients, against plain torch in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dkge_dist.model.translation import pair_distances, score
from tests.model.vectors import SHAPES, exact_distances, gradients, vectors


def test_score_is_the_l1_translation() -> None:
    head, relation, tail = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, -1.0]]), torch.tensor([[0.0, 3.0]])
    assert score(head, relation, tail).tolist() == [3.5]


@pytest.mark.parametrize(("queries", "candidates", "dim"), SHAPES)
def test_pair_distances_and_their_gradients(queries: int, candidates: int, dim: int) -> None:
    leaves = [vectors(queries, dim).requires_grad_(), vectors(candidates, dim, seed=1).requires_grad_()]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    weight = vectors(queries, candidates, seed=2)
    found, truth = pair_distances(*leaves), exact_distances(*exact)
    np.testing.assert_allclose(found.detach(), truth.detach(), rtol=1e-5)
    mine, theirs = gradients((found * weight).sum(), leaves), gradients((truth * weight.double()).sum(), exact)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_distances_of_strided_vectors() -> None:
    query, candidate = vectors(8, 5).T, vectors(8, 6, seed=1).T
    np.testing.assert_allclose(pair_distances(query, candidate), exact_distances(query, candidate), rtol=1e-5)


def test_distances_of_queries_and_scores_of_triples_agree() -> None:
    head, relation, tail = (vectors(4, 7, seed=seed) for seed in range(3))
    tails, heads = pair_distances(head + relation, tail), pair_distances(tail - relation, head)
    for found in (tails.diagonal(), heads.diagonal()):
        np.testing.assert_allclose(found, score(head, relation, tail), rtol=1e-5)


def test_distances_on_another_device_stay_there() -> None:
    leaves = [vectors(3, 4).to("meta").requires_grad_(), vectors(5, 4).to("meta").requires_grad_()]
    out = pair_distances(*leaves)
    assert (out.device.type, out.shape) == ("meta", (3, 5))
    assert all(slope.device.type == "meta" for slope in torch.autograd.grad(out.sum(), leaves))


@pytest.mark.gpu
def test_gpu_distances_are_those_of_the_cpu() -> None:
    query, candidate = vectors(40, 100), vectors(33, 100, seed=1)
    np.testing.assert_allclose(
        pair_distances(query.cuda(), candidate.cuda()).cpu(), pair_distances(query, candidate), rtol=1e-4
    )
