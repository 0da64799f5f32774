"""Encoding with frozen weights: what cannot change is computed once.

H of a context that cannot change is attended to in every step: O(n·d) an object instead of O(n·d²). Of a context that
changes, because a vertex learns or is hidden, the products of all other vertices with W are kept. CPU only, as ragged
contexts are.

Shapes: B objects, M vertex slots, U distinct rows, E of them that learn, D dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.model import ragged_ops
from dkge_dist.model.attentive_gcn import AttentiveGcn
from dkge_dist.model.dkge import Encoder
from dkge_dist.types import Array


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
