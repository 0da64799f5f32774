"""Objects of an online batch: most have a constant o* that is read, some a constant context, few change altogether.

`^c` of existing objects and the AGCNs are frozen, so the hidden features of a context that shows no emerging object are
the same all night: they are made once, and a step costs a product with them instead of the whole convolution.

Shapes: B objects of a batch, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.learning.contexts import EntityContexts, HiddenPairs, ObjectBatch
from dkge_dist.learning.encode import CHUNK, Leaves, encode, features_of, gradient_of
from dkge_dist.model.dkge import Encoder
from dkge_dist.model.frozen_contexts import encode_frozen, hidden_features
from dkge_dist.tables.table import Gradients, Table
from dkge_dist.types import OFFSET, ROW, Array, Field


class Contexts(Protocol):
    """Makes ragged batches of distinct objects."""

    count: int

    def batch(self, rows: Array) -> ObjectBatch:
        """The objects of some rows."""


@dataclass(frozen=True)
class OnlineBatch:
    """Distinct objects of a batch by how they are encoded, and `order`, which puts the three groups as asked."""

    read: Array
    constant: Array
    changing: ObjectBatch
    order: Array

    @cached_property
    def rows(self) -> dict[Field, Array]:
        """What it needs of the table: the very same arrays whenever it is asked for, so that they can be announced."""
        return {Field.JOINT: self.read, Field.KNOWLEDGE: self.trained, Field.CONTEXT: self.changing.vertex_rows}

    @cached_property
    def trained(self) -> Array:
        """Those whose `^k` may get a gradient."""
        return np.concatenate([self.constant, self.changing.rows])


@dataclass(frozen=True)
class OnlineLeaves:
    """What a batch may have gradients of: `^k` of its trained objects, `^c` that changing contexts show."""

    batch: OnlineBatch
    knowledge_BD: Tensor
    context_UD: Tensor

    @property
    def rows(self) -> Array:
        """The trained objects."""
        return self.batch.trained

    @property
    def changing(self) -> Leaves:
        """Those of the objects whose context changes."""
        return Leaves(self.knowledge_BD[self.batch.constant.shape[0] :], self.context_UD)


class OnlineObjects:
    """One kind of objects during an update. Plays the part of contexts for a batch maker."""

    def __init__(
        self, encoder: Encoder, table: Table, contexts: Contexts, topology: Topology, trained: Array, emerging: Array
    ) -> None:
        self.encoder, self.table, self.source, self.topology = encoder, table, contexts, topology
        self.count = rows = contexts.count
        self.emerging = np.zeros(rows, bool)
        self.emerging[emerging] = True
        # Where each row's constant hidden features are: 0 no trained row, -1 a context that changes, else 1 + number.
        self.number = np.zeros(rows, np.int32)
        self.begin, self.hidden_MD = self._prepare(trained)

    def _prepare(self, trained: Array) -> tuple[Array, Array]:
        """Hidden features of all trained objects whose context shows nobody new."""
        self.number[trained] = -1
        sizes, parts, known = [np.zeros(1, OFFSET)], [np.empty((0, self._dim), np.float32)], 0
        for first in range(0, trained.shape[0], CHUNK):
            rows = trained[first : first + CHUNK]
            shown = self.source.batch(rows)
            assert isinstance(shown.places, RaggedBatch), "online learning runs on ragged contexts"
            steady = rows[~self._shows_emerging(shown)]
            if not steady.shape[0]:
                continue
            batch = shown if steady.shape == rows.shape else self.source.batch(steady)
            assert isinstance(batch.places, RaggedBatch)
            self.number[steady] = 1 + known + np.arange(steady.shape[0])
            known += steady.shape[0]
            sizes.append(np.diff(batch.places.indptr))
            parts.append(self._hidden(batch, batch.places))
        return np.cumsum(np.concatenate(sizes)), np.concatenate(parts)

    @property
    def _dim(self) -> int:
        return int(self.encoder.gate.logits.shape[0])

    def _shows_emerging(self, batch: ObjectBatch) -> Array:
        """For each object of a batch: does its context show an emerging one (or a path over one)?"""
        assert isinstance(batch.places, RaggedBatch)
        new = self.emerging[batch.vertex_rows]
        if batch.bag is not None and batch.bag_offsets is not None:
            new = np.logical_or.reduceat(new[batch.bag], batch.bag_offsets) if batch.bag.shape[0] else new
        found: Array = np.logical_or.reduceat(new[batch.places.place_row], batch.places.indptr[:-1])
        return found

    def _hidden(self, batch: ObjectBatch, places: RaggedBatch) -> Array:
        """The last H of every context of a batch, by the frozen convolution."""
        pulled = self.table.pull({Field.CONTEXT: batch.vertex_rows})
        with torch.no_grad():
            features = features_of(torch.from_numpy(pulled[Field.CONTEXT]), batch)
        return hidden_features(self.encoder.gcn, features, places)

    def batch(self, rows: Array, hidden: HiddenPairs | None = None) -> OnlineBatch:
        """Distinct objects, by how they are encoded. Those whose o* is only read show what they always show."""
        kind = self.number[rows]
        if hidden is not None:
            # A context without one of its vertices is none of the constant ones.
            seen = (kind > 0) & np.isin(rows, np.concatenate([hidden.one, hidden.other]))
            kind = np.where(seen, -1, kind)
        read, constant, changing = (np.flatnonzero(where) for where in (kind == 0, kind > 0, kind < 0))
        order = np.empty(rows.shape[0], OFFSET)
        order[np.concatenate([read, constant, changing])] = np.arange(rows.shape[0])
        return OnlineBatch(rows[read], rows[constant], self._shown(rows[changing], hidden), order)

    def _shown(self, rows: Array, hidden: HiddenPairs | None) -> ObjectBatch:
        if hidden is None:
            return self.source.batch(rows)
        assert isinstance(self.source, EntityContexts), "only pairs of entities can be hidden"
        return self.source.batch(rows, hidden)

    def encode(self, batch: OnlineBatch) -> tuple[Tensor, OnlineLeaves]:
        """o* of a batch, and the leaves that collect its gradients."""
        pulled = self.table.pull(batch.rows)
        joint, knowledge, context = (torch.from_numpy(pulled[field]) for field in pulled)
        leaves = OnlineLeaves(batch, knowledge.requires_grad_(), context.requires_grad_())
        steady = batch.constant.shape[0]
        parts = [joint]
        if steady:
            at = self.number[batch.constant] - 1
            begin, end = self.begin[at], self.begin[at + 1]
            parts.append(encode_frozen(self.encoder, knowledge[:steady], begin, end, self.hidden_MD))
        if batch.changing.rows.shape[0]:
            parts.append(encode(self.encoder, leaves.changing, batch.changing))
        return torch.cat(parts)[torch.from_numpy(batch.order)], leaves

    def gradients(self, leaves: OnlineLeaves) -> Gradients:
        """The gradients that may be applied: of trained `^k`, and of emerging `^c`."""
        gradients = {Field.KNOWLEDGE: (leaves.rows, gradient_of(leaves.knowledge_BD))}
        new = self.emerging[leaves.batch.changing.vertex_rows]
        if new.any():
            rows = leaves.batch.changing.vertex_rows[new]
            gradients[Field.CONTEXT] = (rows, np.ascontiguousarray(gradient_of(leaves.context_UD)[new]))
        return gradients

    @torch.no_grad()
    def refresh(self, rows: Array) -> None:
        """Make o* of trained rows anew."""
        for first in range(0, rows.shape[0], CHUNK):
            some = rows[first : first + CHUNK].astype(ROW)
            values, _ = self.encode(self.batch(some))
            self.table.write(Field.JOINT, some, values.numpy())
