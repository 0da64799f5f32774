"""DKGE: an attentive GCN and a gate for entities, and one of each for relations.

With frozen weights what cannot change is computed once. H of a context that cannot change is attended to in every step:
O(n·d) an object instead of O(n·d²). Of a context that changes, because a vertex learns or is hidden, the products of
all other vertices with W are kept. CPU only, as ragged contexts are.

Shapes: B objects, M vertex slots, U distinct rows, E of them that learn, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.model import ragged_ops
from dkge_dist.model.attentive_gcn import AttentiveGcn, PaddedBlock
from dkge_dist.model.ragged_ops import encode
from dkge_dist.types import Array


class Gate(nn.Module):
    """o* = g ⊙ o^k + (1 − g) ⊙ sg(o) with g = sigmoid(g̃); g̃ starts at 0, so g at one half."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(dim))

    @property
    def share(self) -> Tensor:
        """g."""
        return torch.sigmoid(self.logits)

    def forward(self, knowledge_BD: Tensor, context_BD: Tensor) -> Tensor:
        """The joint embedding."""
        return torch.lerp(context_BD, knowledge_BD, self.share)


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


@torch.no_grad()
def products(gcn: AttentiveGcn, features_UD: Tensor) -> Array:
    """The features of vertices, multiplied by the first W, as an array to keep."""
    values: Array = (features_UD @ gcn.weights[0]).numpy()
    return values


@torch.no_grad()
def hidden_features(gcn: AttentiveGcn, products_UD: Tensor, contexts: RaggedBatch) -> Array:
    """H of the last layer at every vertex slot, as an array to keep."""
    values: Array = ragged_ops.aggregate(*gcn.after_first_product(products_UD, contexts)).numpy()
    return values


def encode_frozen(encoder: Encoder, knowledge_BD: Tensor, begin: Array, end: Array, hidden_MD: Array) -> Tensor:
    """o* of objects whose vertices are the slots `begin[b]:end[b]` of `hidden`; differentiable by `^k` alone."""
    parameters = (encoder.gcn.attention, encoder.gate.share)
    return ragged_ops.encode_frozen(knowledge_BD, *parameters, torch.from_numpy(hidden_MD), begin, end)


def encode_partly_frozen(
    encoder: Encoder,
    products_UD: Tensor,
    learning: Array,
    features_ED: Tensor,
    knowledge_BD: Tensor,
    contexts: RaggedBatch,
) -> Tensor:
    """o* of objects over contexts some of whose rows learn: those of the numbers `learning`, with these features.

    `products_UD` are overwritten there. Differentiable by `features_ED` and by `^k`.
    """
    gcn = encoder.gcn
    rows_UD = ragged_ops.with_rows(products_UD, learning, features_ED @ gcn.weights[0])
    rows_UD, last = gcn.after_first_product(rows_UD, contexts)
    # Layers after the first have a row for every slot, and the gradients of all of these are asked for.
    wanted = learning if last is contexts else None
    return ragged_ops.encode(rows_UD, knowledge_BD, gcn.attention, encoder.gate.share, last, wanted)
