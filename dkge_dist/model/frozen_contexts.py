"""Encoding with frozen weights: hidden features of a context that cannot change are made once and attended to often.

Shapes: B objects, M places, U distinct rows, D dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dkge_dist.kernels.frozen_contexts import attend_frozen, attend_frozen_backward
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.ragged import RaggedBatch, aggregate
from dkge_dist.model.attentive_gcn import AttentiveGcn
from dkge_dist.model.dkge import Encoder
from dkge_dist.types import Array


@torch.no_grad()
def hidden_features(gcn: AttentiveGcn, features_UD: Tensor, places: RaggedBatch) -> Array:
    """The last H at every place."""
    for number, weight in enumerate(gcn.weights):
        hidden_MD = torch.empty(places.place_row.shape[0], weight.shape[1])
        aggregate(places if number == 0 else places.own(), (features_UD @ weight).numpy(), hidden_MD.numpy())
        features_UD = hidden_MD
    values: Array = features_UD.numpy()
    return values


def encode_frozen(encoder: Encoder, knowledge_BD: Tensor, begin: Array, end: Array, hidden_MD: Array) -> Tensor:
    """o* of objects that see the hidden features `begin[b]:end[b]`; differentiable by `^k` alone."""
    query_BD = encoder.gcn.attention * torch.relu(knowledge_BD)
    found_BD: Tensor = _AttendFrozen.apply(query_BD, as_readonly(begin), as_readonly(end), hidden_MD)
    out: Tensor = encoder.gate(knowledge_BD, found_BD)
    return out


class _AttendFrozen(torch.autograd.Function):
    """Attention over constant contexts by the kernels."""

    @staticmethod
    def forward(ctx: Any, query_BD: Tensor, begin: Array, end: Array, hidden_MD: Array) -> Tensor:
        query = query_BD.detach().contiguous()
        out_BD = torch.empty_like(query)
        attend_frozen(begin, end, hidden_MD, query.numpy(), out_BD.numpy())
        ctx.query, ctx.contexts = query, (begin, end, hidden_MD)
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        begin, end, hidden_MD = ctx.contexts
        grad_query = torch.empty_like(ctx.query)
        grad = grads[0].contiguous().numpy()
        attend_frozen_backward(begin, end, hidden_MD, ctx.query.numpy(), grad, grad_query.numpy())
        return grad_query, None, None, None
