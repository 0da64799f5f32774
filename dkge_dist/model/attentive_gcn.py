"""The attentive graph convolution over contexts: one module, two ways to run it with the same numbers.

    H^l = ReLU(D̂^-1/2 Â D̂^-1/2 · H^(l-1) · W^l)      H^0: the `^c` vectors of the vertices
    a_i = u · ReLU(v_i ⊙ o^k),  α = softmax(a)        v_i: rows of the last H
    sg(o) = Σ α_i v_i

Two rearrangements save most of the work and change nothing: Â(HW) = (ÂH)W, so distinct rows are multiplied by W once
however often they stand in contexts; and v_i ≥ 0, so ReLU(v_i ⊙ o^k) = v_i ⊙ ReLU(o^k), a product with one query an
object.

Shapes: B objects, M vertex places, U distinct rows, n places of a padded block, D dimensions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dkge_dist.kernels.ragged import Places, aggregate, aggregate_backward, attend, attend_backward


class PaddedPlaces(NamedTuple):
    """Contexts of one width class on the device: objects, distinct row at each place, normalised Â, real places."""

    objects_B: Tensor
    rows_Bn: Tensor
    adjacency_Bnn: Tensor
    real_Bn: Tensor


class AttentiveGcn(nn.Module):
    """Weights of one AGCN; `forward` runs on ragged places (CPU) or on padded blocks (any device)."""

    def __init__(self, dim: int, layers: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(dim, dim), generator=generator) for _ in range(layers)
        )
        self.attention = nn.Parameter(torch.empty(dim).uniform_(-0.01, 0.01, generator=generator))

    def forward(self, features_UD: Tensor, contexts: Places | list[PaddedPlaces], knowledge_BD: Tensor) -> Tensor:
        """sg(o) of every object, from the features of the distinct rows its context shows."""
        query_BD = self.attention * torch.relu(knowledge_BD)
        if isinstance(contexts, Places):
            return self._ragged(features_UD, contexts, query_BD)
        return self._padded(features_UD, contexts, query_BD)

    def _ragged(self, features_UD: Tensor, places: Places, query_BD: Tensor) -> Tensor:
        hidden = _Aggregate.apply(features_UD @ self.weights[0], places)
        for weight in self.weights[1:]:
            hidden = _Aggregate.apply(hidden @ weight, places.own())
        out: Tensor = _Attend.apply(hidden, query_BD, places)
        return out

    def _padded(self, features_UD: Tensor, blocks: list[PaddedPlaces], query_BD: Tensor) -> Tensor:
        out_BD = torch.zeros_like(query_BD)
        transformed_UD = features_UD @ self.weights[0]
        for block in blocks:
            hidden_BnD = torch.relu(block.adjacency_Bnn @ (transformed_UD[block.rows_Bn] * block.real_Bn.unsqueeze(-1)))
            for weight in self.weights[1:]:
                hidden_BnD = torch.relu(block.adjacency_Bnn @ (hidden_BnD @ weight))
            score_Bn = torch.einsum("bnd,bd->bn", hidden_BnD, query_BD[block.objects_B])
            attention_Bn = score_Bn.masked_fill(~block.real_Bn, -torch.inf).softmax(-1)
            found_BD = torch.einsum("bn,bnd->bd", attention_Bn, hidden_BnD)
            out_BD = out_BD.index_copy(0, block.objects_B, found_BD)
        return out_BD


class _Aggregate(torch.autograd.Function):
    """ReLU(Â rows) by the ragged kernels."""

    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, places: Places) -> Tensor:
        out_MD = torch.empty(places.place_row.shape[0], rows_UD.shape[1])
        aggregate(places, rows_UD.detach().contiguous().numpy(), out_MD.numpy())
        ctx.places, ctx.rows = places, rows_UD.shape[0]
        ctx.save_for_backward(out_MD)
        return out_MD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (out_MD,) = ctx.saved_tensors
        grad_UD = torch.empty(ctx.rows, out_MD.shape[1])
        aggregate_backward(ctx.places, out_MD.numpy(), grads[0].contiguous().numpy(), grad_UD.numpy())
        return grad_UD, None


class _Attend(torch.autograd.Function):
    """Attention-weighted sums by the ragged kernels."""

    @staticmethod
    def forward(ctx: Any, hidden_MD: Tensor, query_BD: Tensor, places: Places) -> Tensor:
        attention_M = torch.empty(hidden_MD.shape[0])
        out_BD = torch.empty_like(query_BD)
        query = query_BD.detach().contiguous()
        attend(places.indptr, hidden_MD.detach().numpy(), query.numpy(), attention_M.numpy(), out_BD.numpy())
        ctx.places = places
        ctx.save_for_backward(hidden_MD, query, attention_M)
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        hidden_MD, query_BD, attention_M = ctx.saved_tensors
        grad_hidden_MD, grad_query_BD = torch.empty_like(hidden_MD), torch.empty_like(query_BD)
        attend_backward(
            ctx.places.indptr, hidden_MD.detach().numpy(), query_BD.numpy(), attention_M.numpy(),
            grads[0].contiguous().numpy(), grad_hidden_MD.numpy(), grad_query_BD.numpy(),
        )  # fmt: skip
        return grad_hidden_MD, grad_query_BD, None
