"""The attentive graph convolution over contexts: one module, two ways to run it with the same numbers.

    H^l = ReLU(D̂^-1/2 Â D̂^-1/2 · H^(l-1) · W^l)      H^0: the `^c` vectors of the vertices
    a_i = u · ReLU(v_i ⊙ o^k),  α = softmax(a)        v_i: rows of the last H
    sg(o) = Σ α_i v_i

Two rearrangements save most of the work and change nothing: Â(HW) = (ÂH)W, so distinct rows are multiplied by W once
however many contexts show them; and v_i ≥ 0, so ReLU(v_i ⊙ o^k) = v_i ⊙ ReLU(o^k), a product with one query an object.

Ragged contexts run on the CPU, by compiled kernels; padded blocks run on any device, by torch operations. Where
`learns_by_bfloat16`, products with W are rounded to bfloat16 as long as gradients are recorded.

Host and device. `forward` copies nothing between them: it allocates on the device of its inputs and reads no value
back. With B objects, U distinct rows and blocks of B' contexts of width n, a batch moves to the device: `features_UD`
and `knowledge_BD` (4·D bytes a row), and of each block Â (4·n² bytes a context), row numbers (8·n) and the padding mask
(n). The gradients of the same U + B rows come back. Weights stay on the device. `PaddedBlock.to` makes the copies.

Shapes: B objects, M vertex slots of a ragged batch, U distinct rows, n slots of a padded context, D dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.model.products import bfloat16_product
from dkge_dist.model.ragged_ops import aggregate


class PaddedBlock(NamedTuple):
    """Contexts of one width: number of the object, distinct row at each slot, normalised Â, which slots are real."""

    objects_B: Tensor
    rows_Bn: Tensor
    adjacency_Bnn: Tensor
    real_Bn: Tensor

    def to(self, device: torch.device) -> PaddedBlock:
        """The same block on `device`; from pinned memory the copies do not wait."""
        return PaddedBlock(*(tensor.to(device, non_blocking=tensor.is_pinned()) for tensor in self))


class AttentiveGcn(nn.Module):
    """Weights of one AGCN. `forward` runs on padded blocks; ragged contexts are finished by the kernel of `Encoder`."""

    def __init__(self, dim: int, layers: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(dim, dim), generator=generator) for _ in range(layers)
        )
        self.attention = nn.Parameter(torch.empty(dim).uniform_(-0.01, 0.01, generator=generator))
        self.learns_by_bfloat16 = False

    def forward(self, features_UD: Tensor, blocks: list[PaddedBlock], knowledge_BD: Tensor) -> Tensor:
        """sg(o) of every object, from the features of the distinct rows that contexts show."""
        query_BD = self.attention * torch.relu(knowledge_BD)
        out_BD = torch.zeros_like(query_BD)
        transformed_UD = self._product(features_UD, self.weights[0]).float()
        for block in blocks:
            hidden_BnD = torch.relu(block.adjacency_Bnn @ (transformed_UD[block.rows_Bn] * block.real_Bn.unsqueeze(-1)))
            for weight in self.weights[1:]:
                hidden_BnD = torch.relu(block.adjacency_Bnn @ (hidden_BnD @ weight))
            score_Bn = torch.einsum("bnd,bd->bn", hidden_BnD, query_BD[block.objects_B])
            attention_Bn = score_Bn.masked_fill(~block.real_Bn, -torch.inf).softmax(-1)
            found_BD = torch.einsum("bn,bnd->bd", attention_Bn, hidden_BnD)
            out_BD = out_BD.index_copy(0, block.objects_B, found_BD)
        return out_BD

    def hidden(self, features_UD: Tensor, contexts: RaggedBatch) -> Tensor:
        """H of the last layer at every vertex slot of ragged contexts."""
        rows_UD, contexts = self.before_last_aggregation(features_UD, contexts)
        return aggregate(rows_UD, contexts)

    def before_last_aggregation(self, features_UD: Tensor, contexts: RaggedBatch) -> tuple[Tensor, RaggedBatch]:
        """All layers but the last aggregation: (rows to aggregate, contexts over these rows). The rows may be bfloat16,
        and then there are some more than the contexts show."""
        return self.after_first_product(self._product(features_UD, self.weights[0]), contexts)

    def after_first_product(self, rows_UD: Tensor, contexts: RaggedBatch) -> tuple[Tensor, RaggedBatch]:
        """The same from the products of the features with the first W."""
        for weight in self.weights[1:]:
            rows_UD = self._product(aggregate(rows_UD, contexts), weight)
            contexts = contexts.over_slots()
        return rows_UD, contexts

    def _product(self, rows_UD: Tensor, weight_DD: Tensor) -> Tensor:
        if self.learns_by_bfloat16 and torch.is_grad_enabled():
            return bfloat16_product(rows_UD, weight_DD)
        return rows_UD @ weight_DD
