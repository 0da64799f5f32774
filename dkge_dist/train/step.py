"""One training step: pull the rows of a batch, encode, score, go back, push the gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from dkge_dist.model.dkge import Dkge, Encoder, path_features
from dkge_dist.model.losses import margin_loss, self_adversarial_loss, softmax_loss
from dkge_dist.model.translation import score
from dkge_dist.shards.shard import Field, Optimizer
from dkge_dist.shards.table import Gradients, Table
from dkge_dist.train.batches import Batch, ObjectBatch


@dataclass(frozen=True)
class Loss:
    """Which loss, and its margin."""

    kind: Literal["margin", "softmax", "self_adversarial"]
    margin: float


@dataclass(frozen=True)
class Leaves:
    """Rows of a batch as torch leaves, to collect gradients in."""

    knowledge_BD: Tensor
    context_UD: Tensor

    def gradients(self, batch: ObjectBatch) -> Gradients:
        """What to push, once `backward` has run."""
        return {
            Field.KNOWLEDGE: (batch.rows, _gradient(self.knowledge_BD)),
            Field.CONTEXT: (batch.vertex_rows, _gradient(self.context_UD)),
        }


def _gradient(leaf: Tensor) -> np.ndarray:
    if leaf.grad is None:
        return np.zeros(tuple(leaf.shape), np.float32)
    return leaf.grad.numpy()


def pull(table: Table, batch: ObjectBatch) -> Leaves:
    """The rows of a batch, ready for gradients."""
    pulled = table.pull({Field.KNOWLEDGE: batch.rows, Field.CONTEXT: batch.vertex_rows})
    knowledge, context = (torch.from_numpy(pulled[field]).requires_grad_() for field in pulled)
    return Leaves(knowledge, context)


def encode(encoder: Encoder, leaves: Leaves, batch: ObjectBatch) -> Tensor:
    """o* of the objects of a batch."""
    features = leaves.context_UD
    if batch.bag is not None and batch.bag_offsets is not None:
        features = path_features(features, torch.from_numpy(batch.bag), torch.from_numpy(batch.bag_offsets))
    out: Tensor = encoder(features, batch.places, leaves.knowledge_BD)
    return out


def batch_loss(entity_BD: Tensor, relation_BD: Tensor, batch: Batch, loss: Loss) -> Tensor:
    """The loss of a batch, from the joint vectors of its objects."""
    head, tail = entity_BD[torch.from_numpy(batch.head)], entity_BD[torch.from_numpy(batch.tail)]
    relation = relation_BD[torch.from_numpy(batch.relation)]
    positive = score(head, relation, tail)
    if batch.shared.shape[0] == 0:
        other = entity_BD[torch.from_numpy(batch.negative)]
        corrupts_head = torch.from_numpy(batch.corrupts_head).unsqueeze(-1)
        negative = score(torch.where(corrupts_head, other, head), relation, torch.where(corrupts_head, tail, other))
        return margin_loss(positive, negative, loss.margin)
    shared = entity_BD[torch.from_numpy(batch.shared)]
    kind = softmax_loss if loss.kind == "softmax" else self_adversarial_loss
    blocked_tails, blocked_heads = torch.from_numpy(batch.blocked_tails), torch.from_numpy(batch.blocked_heads)
    return kind(positive, head + relation, shared, blocked_tails, loss.margin) + kind(
        positive, tail - relation, shared, blocked_heads, loss.margin
    )


def train_step(
    model: Dkge,
    dense: torch.optim.Optimizer,
    tables: tuple[Table, Table],
    batch: Batch,
    loss: Loss,
    optimizer: Optimizer,
) -> float:
    """Learn from one batch; its loss."""
    objects = (batch.entities, batch.relations)
    leaves = [pull(table, part) for table, part in zip(tables, objects, strict=True)]
    encoders = (model.entity, model.relation)
    entity, relation = (encode(e, leaf, part) for e, leaf, part in zip(encoders, leaves, objects, strict=True))
    total = batch_loss(entity, relation, batch, loss)
    dense.zero_grad(set_to_none=True)
    total.backward()  # type: ignore[no-untyped-call]
    for table, leaf, part in zip(tables, leaves, objects, strict=True):
        table.push(leaf.gradients(part), optimizer)
    dense.step()
    return float(total.detach())
