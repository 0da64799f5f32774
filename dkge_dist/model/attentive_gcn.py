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

import threading
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dkge_dist.kernels.ragged import RaggedBatch, aggregate, aggregate_backward, attend, attend_backward
from dkge_dist.types import Array


class PaddedBlock(NamedTuple):
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

    def forward(self, features_UD: Tensor, contexts: RaggedBatch | list[PaddedBlock], knowledge_BD: Tensor) -> Tensor:
        """sg(o) of every object, from the features of the distinct rows its context shows."""
        query_BD = self.attention * torch.relu(knowledge_BD)
        if isinstance(contexts, RaggedBatch):
            return self._ragged(features_UD, contexts, query_BD)
        return self._padded(features_UD, contexts, query_BD)

    def _ragged(self, features_UD: Tensor, places: RaggedBatch, query_BD: Tensor) -> Tensor:
        rows = features_UD @ self.weights[0]
        for weight in self.weights[1:]:
            rows = _Aggregate.apply(rows, places) @ weight
            places = places.own()
        out: Tensor = _Attend.apply(rows, query_BD, places)
        return out

    def _padded(self, features_UD: Tensor, blocks: list[PaddedBlock], query_BD: Tensor) -> Tensor:
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
    def forward(ctx: Any, rows_UD: Tensor, places: RaggedBatch) -> Tensor:
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
    """The last ReLU(Â rows) and its attention-weighted sums, by the ragged kernels."""

    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, query_BD: Tensor, places: RaggedBatch) -> Tensor:
        rows, query = rows_UD.detach().contiguous(), query_BD.detach().contiguous()
        attention_M, out_BD = torch.empty(places.place_row.shape[0]), torch.empty_like(query)
        attend(places, rows.numpy(), query.numpy(), attention_M.numpy(), out_BD.numpy())
        ctx.places = places
        ctx.save_for_backward(rows, query, attention_M)
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, query, attention_M = (saved.numpy() for saved in ctx.saved_tensors)
        grad_UD, grad_query_BD = torch.empty(rows.shape), torch.empty(query.shape)
        attend_backward(
            ctx.places, rows, query, attention_M, grads[0].contiguous().numpy(),
            _scratch.rows(attention_M.shape[0], rows.shape[1]), grad_query_BD.numpy(), grad_UD.numpy(),
        )  # fmt: skip
        return grad_UD, grad_query_BD, None


class _Scratch(threading.local):
    """Memory of one pass, kept for the next: to get new pages from the system takes longer than to fill them."""

    def __init__(self) -> None:
        self.numbers = np.empty(0, np.float32)

    def rows(self, count: int, dim: int) -> Array:
        """`count` rows, with anything in them."""
        if self.numbers.shape[0] < count * dim:
            self.numbers = np.empty(count * dim * 5 // 4, np.float32)
        return self.numbers[: count * dim].reshape(count, dim)


_scratch = _Scratch()
