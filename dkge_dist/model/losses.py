"""Losses over f, where lower is better: sums over the positives, so that learning rates mean the same everywhere.

On the CPU compiled kernels compute loss and gradients in one pass; on any other device plain torch operations do. All
tensors of a call are on one device, and nothing is copied between host and device.

Shapes: B positives, N negatives shared by all of them, E entities, R relations, D dimensions. `query_BD` is what a
right answer would be: h* + r* among tails, t* − r* among heads. `known_BN` marks negatives that make a known triple.
`logq_N` is the logQ correction of each negative, the logarithm of how many entities it represents:
with negatives sampled unevenly, the softmax over them then estimates the one over all entities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dkge_dist.kernels.distances import margin_l1
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.softmax import softmax_l1
from dkge_dist.model.translation import pair_distances, score


def margin_loss(positive_B: Tensor, negative_B: Tensor, margin: float) -> Tensor:
    """Σ max(0, f(pos) + γ − f(neg)): the published loss."""
    return torch.relu(positive_B + margin - negative_B).sum()


class Corrupted(NamedTuple):
    """Triples as numbers into the joint vectors, with one negative entity each, in place of the head or of the tail."""

    head_B: Tensor
    relation_B: Tensor
    tail_B: Tensor
    negative_B: Tensor
    corrupts_head_B: Tensor


def corrupted_margin_loss(entity_ED: Tensor, relation_RD: Tensor, triples: Corrupted, margin: float) -> Tensor:
    """`margin_loss` of triples with one negative each, from the joint vectors of all their objects."""
    if entity_ED.device.type == "cpu":
        out: Tensor = _MarginL1.apply(entity_ED, relation_RD, triples, margin)
        return out
    return plain_corrupted_margin_loss(entity_ED, relation_RD, triples, margin)


def plain_corrupted_margin_loss(entity_ED: Tensor, relation_RD: Tensor, triples: Corrupted, margin: float) -> Tensor:
    """`corrupted_margin_loss` in plain torch operations."""
    head, tail, other = (entity_ED[x] for x in (triples.head_B, triples.tail_B, triples.negative_B))
    relation, at_head = relation_RD[triples.relation_B], triples.corrupts_head_B.unsqueeze(-1)
    negative = score(torch.where(at_head, other, head), relation, torch.where(at_head, tail, other))
    return margin_loss(score(head, relation, tail), negative, margin)


class Negatives(NamedTuple):
    """What a positive competes with: `vector_ND`, shared by all, and its own entity at the distance `own_B`.

    Known ones take no part, and neither does an own entity at an infinite distance.
    """

    vector_ND: Tensor
    known_BN: Tensor
    logq_N: Tensor
    own_B: Tensor


def softmax_loss(
    positive_B: Tensor, unlearn_B: Tensor, query_BD: Tensor, negatives: Negatives, margin: float
) -> Tensor:
    """Cross-entropy of the positive among the negatives; the margin is added to the distance of the positive.

    Positives to unlearn are none any more: −log(1 − p) instead of −log p, if anything competes with them.
    """
    if positive_B.device.type == "cpu":
        out: Tensor = _SoftmaxL1.apply(
            positive_B,
            query_BD,
            negatives.vector_ND,
            negatives.own_B,
            unlearn_B,
            negatives.known_BN,
            negatives.logq_N,
            margin,
        )
        return out
    return plain_softmax_loss(positive_B, unlearn_B, query_BD, negatives, margin)


def plain_softmax_loss(
    positive_B: Tensor, unlearn_B: Tensor, query_BD: Tensor, negatives: Negatives, margin: float
) -> Tensor:
    """`softmax_loss` in plain torch operations."""
    distance_BN = pair_distances(query_BD, negatives.vector_ND)
    logits_BN = (negatives.logq_N - distance_BN).masked_fill(negatives.known_BN, -torch.inf)
    others_B = torch.logaddexp(torch.logsumexp(logits_BN, -1), -negatives.own_B)
    true_B = -positive_B - margin
    # Without others, a positive to unlearn has nothing to make room for.
    base_B = torch.where(unlearn_B & ~others_B.isneginf(), others_B, true_B)
    return (torch.logaddexp(true_B, others_B) - base_B).sum()


def self_adversarial_loss(
    positive_B: Tensor, unlearn_B: Tensor, query_BD: Tensor, negatives: Negatives, margin: float
) -> Tensor:
    """Logistic loss with negatives weighted by how hard they are (the weights are constants).

    Positives to unlearn are negatives themselves, with none beside them.
    """
    has_own_B = ~negatives.own_B.isinf()
    own_B = negatives.own_B.masked_fill(~has_own_B, 0.0)
    distance_BN = torch.cat([pair_distances(query_BD, negatives.vector_ND), own_B.unsqueeze(-1)], -1)
    absent_BN = torch.cat([negatives.known_BN, ~has_own_B.unsqueeze(-1)], -1)
    logq_N = torch.cat([negatives.logq_N, negatives.logq_N.new_zeros(1)])
    weight_BN = (logq_N - distance_BN.detach()).masked_fill(absent_BN, -torch.inf).softmax(-1).nan_to_num()
    negative_B = (weight_BN * torch.nn.functional.softplus(margin - distance_BN)).sum(-1).masked_fill(unlearn_B, 0.0)
    away_B = torch.where(unlearn_B, margin - positive_B, positive_B - margin)
    return (torch.nn.functional.softplus(away_B) + negative_B).sum()


class _SoftmaxL1(torch.autograd.Function):
    """Distances, softmax and all gradients in one pass over the pairs; nothing of size B × N is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        positive_B: Tensor,
        query_BD: Tensor,
        negative_ND: Tensor,
        own_B: Tensor,
        unlearn_B: Tensor,
        known_BN: Tensor,
        logq_N: Tensor,
        margin: float,
    ) -> Tensor:
        positive, query, negative, own = (x.detach().numpy() for x in (positive_B, query_BD, negative_ND, own_B))
        found = softmax_l1(query, negative, positive, unlearn_B.numpy(), own, known_BN.numpy(), logq_N.numpy(), margin)
        loss_B, by_positive, by_own, by_query, parts_CND = (torch.from_numpy(array) for array in found)
        ctx.save_for_backward(by_positive, by_query, parts_CND.sum(0), by_own)
        return loss_B.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (*(saved * grads[0] for saved in ctx.saved_tensors), None, None, None, None)


class _MarginL1(torch.autograd.Function):
    """Scores, loss and all gradients in one pass; torch would take a pass over the rows for each of many operations."""

    @staticmethod
    def forward(ctx: Any, entity_ED: Tensor, relation_RD: Tensor, triples: Corrupted, margin: float) -> Tensor:
        entity, relation = entity_ED.detach().contiguous(), relation_RD.detach().contiguous()
        loss_B, by_entity, by_relation = (
            entity.new_empty(triples.head_B.shape[0]), torch.empty_like(entity), torch.empty_like(relation)
        )  # fmt: skip
        margin_l1(
            entity.numpy(), relation.numpy(), tuple(as_readonly(x.numpy()) for x in triples), np.float32(margin),
            loss_B.numpy(), by_entity.numpy(), by_relation.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(by_entity, by_relation)
        return loss_B.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        by_entity, by_relation = ctx.saved_tensors
        return by_entity * grads[0], by_relation * grads[0], None, None
