"""The same formulas as published code computes them: the peer that a training step is compared with.

Every object of every triple, positive and negative, is encoded anew over cap + 1 places, padded; adjacency matrices are
multiplied in batches, torch differentiates, and gradients and descent span whole tables. Contexts are handed in ready.

Shapes: B triples, n = cap + 1 places, L relations of the longest path, D dimensions.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from dkge_dist.kernels.contexts import Contexts, build_contexts
from dkge_dist.learn.batches import Batch, BatchMaker
from dkge_dist.learn.contexts import EntityContexts, ObjectBatch, RelationContexts
from dkge_dist.model.dkge import Dkge, Encoder
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import OFFSET, Array, Field


class PaddedObjects(NamedTuple):
    """Objects with their contexts; a place shows up to L rows, where `shown` says so."""

    rows_B: Tensor
    vertices_BnL: Tensor
    shown_BnL: Tensor
    adjacency_Bnn: Tensor
    real_Bn: Tensor


class PaddedTriples(NamedTuple):
    """(head, relation, tail) of the positives, and of their negatives."""

    positive: tuple[PaddedObjects, PaddedObjects, PaddedObjects]
    negative: tuple[PaddedObjects, PaddedObjects, PaddedObjects]


def padded_triples(maker: BatchMaker[ObjectBatch], batch: Batch[ObjectBatch]) -> PaddedTriples:
    """The triples of a batch with one negative each, nothing shared between them."""
    row = batch.entities.rows
    head, tail, other = row[batch.head], row[batch.tail], row[batch.negative]
    corrupted = (np.where(batch.corrupts_head, other, head), np.where(batch.corrupts_head, tail, other))
    relation = _relations(maker, batch.relations.rows[batch.relation])
    return PaddedTriples(
        (_entities(maker, head), relation, _entities(maker, tail)),
        (_entities(maker, corrupted[0]), relation, _entities(maker, corrupted[1])),
    )


def _entities(maker: BatchMaker[ObjectBatch], rows: Array) -> PaddedObjects:
    around = cast(EntityContexts, maker.entities)
    contexts = build_contexts(around.topology.neighbours, around.digest, around.sampling, rows)
    return _padded(rows, contexts, contexts.vertices[:, :, None].astype(OFFSET))


def _relations(maker: BatchMaker[ObjectBatch], rows: Array) -> PaddedObjects:
    around = cast(RelationContexts, maker.relations)
    contexts = Contexts(*(np.ascontiguousarray(column[rows]) for column in around.contexts))
    bits, columns = around.bits, []
    rest = np.where(_real(contexts), contexts.vertices, 0)
    while rest.any():
        columns.append((rest & ((1 << bits) - 1)) - 1)
        rest = rest >> bits
    return _padded(rows, contexts, np.stack(columns, axis=-1))


def _real(contexts: Contexts) -> Array:
    real: Array = np.arange(contexts.vertices.shape[1]) < contexts.size[:, None]
    return real


def _padded(rows: Array, contexts: Contexts, vertices_BnL: Array) -> PaddedObjects:
    real = _real(contexts)
    places = real.shape[1]
    joined = np.unpackbits(contexts.mask.view(np.uint8), axis=-1, bitorder="little")[:, :, :places].astype(np.float32)
    joined *= real[:, :, None] & real[:, None, :]
    joined += np.eye(places, dtype=np.float32) * real[:, :, None]
    scale = np.maximum(joined.sum(-1), 1) ** np.float32(-0.5)
    shown = real[:, :, None] & (vertices_BnL >= 0)
    columns = (
        rows.astype(OFFSET),
        np.where(shown, vertices_BnL, 0),
        shown,
        joined * scale[:, :, None] * scale[:, None],
    )
    return PaddedObjects(*(torch.from_numpy(column) for column in (*columns, real)))


class DensePadded(nn.Module):
    """Whole tables as embeddings, with the dense parameters of a model; starts as a copy of both."""

    def __init__(self, model: Dkge, tables: tuple[LocalTable, LocalTable]) -> None:
        """With the values that both have now."""
        super().__init__()
        dims = (model.entity.gate.logits.shape[0], len(model.entity.gcn.weights), len(model.relation.gcn.weights))
        self.model = Dkge(*dims)
        self.model.load_state_dict(model.state_dict())
        fields = (Field.KNOWLEDGE, Field.CONTEXT)
        rows = [torch.from_numpy(table.shard.values[field].copy()) for table in tables for field in fields]
        self.rows = nn.ModuleList(nn.Embedding(values.shape[0], values.shape[1], _weight=values) for values in rows)

    def forward(self, triples: PaddedTriples, margin: float) -> Tensor:
        """The published loss."""
        positive_B, negative_B = (self._score(*objects) for objects in triples)
        return torch.relu(positive_B + margin - negative_B).sum()

    def _score(self, head: PaddedObjects, relation: PaddedObjects, tail: PaddedObjects) -> Tensor:
        entity, kind = self.model.entity, self.model.relation
        head_BD, tail_BD = (self._encode(entity, end, *self.rows[:2]) for end in (head, tail))
        return (head_BD + self._encode(kind, relation, *self.rows[2:]) - tail_BD).abs().sum(-1)

    def _encode(self, encoder: Encoder, objects: PaddedObjects, knowledge: nn.Module, context: nn.Module) -> Tensor:
        own_BD = knowledge(objects.rows_B)
        hidden_BnD = (context(objects.vertices_BnL) * objects.shown_BnL.unsqueeze(-1)).sum(2)
        for weight in encoder.gcn.weights:
            hidden_BnD = torch.relu(torch.bmm(objects.adjacency_Bnn, hidden_BnD) @ weight)
        score_Bn = torch.relu(hidden_BnD * own_BD.unsqueeze(1)) @ encoder.gcn.attention
        attention_Bn = score_Bn.masked_fill(~objects.real_Bn, -torch.inf).softmax(-1)
        out: Tensor = encoder.gate(own_BD, torch.bmm(attention_Bn.unsqueeze(1), hidden_BnD).squeeze(1))
        return out
