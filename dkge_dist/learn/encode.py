"""From rows of a table to joint vectors, and back with the gradients.

What moves between host and device per batch: the pulled rows (`^k` of the objects, `^c` of the distinct context rows)
and the batch's index arrays to the device; the gradients of those rows and one loss back. On CPU nothing is copied.

Shapes: B objects, U distinct rows of their contexts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.model.attentive_gcn import PaddedBlock
from dkge_dist.model.dkge import Encoder, path_features
from dkge_dist.tables.table import Gradients, RowsByField, TrainingTable
from dkge_dist.types import ROW, Array, Field

CPU = torch.device("cpu")
CHUNK = 4096
"""Objects that are encoded at once when many are."""

Objects_contra = TypeVar("Objects_contra", contravariant=True)


class ObjectEncoder(Protocol[Objects_contra]):
    """One kind of objects while they are learnt: their table, and how a batch of them is encoded."""

    table: TrainingTable

    def rows(self, batch: Objects_contra) -> RowsByField:
        """What a batch reads of the table."""

    def encode(self, batch: Objects_contra, ticket: int | None = None) -> tuple[Tensor, Any]:
        """o* of a batch, and its leaves. `ticket` is that of the table's prefetch."""

    def gradients(self, batch: Objects_contra, leaves: Any) -> Gradients:
        """What to push, once `backward` has run."""

    def joint(self, rows: Array) -> Array:
        """o* of some objects as they are learnt by now, in their order."""

    def materialise(self) -> None:
        """Write o* of everything that depends on what was learnt into the table."""


@dataclass(frozen=True)
class Leaves:
    """Rows of a batch as torch leaves, to collect gradients in."""

    knowledge_BD: Tensor
    context_UD: Tensor


class TrainedObjects:
    """Objects all of whose rows are trained. `written`: those whose o* this worker materialises."""

    def __init__(
        self,
        encoder: Encoder,
        table: TrainingTable,
        source: ObjectSource,
        written: Array | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.encoder, self.table, self.source, self.device = encoder, table, source, device
        self.written = np.empty(0, ROW) if written is None else written

    def rows(self, batch: ObjectBatch) -> RowsByField:
        """`^k` of the objects and `^c` of their contexts."""
        return {Field.KNOWLEDGE: batch.rows, Field.CONTEXT: batch.vertex_rows}

    def encode(self, batch: ObjectBatch, ticket: int | None = None) -> tuple[Tensor, Leaves]:
        """o* of a batch, and its leaves."""
        leaves = self.pull(batch, ticket)
        return encode(self.encoder, leaves, batch), leaves

    def pull(self, batch: ObjectBatch, ticket: int | None = None) -> Leaves:
        """The rows of a batch, ready for gradients."""
        pulled = self.table.pull(self.rows(batch), ticket)
        return Leaves(self._leaf(pulled[Field.KNOWLEDGE]), self._leaf(pulled[Field.CONTEXT]))

    def _leaf(self, values: Array) -> Tensor:
        return torch.from_numpy(values).to(self.device).requires_grad_()

    def gradients(self, batch: ObjectBatch, leaves: Leaves) -> Gradients:
        """Gradients of all rows of a batch."""
        return {
            Field.KNOWLEDGE: (batch.rows, gradient_of(leaves.knowledge_BD)),
            Field.CONTEXT: (batch.vertex_rows, gradient_of(leaves.context_UD)),
        }

    @torch.no_grad()
    def _joint(self, rows: Array) -> Iterator[tuple[Array, Array]]:
        """o* of many objects, a chunk at a time: (rows, vectors)."""
        for first in range(0, rows.shape[0], CHUNK):
            batch = self.source.batch(rows[first : first + CHUNK])
            yield batch.rows, self.encode(batch)[0].cpu().numpy()

    def joint(self, rows: Array) -> Array:
        """o* of some objects, in their order."""
        parts = [values for _, values in self._joint(rows)]
        return np.concatenate(parts) if parts else np.empty((0, self.table.dim), np.float32)

    def materialise(self) -> None:
        """Write o* into the table."""
        for rows, values in self._joint(self.written):
            self.table.write(Field.JOINT, rows, values)


class ObjectSource(Protocol):
    """Makes batches of distinct objects."""

    def batch(self, rows: Array) -> ObjectBatch:
        """The objects of some rows."""


def gradient_of(leaf: Tensor) -> Array:
    """Of a leaf once `backward` has run; zeros where nothing came back to it."""
    if leaf.grad is None:
        return np.zeros(tuple(leaf.shape), np.float32)
    values: Array = leaf.grad.cpu().numpy()
    return values


def encode(encoder: Encoder, leaves: Leaves, batch: ObjectBatch) -> Tensor:
    """o* of the objects of a batch, on the device of its leaves."""
    device = leaves.context_UD.device
    features = features_of(leaves.context_UD, batch)
    contexts = batch.contexts
    if isinstance(contexts, list):
        contexts = [PaddedBlock(*(tensor.to(device) for tensor in block)) for block in contexts]
    out: Tensor = encoder(features, contexts, leaves.knowledge_BD)
    return out


def features_of(context_UD: Tensor, batch: ObjectBatch) -> Tensor:
    """The features of context vertices: `^c` vectors, or for relations their sums over paths."""
    if batch.bag is None or batch.bag_offsets is None:
        return context_UD
    device = context_UD.device
    return path_features(context_UD, on(device, batch.bag), on(device, batch.bag_offsets))


def on(device: torch.device, array: Array) -> Tensor:
    """An array as a tensor on a device; on CPU they share memory."""
    return torch.from_numpy(array).to(device)
