"""Objects of an online batch: most have a constant o* that is read, some a constant context, few change altogether.

`^c` of existing objects and the AGCNs are frozen, so the hidden features of a context that holds no emerging object are
the same all night: `prepare` computes them once, and a step costs a product with them instead of the whole convolution.
Of other contexts, and of those with a hidden target, the products of existing entities with W are the same all night:
`prepare` keeps these too, and a step reads `^c` of emerging objects alone.

Shapes: B objects of a batch, M context vertices, V existing entities that contexts show, H objects that go on from
where they were, D dimensions.
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
from dkge_dist.kernels.sets import distinct
from dkge_dist.learn.contexts import EntityContexts, HiddenPairs, ObjectBatch
from dkge_dist.learn.encode import CHUNK, Leaves, encode, features_of, gradient_of
from dkge_dist.learn.plan import ObjectPlan
from dkge_dist.model.dkge import Encoder, encode_frozen, encode_partly_frozen, hidden_features, products
from dkge_dist.tables.table import Gradients, RowsByField, TrainingTable
from dkge_dist.types import OFFSET, ROW, Array, Field

PULLED = 1 << 16
"""Rows whose products are made at once."""

NOT_TRAINED, CHANGING = 0, -1
"""Of `FrozenObjects.kind`; numbers from 1 on count the frozen contexts."""


class Contexts(Protocol):
    """Makes ragged batches of distinct objects."""

    count: int

    def batch(self, rows: Array) -> ObjectBatch:
        """The objects of some rows."""


@dataclass(frozen=True)
class FrozenBatch:
    """Distinct objects of a batch by how they are encoded; `order` puts the three groups into the order asked for.

    `read`: o* is read. `frozen`: trained, with a constant context. `changing`: trained, with a context that changes;
    `asked` are the numbers of its vertices whose product with W is not kept.
    """

    read: Array
    frozen: Array
    changing: ObjectBatch
    asked: Array
    order: Array

    @cached_property
    def trained(self) -> Array:
        """Those whose `^k` may get a gradient."""
        return np.concatenate([self.frozen, self.changing.rows])

    @property
    def asked_rows(self) -> Array:
        """The entities whose `^c` is read."""
        rows: Array = self.changing.vertex_rows[self.asked]
        return rows


class FrozenObjects:
    """One kind of objects during a night: an `ObjectEncoder` that is also the source of its batches.

    `proximal_H`: the weight of each of `plan.continued` in the proximal term, which draws `^k` back to where it was.
    """

    def __init__(
        self,
        encoder: Encoder,
        table: TrainingTable,
        contexts: Contexts,
        topology: Topology,
        plan: ObjectPlan,
        proximal_H: Array | None = None,
    ) -> None:
        self.encoder, self.table, self.source, self.topology, self.plan = encoder, table, contexts, topology, plan
        self.proximal_H = proximal_H
        self._is_fresh: bool | None = None
        self.count = contexts.count
        self.emerging = np.zeros(self.count, bool)
        self.emerging[plan.emerging] = True
        self.kind = np.zeros(self.count, np.int32)
        self.kind[plan.refreshed] = CHANGING
        self.trained = np.zeros(self.count, bool)
        self.trained[plan.trained] = True
        self.begin, self.hidden_MD = np.zeros(1, OFFSET), np.empty((0, table.dim), np.float32)
        self.place, self.products_VD = np.full(self.count, -1, ROW), np.empty((0, table.dim), np.float32)
        self.continued, self.began_at_HD = np.empty(0, ROW), np.empty((0, table.dim), np.float32)

    def prepare(self) -> None:
        """Compute the products with W of what contexts show, and from these the hidden features of all objects to
        refresh whose context holds no emerging object; and keep where affected objects began."""
        if self.proximal_H is not None:
            self.continued = self.plan.continued
            self.began_at_HD = self.table.pull({Field.KNOWLEDGE: self.continued})[Field.KNOWLEDGE].copy()
        steady, shown, sizes = self._steady()
        self._keep_products(shown)
        rows = np.concatenate([np.empty(0, ROW), *steady])
        self.kind[rows] = 1 + np.arange(rows.shape[0])
        self.begin = np.cumsum(np.concatenate([self.begin, *sizes]))
        self.hidden_MD = np.empty((self.begin[-1], self.table.dim), np.float32)
        done = 0
        for some in steady:
            found = self._hidden(self.source.batch(some))
            self.hidden_MD[done : done + found.shape[0]] = found
            done += found.shape[0]

    def _steady(self) -> tuple[list[Array], list[Array], list[Array]]:
        """By chunk: the objects to refresh whose context holds no emerging object, what the contexts of all of them
        show, and how many vertices those of the first have."""
        steady, shown, sizes = [], [], []
        for first in range(0, self.plan.refreshed.shape[0], CHUNK):
            rows = self.plan.refreshed[first : first + CHUNK]
            batch = self.source.batch(rows)
            is_steady = ~self._holds_emerging(batch)
            steady.append(rows[is_steady])
            sizes.append(np.diff(_ragged(batch).indptr)[is_steady])
            shown.append(batch.vertex_rows)
        return steady, shown, sizes

    def _holds_emerging(self, batch: ObjectBatch) -> Array:
        """For each object of a batch: does its context hold an emerging one (or a path over one)?"""
        contexts = _ragged(batch)
        new = self.emerging[batch.vertex_rows]
        if batch.bag is not None and batch.bag_offsets is not None:
            new = np.logical_or.reduceat(new[batch.bag], batch.bag_offsets) if batch.bag.shape[0] else new
        found: Array = np.logical_or.reduceat(new[contexts.slot_row], contexts.indptr[:-1])
        return found

    def _keep_products(self, shown: list[Array]) -> None:
        """The products with W of existing entities. Those of relation paths are few, and made when they are needed."""
        if not isinstance(self.source, EntityContexts) or not shown:
            return
        rows = distinct(*shown)
        rows = rows[~self.emerging[rows]]
        self.products_VD = np.empty((rows.shape[0], self.table.dim), np.float32)
        for first in range(0, rows.shape[0], PULLED):
            pulled = self.table.pull({Field.CONTEXT: rows[first : first + PULLED]})[Field.CONTEXT]
            self.products_VD[first : first + PULLED] = products(self.encoder.gcn, torch.from_numpy(pulled))
        self.place[rows] = np.arange(rows.shape[0])

    def _hidden(self, batch: ObjectBatch) -> Array:
        """The last H of every context of a batch without emerging objects, by the frozen convolution."""
        if isinstance(self.source, EntityContexts):
            return hidden_features(self.encoder.gcn, self._products(batch.vertex_rows), _ragged(batch))
        pulled = self.table.pull({Field.CONTEXT: batch.vertex_rows})
        with torch.no_grad():
            features = features_of(torch.from_numpy(pulled[Field.CONTEXT]), batch)
        made = torch.from_numpy(products(self.encoder.gcn, features))
        return hidden_features(self.encoder.gcn, made, _ragged(batch))

    def _products(self, rows: Array) -> Tensor:
        """Kept products of some vertices; those of others are anything."""
        return torch.from_numpy(self.products_VD).index_select(0, torch.from_numpy(np.maximum(self.place[rows], 0)))

    def batch(self, rows: Array, hidden: HiddenPairs | None = None) -> FrozenBatch:
        """Distinct objects, by how they are encoded. An o* that is only read keeps hidden pairs in its context."""
        kind = self.kind[rows]
        if hidden is not None:
            # A context without one of its vertices is none of the frozen ones.
            seen = (kind > 0) & np.isin(rows, np.concatenate([hidden.one, hidden.other]))
            kind = np.where(seen, CHANGING, kind)
        groups = [np.flatnonzero(where) for where in (kind == NOT_TRAINED, kind > 0, kind == CHANGING)]
        read, frozen, changing = groups
        order = np.empty(rows.shape[0], OFFSET)
        order[np.concatenate(groups)] = np.arange(rows.shape[0])
        contexts = self._contexts(rows[changing], hidden)
        asked = np.flatnonzero(self.place[contexts.vertex_rows] < 0)
        return FrozenBatch(rows[read], rows[frozen], contexts, asked, order)

    def _contexts(self, rows: Array, hidden: HiddenPairs | None) -> ObjectBatch:
        if hidden is None:
            return self.source.batch(rows)
        assert isinstance(self.source, EntityContexts), "only pairs of entities can be hidden"
        return self.source.batch(rows, hidden)

    def rows(self, batch: FrozenBatch) -> RowsByField:
        """What a batch reads of the table."""
        return {
            Field.JOINT: batch.read,
            Field.KNOWLEDGE: batch.trained,
            Field.CONTEXT: batch.asked_rows,
        }

    def encode(self, batch: FrozenBatch, ticket: int | None = None) -> tuple[Tensor, Leaves]:
        """o* of a batch, and its leaves: `^k` of trained objects, `^c` of what is asked of changing contexts."""
        pulled = self.table.pull(self.rows(batch), ticket)
        knowledge, context = (
            torch.from_numpy(pulled[field]).requires_grad_() for field in (Field.KNOWLEDGE, Field.CONTEXT)
        )
        leaves = Leaves(knowledge, context)
        count = batch.frozen.shape[0]
        parts = [torch.from_numpy(pulled[Field.JOINT])]
        if count:
            at = self.kind[batch.frozen] - 1
            begin, end = self.begin[at], self.begin[at + 1]
            parts.append(encode_frozen(self.encoder, knowledge[:count], begin, end, self.hidden_MD))
        if batch.changing.rows.shape[0]:
            parts.append(self._encode_changing(batch, Leaves(knowledge[count:], context)))
        return torch.cat(parts).index_select(0, torch.from_numpy(batch.order)), leaves

    def _encode_changing(self, batch: FrozenBatch, leaves: Leaves) -> Tensor:
        changing, asked = batch.changing, batch.asked
        if asked.shape[0] == changing.vertex_rows.shape[0]:
            return encode(self.encoder, leaves, changing)
        kept, contexts = self._products(changing.vertex_rows), _ragged(changing)
        return encode_partly_frozen(self.encoder, kept, asked, leaves.context_UD, leaves.knowledge_BD, contexts)

    def gradients(self, batch: FrozenBatch, leaves: Leaves) -> Gradients:
        """The gradients that may be applied: of trained `^k`, and of emerging `^c`."""
        self._is_fresh = False
        learnt = self.trained[batch.trained]
        rows, values = batch.trained[learnt], np.ascontiguousarray(gradient_of(leaves.knowledge_BD)[learnt])
        self._add_proximal(rows, leaves.knowledge_BD.detach().numpy()[learnt], values)
        gradients = {Field.KNOWLEDGE: (rows, values)}
        new = self.emerging[batch.asked_rows]
        if new.any():
            rows = batch.asked_rows[new]
            gradients[Field.CONTEXT] = (rows, np.ascontiguousarray(gradient_of(leaves.context_UD)[new]))
        return gradients

    def _add_proximal(self, rows: Array, knowledge_BD: Array, gradient_BD: Array) -> None:
        """Add the gradient of weight / 2 · |^k − where it was|² of affected objects, in place."""
        if self.proximal_H is None or not self.continued.shape[0]:
            return
        at = np.minimum(np.searchsorted(self.continued, rows), self.continued.shape[0] - 1)
        here = np.flatnonzero(self.continued[at] == rows)
        at = at[here]
        gradient_BD[here] += self.proximal_H[at, None] * (knowledge_BD[here] - self.began_at_HD[at])

    def joint(self, rows: Array) -> Array:
        """o* of some objects: materialised as they are learnt by now, or those of before while nothing is."""
        if self._is_fresh is False:
            self._refresh()
        return self.table.pull({Field.JOINT: rows})[Field.JOINT]

    def materialise(self) -> None:
        """Write o* of all objects whose vectors or contexts changed."""
        if not self._is_fresh:
            self._refresh()

    @torch.no_grad()
    def _refresh(self) -> None:
        for first in range(0, self.plan.refreshed.shape[0], CHUNK):
            some = self.plan.refreshed[first : first + CHUNK].astype(ROW)
            values, _ = self.encode(self.batch(some))
            self.table.write(Field.JOINT, some, values.numpy())
        self._is_fresh = True

    def trained_values(self) -> dict[Field, tuple[Array, Array]]:
        """Copies of all that is trained: (rows, values)."""
        rows = {Field.KNOWLEDGE: self.plan.trained, Field.CONTEXT: self.plan.emerging.astype(ROW)}
        return {f: (some, self.table.pull({f: some})[f]) for f, some in rows.items() if some.shape[0]}

    def restore(self, kept: dict[Field, tuple[Array, Array]]) -> None:
        """Set what is trained to what it was."""
        for field, (rows, values) in kept.items():
            self.table.write(field, rows, values)
        self._is_fresh = False


def _ragged(batch: ObjectBatch) -> RaggedBatch:
    assert isinstance(batch.contexts, RaggedBatch), "online learning runs on ragged contexts"
    return batch.contexts
