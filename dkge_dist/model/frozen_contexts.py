"""Encoding with frozen weights: H of a context that cannot change is computed once, and attended to in every step.

A step then costs O(n·d) an object instead of O(n·d²). CPU only, as ragged contexts are.

Shapes: B objects, M vertex slots, U distinct rows, D dimensions.
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
def hidden_features(gcn: AttentiveGcn, features_UD: Tensor, contexts: RaggedBatch) -> Array:
    """H of the last layer at every vertex slot, as an array to keep."""
    values: Array = gcn.hidden(features_UD, contexts).numpy()
    return values


def encode_frozen(encoder: Encoder, knowledge_BD: Tensor, begin: Array, end: Array, hidden_MD: Array) -> Tensor:
    """o* of objects whose vertices are the slots `begin[b]:end[b]` of `hidden`; differentiable by `^k` alone."""
    parameters = (encoder.gcn.attention, encoder.gate.share)
    return ragged_ops.encode_frozen(knowledge_BD, *parameters, torch.from_numpy(hidden_MD), begin, end)
