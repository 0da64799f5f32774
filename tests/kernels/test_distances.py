"""L1 distances and the fused softmax loss against plain torch in 64 bits."""

import numpy as np
import pytest
import torch

from dkge_dist.model.losses import (
    Corrupted,
    corrupted_margin_loss,
    margin_loss,
    plain_corrupted_margin_loss,
    plain_softmax_loss,
    self_adversarial_loss,
    softmax_loss,
)
from dkge_dist.model.translation import pair_distances, score

SHAPES = [(1, 1, 1), (7, 5, 3), (40, 33, 100), (9, 200, 17)]


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def exact_distances(query: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    return (query[:, None] - candidate[None]).abs().sum(-1)


def gradients(value: torch.Tensor, leaves: list[torch.Tensor]) -> list[np.ndarray]:
    return [g.numpy() for g in torch.autograd.grad(value, leaves)]


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


@pytest.mark.parametrize(("queries", "candidates", "dim"), SHAPES)
@pytest.mark.parametrize("margin", [0.0, 2.5])
def test_fused_softmax_loss(queries: int, candidates: int, dim: int, margin: float) -> None:
    leaves = [
        vectors(queries).abs().mul(dim).requires_grad_(),
        vectors(queries, dim).requires_grad_(),
        vectors(candidates, dim, seed=1).requires_grad_(),
    ]
    blocked, weight = vectors(queries, candidates, seed=3) > 1, vectors(candidates, seed=4)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found = softmax_loss(*leaves, blocked, weight, margin)
    truth = plain_softmax_loss(exact[0], exact_distances(exact[1], exact[2]), blocked, weight.double(), margin)
    np.testing.assert_allclose(found.detach(), truth.detach(), rtol=1e-5, atol=1e-4)
    for one, other in zip(gradients(found, leaves), gradients(truth, exact), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)


def test_a_negative_that_weighs_as_three_is_as_good_as_three_of_it() -> None:
    positive, query, negative = vectors(5).abs(), vectors(5, 8, seed=1), vectors(4, 8, seed=2)
    thrice = torch.cat([negative, negative[:1], negative[:1]])
    weight = torch.tensor([np.log(3.0), 0, 0, 0], dtype=torch.float32)
    one = softmax_loss(positive, query, negative, torch.zeros(5, 4, dtype=torch.bool), weight, 0.5)
    other = softmax_loss(positive, query, thrice, torch.zeros(5, 6, dtype=torch.bool), torch.zeros(6), 0.5)
    assert one.item() == pytest.approx(other.item(), rel=1e-5)


def test_a_positive_without_competition_costs_nothing() -> None:
    blocked = torch.ones(3, 4, dtype=torch.bool)
    positive = vectors(3).abs().requires_grad_()
    value = softmax_loss(positive, vectors(3, 8), vectors(4, 8), blocked, torch.zeros(4), 0.0)
    assert value.item() == 0
    assert not torch.autograd.grad(value, positive)[0].any()
    assert torch.isfinite(self_adversarial_loss(positive, vectors(3, 8), vectors(4, 8), blocked, torch.zeros(4), 1.0))


def test_margin_loss_is_the_published_one() -> None:
    positive, negative = torch.tensor([1.0, 5.0]), torch.tensor([12.0, 6.0])
    assert margin_loss(positive, negative, 10.0).item() == pytest.approx(0 + 9)


@pytest.mark.parametrize(("triples", "entities", "dim"), [(1, 1, 1), (40, 3, 7), (200, 30, 100)])
def test_fused_margin_loss(triples: int, entities: int, dim: int) -> None:
    """Few entities, so that triples share them and a head may be its own tail or negative."""
    rng = np.random.default_rng(triples)
    numbers = [
        torch.from_numpy(rng.integers(0, limit, triples, np.int32)) for limit in (entities, 2, entities, entities)
    ]
    chosen = Corrupted(*numbers, torch.from_numpy(rng.random(triples) < 0.5))
    leaves = [vectors(entities, dim).requires_grad_(), vectors(2, dim, seed=1).requires_grad_()]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found = corrupted_margin_loss(leaves[0], leaves[1], chosen, 2.0)
    truth = plain_corrupted_margin_loss(exact[0], exact[1], chosen, 2.0)
    np.testing.assert_allclose(found.detach(), truth.detach(), rtol=1e-5, atol=1e-5)
    for one, other in zip(gradients(found, leaves), gradients(truth, exact), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_margin_loss_that_is_no_number_stays_so() -> None:
    one = torch.zeros(1, dtype=torch.int32)
    broken = torch.full((1, 4), torch.nan)
    chosen = Corrupted(one, one, one, one, torch.zeros(1, dtype=torch.bool))
    assert torch.isnan(corrupted_margin_loss(broken, torch.zeros(1, 4), chosen, 1.0))


def test_score_is_the_l1_translation() -> None:
    head, relation, tail = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, -1.0]]), torch.tensor([[0.0, 3.0]])
    assert score(head, relation, tail).tolist() == [3.5]
