"""One learning step: encode the objects of a batch, score, go back, push the gradients. From scratch and online."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from dkge_dist.learn.batches import Batch
from dkge_dist.learn.encode import ObjectEncoder, on
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.model.losses import Corrupted, Negatives, corrupted_margin_loss, self_adversarial_loss, softmax_loss
from dkge_dist.model.translation import score
from dkge_dist.runtime import Communicator
from dkge_dist.tables.shard import Optimizer, OptimizerKind
from dkge_dist.types import DkgeError

Objects = TypeVar("Objects")


@dataclass(frozen=True)
class Loss:
    """Which loss, and its margin. `unlearn_offset` is taken from the logit of positives to unlearn (softmax)."""

    kind: Literal["margin", "softmax", "self_adversarial"]
    margin: float
    unlearn_offset: float = 0.0


@dataclass(frozen=True)
class DenseParameters:
    """A model whose parameters every batch moves, with their optimizer."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer

    @staticmethod
    def of(model: torch.nn.Module, kind: OptimizerKind) -> DenseParameters:
        """With the optimizer that goes with that of rows."""
        optimizer = torch.optim.SGD if kind == "sgd" else torch.optim.Adagrad
        return DenseParameters(model, optimizer(model.parameters(), lr=1.0))

    def set_rate(self, rate: float) -> None:
        """The learning rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate


class NotFiniteError(DkgeError):
    """The loss or a gradient is not finite. Nothing of the batch was applied."""


class Step(Generic[Objects]):
    """Learns batch by batch. `dense` is None where dense parameters are frozen.

    With several workers each has a part of every batch, and gradients are added up over all of them.
    """

    def __init__(
        self,
        entities: ObjectEncoder[Objects],
        relations: ObjectEncoder[Objects],
        loss: Loss,
        communicator: Communicator,
        dense: DenseParameters | None = None,
    ) -> None:
        self.entities, self.relations, self.loss = entities, relations, loss
        self.communicator, self.dense = communicator, dense

    def learn(self, prepared: PreparedBatch[Objects], optimizer: Optimizer, offset_share: float = 0.0) -> float:
        """Learn from one batch, with a share of its evidence offsets; its loss."""
        batch = prepared.batch
        if self.dense is not None:
            self.dense.optimizer.zero_grad(set_to_none=True)
        (entity_BD, entity_leaves), (relation_BD, relation_leaves) = self._encode(prepared)
        total = torch.zeros(1, device=entity_BD.device)
        if batch.head.shape[0]:
            loss = batch_loss(entity_BD, relation_BD, batch, self.loss, offset_share)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        value = self._reduce(total)
        self.entities.table.push(self.entities.gradients(batch.entities, entity_leaves), optimizer)
        self.relations.table.push(self.relations.gradients(batch.relations, relation_leaves), optimizer)
        if self.dense is not None:
            self.dense.optimizer.step()
        return value

    def measure(self, prepared: PreparedBatch[Objects]) -> float:
        """The loss of a batch that is not learnt."""
        with torch.no_grad():
            (entity_BD, _), (relation_BD, _) = self._encode(prepared)
            total = torch.zeros(1, device=entity_BD.device)
            if prepared.batch.head.shape[0]:
                total += batch_loss(entity_BD, relation_BD, prepared.batch, self.loss)
        self.communicator.all_reduce([total])
        return float(total)

    def _encode(self, prepared: PreparedBatch[Objects]) -> list[tuple[Tensor, Any]]:
        """Joint vectors of the entities and of the relations of a batch, with the rows that they are made of."""
        kinds, batch = (self.entities, self.relations), prepared.batch
        objects = (batch.entities, batch.relations)
        return [kind.encode(part, ticket) for kind, part, ticket in zip(kinds, objects, prepared.tickets, strict=True)]

    def _reduce(self, total: Tensor) -> float:
        """Add up dense gradients and the loss over all workers; the loss. Refuses what is not finite."""
        gradients = (
            [_gradient(parameter) for parameter in self.dense.model.parameters()] if self.dense is not None else []
        )
        self.communicator.all_reduce([*gradients, total])
        value = float(total)
        # What goes wrong in the rows shows in the dense gradients, which sum over all of them.
        sums = [value, *(float(gradient.sum()) for gradient in gradients)]
        if not all(math.isfinite(number) for number in sums):
            raise NotFiniteError(f"the loss or its gradient is not finite (loss {value})")
        return value


def batch_loss(
    entity_BD: Tensor, relation_BD: Tensor, batch: Batch[Any], loss: Loss, offset_share: float = 0.0
) -> Tensor:
    """The loss of a batch, from the joint vectors of its objects."""
    device = entity_BD.device
    if batch.shared.shape[0] == 0:
        # One negative does not say how far to push a triple to unlearn: none of them is learnt.
        columns = (batch.head, batch.relation, batch.tail, batch.negative, batch.corrupts_head)
        triples = Corrupted(*(on(device, column[~batch.unlearn_mask]) for column in columns))
        return corrupted_margin_loss(entity_BD, relation_BD, triples, loss.margin)
    # `index_select` goes back by adding row after row, in half the time that an indexed tensor takes.
    head, tail = (entity_BD.index_select(0, on(device, column)) for column in (batch.head, batch.tail))
    relation = relation_BD.index_select(0, on(device, batch.relation))
    positive = score(head, relation, tail)
    # The question's own entity is as far from h* + r*, and from t* − r*, as r* is long.
    own = relation.abs().sum(-1).masked_fill(~on(device, batch.own_is_negative), torch.inf)
    shared, log_weight = entity_BD.index_select(0, on(device, batch.shared)), on(device, batch.log_weight)
    # Questions for tails and for heads, one after the other: what is made of the negatives is made once for both.
    positive_2B = torch.cat(
        [positive - offset_share * on(device, offset) for offset in (batch.tail_offset, batch.head_offset)]
    )
    unlearn_2B = on(device, batch.unlearn_mask).repeat(2)
    known_2BN = torch.cat([on(device, mask) for mask in (batch.known_tail_mask, batch.known_head_mask)])
    side = softmax_loss if loss.kind == "softmax" else self_adversarial_loss
    return side(
        positive_2B - loss.unlearn_offset * unlearn_2B,
        unlearn_2B,
        torch.cat([head + relation, tail - relation]),
        Negatives(shared, known_2BN, log_weight, own.repeat(2)),
        loss.margin,
    )


def _gradient(parameter: Tensor) -> Tensor:
    """The gradient of a parameter: zeros that it keeps, where nothing came back to it."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad
