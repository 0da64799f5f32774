"""One training step: pull the rows of a batch, encode, score, go back, push the gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from dkge_dist.learning.batches import Batch
from dkge_dist.learning.contexts import ObjectBatch
from dkge_dist.learning.encode import CPU, encode, on, pull
from dkge_dist.model.dkge import Dkge
from dkge_dist.model.losses import Corrupted, corrupted_margin_loss, self_adversarial_loss, softmax_loss
from dkge_dist.model.translation import score
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import Table
from dkge_dist.types import DkgeError


@dataclass(frozen=True)
class Loss:
    """Which loss, and its margin."""

    kind: Literal["margin", "softmax", "self_adversarial"]
    margin: float


def batch_loss(entity_BD: Tensor, relation_BD: Tensor, batch: Batch[Any], loss: Loss) -> Tensor:
    """The loss of a batch, from the joint vectors of its objects."""
    device = entity_BD.device
    if batch.shared.shape[0] == 0:
        columns = (batch.head, batch.relation, batch.tail, batch.negative, batch.corrupts_head)
        triples = Corrupted(*(on(device, column) for column in columns))
        return corrupted_margin_loss(entity_BD, relation_BD, triples, loss.margin)
    head, tail = entity_BD[on(device, batch.head)], entity_BD[on(device, batch.tail)]
    relation = relation_BD[on(device, batch.relation)]
    positive = score(head, relation, tail)
    shared = entity_BD[on(device, batch.shared)]
    kind = softmax_loss if loss.kind == "softmax" else self_adversarial_loss
    known_tail_mask, known_head_mask = on(device, batch.known_tail_mask), on(device, batch.known_head_mask)
    weight = on(device, batch.weight)
    return kind(positive, head + relation, shared, known_tail_mask, weight, loss.margin) + kind(
        positive, tail - relation, shared, known_head_mask, weight, loss.margin
    )


def gradient_in_place(parameter: Tensor) -> Tensor:
    """The gradient of a parameter: zeros that it keeps, where nothing came back to it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


class NotFiniteError(DkgeError):
    """The loss or a gradient is no number any more. Nothing of the batch was applied."""


def train_step(
    model: Dkge,
    dense: torch.optim.Optimizer,
    tables: tuple[Table, Table],
    batch: Batch[ObjectBatch],
    loss: Loss,
    optimizer: Optimizer,
    device: torch.device = CPU,
    add_up: Callable[[list[Tensor]], None] = lambda tensors: None,
) -> float:
    """Learn from one batch; its loss. `add_up` adds tensors of all workers, each of which has a part of the batch."""
    objects = (batch.entities, batch.relations)
    leaves = [pull(table, part, device) for table, part in zip(tables, objects, strict=True)]
    encoders = (model.entity, model.relation)
    dense.zero_grad(set_to_none=True)
    total = torch.zeros(1, device=device)
    if batch.head.shape[0]:
        entity, relation = (encode(e, leaf, part) for e, leaf, part in zip(encoders, leaves, objects, strict=True))
        loss_of_part = batch_loss(entity, relation, batch, loss)
        loss_of_part.backward()  # type: ignore[no-untyped-call]
        total += loss_of_part.detach()
    gradients = [gradient_in_place(parameter) for parameter in model.parameters()]
    add_up([*gradients, total])
    value = float(total)
    # Whatever goes wrong in the rows shows in the dense gradients, which sum over all of them.
    sums = [value, *(float(gradient.sum()) for gradient in gradients)]
    if not all(math.isfinite(number) for number in sums):
        raise NotFiniteError(f"the loss or its gradient is not finite (loss {value})")
    for table, leaf, part in zip(tables, leaves, objects, strict=True):
        table.push(leaf.gradients(part), optimizer)
    dense.step()
    return value
