"""The score f(h, r, t) = ‖h* + r* − t*‖₁: lower is better. Runs where its inputs are, and copies nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dkge_dist.kernels.distances import l1_backward, l1_distances


def score(head_BD: Tensor, relation_BD: Tensor, tail_BD: Tensor) -> Tensor:
    """f of every triple."""
    return (head_BD + relation_BD - tail_BD).abs().sum(-1)


def pair_distances(query_QD: Tensor, candidate_ND: Tensor) -> Tensor:
    """‖query − candidate‖₁ of all pairs: with h* + r* as queries, f of all tails; with t* − r*, of all heads."""
    if query_QD.device.type == "cpu":
        out: Tensor = _PairDistances.apply(query_QD, candidate_ND)
        return out
    return torch.cdist(query_QD, candidate_ND, p=1)


class _PairDistances(torch.autograd.Function):
    """By compiled kernels: torch's own gradient of L1 distances is fifty times slower on the CPU."""

    @staticmethod
    def forward(ctx: Any, query_QD: Tensor, candidate_ND: Tensor) -> Tensor:
        query, candidate = query_QD.detach().contiguous(), candidate_ND.detach().contiguous()
        out_QN = query.new_empty(query.shape[0], candidate.shape[0])
        l1_distances(query.numpy(), candidate.numpy(), out_QN.numpy())
        ctx.save_for_backward(query, candidate)
        return out_QN

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        query, candidate = ctx.saved_tensors
        grad_QN = grads[0].contiguous()
        grad_query, grad_candidate = torch.empty_like(query), torch.empty_like(candidate)
        l1_backward(query.numpy(), candidate.numpy(), grad_QN.numpy(), grad_query.numpy())
        l1_backward(candidate.numpy(), query.numpy(), grad_QN.T.contiguous().numpy(), grad_candidate.numpy())
        return grad_query, grad_candidate
