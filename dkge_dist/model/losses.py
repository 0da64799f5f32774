"""Losses over f, where lower is better: sums over the positives, so that learning rates mean the same everywhere.

Shapes: B positives, N negatives shared by all of them, D dimensions. `query_BD` is what a right answer would be:
h* + r* among tails, t* − r* among heads. `blocked_BN` marks negatives that make a known triple: they take no part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkge_dist.kernels.distances import CHUNKS, softmax_l1
from dkge_dist.model.translation import pair_distances


def margin_loss(positive_B: Tensor, negative_B: Tensor, margin: float) -> Tensor:
    """Σ max(0, f(pos) + γ − f(neg)): the published loss."""
    return torch.relu(positive_B + margin - negative_B).sum()


def softmax_loss(
    positive_B: Tensor, query_BD: Tensor, negative_ND: Tensor, blocked_BN: Tensor, margin: float
) -> Tensor:
    """Cross-entropy of picking the positive among the negatives; the margin handicaps the positive."""
    if positive_B.device.type == "cpu":
        out: Tensor = _SoftmaxL1.apply(positive_B, query_BD, negative_ND, blocked_BN, margin)
        return out
    return plain_softmax_loss(positive_B, pair_distances(query_BD, negative_ND), blocked_BN, margin)


def plain_softmax_loss(positive_B: Tensor, negative_BN: Tensor, blocked_BN: Tensor, margin: float) -> Tensor:
    """The same from distances, in plain torch operations."""
    others_B = torch.logsumexp((-negative_BN).masked_fill(blocked_BN, -torch.inf), -1)
    own_B = -positive_B - margin
    return (torch.logaddexp(own_B, others_B) - own_B).sum()


def self_adversarial_loss(
    positive_B: Tensor, query_BD: Tensor, negative_ND: Tensor, blocked_BN: Tensor, margin: float
) -> Tensor:
    """Logistic loss with negatives weighted by how hard they are (the weights are constants)."""
    negative_BN = pair_distances(query_BD, negative_ND)
    weight_BN = (-negative_BN.detach()).masked_fill(blocked_BN, -torch.inf).softmax(-1).nan_to_num()
    negative_B = (weight_BN * torch.nn.functional.softplus(margin - negative_BN)).sum(-1)
    return (torch.nn.functional.softplus(positive_B - margin) + negative_B).sum()


class _SoftmaxL1(torch.autograd.Function):
    """Distances, softmax and all gradients in one pass over the pairs; nothing of size B × N is kept."""

    @staticmethod
    def forward(
        ctx: Any, positive_B: Tensor, query_BD: Tensor, negative_ND: Tensor, blocked_BN: Tensor, margin: float
    ) -> Tensor:
        positive, query, negative = (x.detach().contiguous() for x in (positive_B, query_BD, negative_ND))
        loss_B, by_positive, by_query = torch.empty_like(positive), torch.empty_like(positive), torch.empty_like(query)
        parts_CND = torch.empty(CHUNKS, *negative.shape)
        softmax_l1(
            query.numpy(), negative.numpy(), positive.numpy(), blocked_BN.numpy(), np.float32(margin),
            loss_B.numpy(), by_positive.numpy(), by_query.numpy(), parts_CND.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(by_positive, by_query, parts_CND.sum(0))
        return loss_B.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        by_positive, by_query, by_negative = ctx.saved_tensors
        return by_positive * grads[0], by_query * grads[0], by_negative * grads[0], None, None
