"""From rows of the tables to joint vectors: pull, encode, and go back with the gradients.

Shapes: B objects, U distinct rows of their contexts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dkge_dist.learning.contexts import ObjectBatch
from dkge_dist.model.attentive_gcn import PaddedBlock
from dkge_dist.model.dkge import Encoder, path_features
from dkge_dist.tables.table import Gradients, Table
from dkge_dist.types import Array, Field

CPU = torch.device("cpu")
CHUNK = 4096
"""Objects that are encoded at once when many are."""


@dataclass(frozen=True)
class Leaves:
    """Rows of a batch as torch leaves, to collect gradients in."""

    knowledge_BD: Tensor
    context_UD: Tensor

    def gradients(self, batch: ObjectBatch) -> Gradients:
        """What to push, once `backward` has run."""
        return {
            Field.KNOWLEDGE: (batch.rows, gradient_of(self.knowledge_BD)),
            Field.CONTEXT: (batch.vertex_rows, gradient_of(self.context_UD)),
        }


def gradient_of(leaf: Tensor) -> Array:
    """Of a leaf once `backward` has run; zeros where nothing came back to it."""
    if leaf.grad is None:
        return np.zeros(tuple(leaf.shape), np.float32)
    values: Array = leaf.grad.cpu().numpy()
    return values


def rows_of(batch: ObjectBatch) -> dict[Field, Array]:
    """What a batch reads of a table."""
    return {Field.KNOWLEDGE: batch.rows, Field.CONTEXT: batch.vertex_rows}


def pull(table: Table, batch: ObjectBatch, device: torch.device = CPU) -> Leaves:
    """The rows of a batch, ready for gradients."""
    pulled = table.pull(rows_of(batch))
    knowledge, context = (torch.from_numpy(pulled[field]).to(device).requires_grad_() for field in pulled)
    return Leaves(knowledge, context)


def encode(encoder: Encoder, leaves: Leaves, batch: ObjectBatch) -> Tensor:
    """o* of the objects of a batch, on the device where its leaves are."""
    device = leaves.context_UD.device
    features = features_of(leaves.context_UD, batch)
    places = batch.places
    if isinstance(places, list):
        places = [PaddedBlock(*(tensor.to(device) for tensor in block)) for block in places]
    out: Tensor = encoder(features, places, leaves.knowledge_BD)
    return out


def features_of(context_UD: Tensor, batch: ObjectBatch) -> Tensor:
    """What the places of a batch show: `^c` vectors, or for relations their sums over paths."""
    if batch.bag is None or batch.bag_offsets is None:
        return context_UD
    device = context_UD.device
    return path_features(context_UD, on(device, batch.bag), on(device, batch.bag_offsets))


def on(device: torch.device, array: Array) -> Tensor:
    """An array as a tensor on a device; on CPU they share memory."""
    return torch.from_numpy(array).to(device)


class Batches(Protocol):
    """Makes batches of distinct objects."""

    def batch(self, rows: Array) -> ObjectBatch:
        """The objects of some rows."""


@torch.no_grad()
def joint_vectors(
    encoder: Encoder, table: Table, contexts: Batches, rows: Array, device: torch.device = CPU
) -> Iterator[tuple[Array, Array]]:
    """o* of many objects, some at a time: (rows, vectors)."""
    for first in range(0, rows.shape[0], CHUNK):
        batch = contexts.batch(rows[first : first + CHUNK])
        yield batch.rows, encode(encoder, pull(table, batch, device), batch).cpu().numpy()


def joint_of(encoder: Encoder, table: Table, contexts: Batches, rows: Array, device: torch.device = CPU) -> Array:
    """o* of some objects, in their order."""
    dim = encoder.gate.logits.shape[0]
    parts = [values for _, values in joint_vectors(encoder, table, contexts, rows, device)]
    return np.concatenate(parts) if parts else np.empty((0, dim), np.float32)
