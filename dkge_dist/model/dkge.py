"""DKGE: an attentive GCN and a gate for entities, and one of each for relations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.model.attentive_gcn import AttentiveGcn, PaddedBlock
from dkge_dist.model.gate import Gate
from dkge_dist.model.ragged_ops import encode


class Encoder(nn.Module):
    """From knowledge and context element vectors to joint ones, for one kind of object."""

    def __init__(self, dim: int, layers: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.gcn = AttentiveGcn(dim, layers, generator)
        self.gate = Gate(dim)

    def forward(self, features_UD: Tensor, contexts: RaggedBatch | list[PaddedBlock], knowledge_BD: Tensor) -> Tensor:
        """o* of every object."""
        if isinstance(contexts, RaggedBatch):
            # The last layer is aggregated, attended to and gated by one kernel: H is never written to memory.
            rows_UD, contexts = self.gcn.before_last_aggregation(features_UD, contexts)
            return encode(rows_UD, knowledge_BD, self.gcn.attention, self.gate.share, contexts)
        out: Tensor = self.gate(knowledge_BD, self.gcn(features_UD, contexts, knowledge_BD))
        return out


class Dkge(nn.Module):
    """All dense parameters. The vectors of objects are inputs: they live in tables.

    Parameters are drawn on the CPU, so that a seed gives the same ones on every device.
    """

    def __init__(self, dim: int, entity_layers: int, relation_layers: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.entity = Encoder(dim, entity_layers, generator)
        self.relation = Encoder(dim, relation_layers, generator)


def path_features(context_RD: Tensor, bag: Tensor, offsets: Tensor) -> Tensor:
    """Features of relation paths: the sum of the `^c` vectors of their relations."""
    return nn.functional.embedding_bag(bag, context_RD, offsets, mode="sum")
