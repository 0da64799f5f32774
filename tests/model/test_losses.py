"""Losses and their gradients against plain torch in 64 bits, and on devices other than the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from dkge_dist.kernels.softmax import NEGLIGIBLE
from dkge_dist.model.losses import (
    Corrupted,
    Negatives,
    corrupted_margin_loss,
    margin_loss,
    plain_corrupted_margin_loss,
    plain_softmax_loss,
    self_adversarial_loss,
    softmax_loss,
)
from tests.model.vectors import SHAPES, exact_distances, gradients, vectors


@pytest.mark.parametrize(("queries", "candidates", "dim"), SHAPES)
@pytest.mark.parametrize("margin", [0.0, 2.5])
def test_softmax_loss_and_its_gradients(queries: int, candidates: int, dim: int, margin: float) -> None:
    leaves = [
        vectors(queries).abs().mul(dim).requires_grad_(),
        vectors(queries, dim).requires_grad_(),
        vectors(candidates, dim, seed=1).requires_grad_(),
        own_distances(queries).mul(dim).requires_grad_(),
    ]
    known, weight = vectors(queries, candidates, seed=3) > 1, vectors(candidates, seed=4)
    denied = some_denied(known)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found = softmax_loss(leaves[0], denied, leaves[1], Negatives(leaves[2], known, weight, leaves[3]), margin)
    truth = exact_softmax_loss(exact, denied, known, weight.double(), margin)
    np.testing.assert_allclose(found.detach(), truth.detach(), rtol=1e-5, atol=1e-4)
    # What weighs less is left out of the compiled loss (tests/kernels/test_softmax.py).
    left_out = candidates * NEGLIGIBLE
    for one, other in zip(gradients(found, leaves), gradients(truth, exact), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 + left_out)


def own_distances(count: int) -> Tensor:
    """Of own entities, every third of which is no negative."""
    own = vectors(count, seed=5).abs()
    own[::3] = torch.inf
    return own


def some_denied(known: Tensor) -> Tensor:
    """Every other positive that anything competes with."""
    return ~known.all(1) & (torch.arange(known.shape[0]) % 2 == 1)


def exact_softmax_loss(leaves: list[Tensor], denied: Tensor, known: Tensor, logq: Tensor, margin: float) -> Tensor:
    """Cross-entropy over (positive, own entity, negatives), written down plainly in 64 bits: −log p or −log(1 − p)."""
    positive, query, negative, own = leaves
    logits = (logq - exact_distances(query, negative)).masked_fill(known, -torch.inf)
    # An own entity at an infinite distance would make NaN of 0 · ∞ in the gradient: it is masked.
    itself = (-own).masked_fill(own.isinf(), -torch.inf)
    every = torch.cat([(-positive - margin).unsqueeze(1), itself.unsqueeze(1), logits], 1)
    logs = torch.log_softmax(every, 1)
    others = torch.logsumexp(logs[:, 1:], 1)
    return -torch.where(denied, others, logs[:, 0]).sum()


@pytest.mark.parametrize(("queries", "candidates", "dim"), SHAPES)
def test_plain_softmax_loss_is_the_fused_one(queries: int, candidates: int, dim: int) -> None:
    """What other devices run, in 64 bits."""
    leaves = [vectors(queries).abs().mul(dim), vectors(queries, dim), vectors(candidates, dim, seed=1)]
    exact = [leaf.double().requires_grad_() for leaf in (*leaves, own_distances(queries).mul(dim))]
    known, logq = vectors(queries, candidates, seed=3) > 1, vectors(candidates, seed=4).double()
    denied = some_denied(known)
    found = plain_softmax_loss(exact[0], denied, exact[1], Negatives(exact[2], known, logq, exact[3]), 2.5)
    truth = exact_softmax_loss(exact, denied, known, logq, 2.5)
    np.testing.assert_allclose(found.detach(), truth.detach(), rtol=1e-6)
    for one, other in zip(gradients(found, exact), gradients(truth, exact), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_logq_of_three_counts_as_three_negatives() -> None:
    positive, query, negative = vectors(5).abs(), vectors(5, 8, seed=1), vectors(4, 8, seed=2)
    thrice = torch.cat([negative, negative[:1], negative[:1]])
    weight = torch.tensor([np.log(3.0), 0, 0, 0], dtype=torch.float32)
    far = torch.full((5,), torch.inf)
    known = torch.zeros(5, 6, dtype=torch.bool)
    denied = torch.arange(5) > 2
    one = softmax_loss(positive, denied, query, Negatives(negative, known[:, :4], weight, far), 0.5)
    other = softmax_loss(positive, denied, query, Negatives(thrice, known, torch.zeros(6), far), 0.5)
    assert one.item() == pytest.approx(other.item(), rel=1e-5)


@pytest.mark.parametrize("is_denied", [False, True])
def test_positive_without_negatives_has_no_loss(is_denied: bool) -> None:
    negatives, denied = all_known(vectors(4, 8)), torch.full((3,), is_denied)
    positive = vectors(3).abs().requires_grad_()
    value = softmax_loss(positive, denied, vectors(3, 8), negatives, 0.0)
    assert value.item() == 0
    assert not torch.autograd.grad(value, positive)[0].any()
    assert torch.isfinite(self_adversarial_loss(positive, denied, vectors(3, 8), negatives, 1.0))


def all_known(negative: Tensor) -> Negatives:
    """Nothing competes with the three positives."""
    return Negatives(negative, torch.ones(3, 4, dtype=torch.bool), torch.zeros(4), torch.full((3,), torch.inf))


def test_margin_loss_is_the_published_one() -> None:
    positive, negative = torch.tensor([1.0, 5.0]), torch.tensor([12.0, 6.0])
    assert margin_loss(positive, negative, 10.0).item() == pytest.approx(0 + 9)


@pytest.mark.parametrize(("triples", "entities", "dim"), [(1, 1, 1), (40, 3, 7), (200, 30, 100)])
def test_corrupted_margin_loss_and_its_gradients(triples: int, entities: int, dim: int) -> None:
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


def test_nan_stays_nan() -> None:
    one = torch.zeros(1, dtype=torch.int32)
    broken = torch.full((1, 4), torch.nan)
    chosen = Corrupted(one, one, one, one, torch.zeros(1, dtype=torch.bool))
    assert torch.isnan(corrupted_margin_loss(broken, torch.zeros(1, 4), chosen, 1.0))


@pytest.mark.parametrize("is_denied", [False, True])
def test_positive_without_negatives_has_no_loss_on_other_devices_either(is_denied: bool) -> None:
    """The plain operations, which other devices run: −∞ everywhere must not become NaN."""
    positive = vectors(3).abs().requires_grad_()
    query, negative = vectors(3, 8).requires_grad_(), vectors(4, 8).requires_grad_()
    value = plain_softmax_loss(positive, torch.full((3,), is_denied), query, all_known(negative), 0.0)
    assert value.item() == 0
    assert not any(slope.any() for slope in gradients(value, [positive, query, negative]))


def test_self_adversarial_loss_weighs_hard_negatives_more() -> None:
    positive, query = torch.tensor([1.0]), torch.zeros(1, 2)
    negative, none = torch.tensor([[1.0, 1.0], [5.0, 5.0]]), torch.zeros(2)
    known = torch.zeros(1, 2, dtype=torch.bool)
    softplus = torch.nn.functional.softplus
    for own in ([], [4.0]):
        distances = torch.tensor([2.0, 10.0, *own])
        weight = torch.softmax(-distances, 0)
        expected = softplus(torch.tensor(1.0 - 3.0)) + (weight * softplus(3.0 - distances)).sum()
        negatives = Negatives(negative, known, none, torch.tensor(own or [torch.inf]))
        found = self_adversarial_loss(positive, torch.tensor([False]), query, negatives, 3.0)
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_self_adversarial_loss_takes_a_denied_positive_for_a_negative() -> None:
    """And for the only one: what competed with it is left alone."""
    positive, negative = torch.tensor([1.0, 1.0], requires_grad=True), vectors(4, 8).requires_grad_()
    negatives = Negatives(negative, torch.zeros(2, 4, dtype=torch.bool), torch.zeros(4), torch.tensor([2.0, 2.0]))
    query = vectors(2, 8, seed=1)
    denied = self_adversarial_loss(positive, torch.tensor([True, True]), query, negatives, 3.0)
    assert denied.item() == pytest.approx(2 * np.log1p(np.exp(3.0 - 1.0)), rel=1e-6)
    by_positive, by_negative = gradients(denied, [positive, negative])
    assert (by_positive < 0).all() and not by_negative.any()
    mixed = self_adversarial_loss(positive, torch.tensor([True, False]), query, negatives, 3.0)
    assert (gradients(mixed, [positive])[0] < 0).tolist() == [True, False]


def test_self_adversarial_loss_has_finite_gradients_with_and_without_own_entities() -> None:
    leaves = [x.requires_grad_() for x in (vectors(7).abs(), vectors(7, 9), vectors(5, 9, seed=1))]
    relation = vectors(7, 9, seed=2).requires_grad_()
    own = relation.abs().sum(-1).masked_fill(torch.arange(7) % 3 == 0, torch.inf)
    negatives = Negatives(leaves[2], vectors(7, 5, seed=3) > 1, torch.zeros(5), own)
    value = self_adversarial_loss(leaves[0], torch.zeros(7, dtype=torch.bool), leaves[1], negatives, 30.0)
    slopes = gradients(value, [*leaves, relation])
    assert all(np.isfinite(slope).all() for slope in slopes)
    assert not slopes[3][::3].any() and slopes[3][1::3].any(), "an own entity that is no negative is not pushed"


def shared_inputs() -> tuple[list[Tensor], Tensor, Tensor]:
    leaves = [vectors(7).abs().mul(9), vectors(7, 9), vectors(5, 9, seed=1), own_distances(7)]
    return leaves, vectors(7, 5, seed=3) > 1, vectors(5, seed=4)


def corrupted_inputs() -> tuple[list[Tensor], Corrupted]:
    rng = np.random.default_rng(1)
    numbers = [torch.from_numpy(rng.integers(0, limit, 20, np.int32)) for limit in (6, 2, 6, 6)]
    return [vectors(6, 9), vectors(2, 9, seed=1)], Corrupted(*numbers, torch.from_numpy(rng.random(20) < 0.5))


def losses_on(device: str) -> list[tuple[Tensor, list[Tensor]]]:
    """Every loss with its gradients, all inputs on `device`."""
    leaves, known, logq = shared_inputs()
    out = []
    shared: list[Callable[..., Tensor]] = [softmax_loss, self_adversarial_loss]
    for loss in shared:
        moved = [leaf.to(device).requires_grad_() for leaf in leaves]
        negatives = Negatives(moved[2], known.to(device), logq.to(device), moved[3])
        denied = some_denied(known).to(device)
        value = loss(moved[0], denied, moved[1], negatives, 2.0)
        out.append((value, list(torch.autograd.grad(value, moved))))
    pair, triples = corrupted_inputs()
    moved = [leaf.to(device).requires_grad_() for leaf in pair]
    value = corrupted_margin_loss(*moved, Corrupted(*(column.to(device) for column in triples)), 2.0)
    out.append((value, list(torch.autograd.grad(value, moved))))
    return out


def test_losses_stay_on_the_device_of_their_inputs() -> None:
    """The `meta` device refuses to be mixed with the CPU as a GPU does, and has no memory to copy from."""
    for value, slopes in losses_on("meta"):
        assert all(tensor.device.type == "meta" for tensor in (value, *slopes))


@pytest.mark.gpu
def test_gpu_losses_are_those_of_the_cpu() -> None:
    for (value, slopes), (truth, expected) in zip(losses_on("cuda"), losses_on("cpu"), strict=True):
        np.testing.assert_allclose(value.detach().cpu(), truth.detach(), rtol=1e-4)
        for one, other in zip(slopes, expected, strict=True):
            np.testing.assert_allclose(one.cpu(), other, rtol=1e-3, atol=1e-4)
