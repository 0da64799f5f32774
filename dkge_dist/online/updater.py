"""Carry out an `UpdatePlan`: start values for emerging objects, a few epochs over its triples, o* materialised.

Nothing outside the plan's write set is written. Optimizer state is fresh each night.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkge_dist.config import OnlineSettings
from dkge_dist.evaluation.validation import Validation
from dkge_dist.learning.batches import BatchMaker
from dkge_dist.learning.early_stopping import EarlyStopping, Metrics
from dkge_dist.learning.prefetch import BatchOrder, Prefetcher, ShuffledOrder
from dkge_dist.learning.step import Loss, NotFiniteError, Step
from dkge_dist.online.encoder import OnlineBatch, OnlineObjects
from dkge_dist.online.order import ChangedOrder
from dkge_dist.online.plan import UpdatePlan
from dkge_dist.runtime import Communicator
from dkge_dist.tables.initializer import initial_rows
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import ROW, TRAINED, Array, DkgeError, Field


@dataclass(frozen=True)
class UpdateResult:
    """What an update did: epochs, and metrics by epoch."""

    epochs: int
    history: list[dict[str, Any]]


AGAIN_RATE = 0.5
"""Of the learning rate, over what was not learnt at first: most of what it moves is in its place already."""

Weights = list[tuple[OnlineObjects, Field, Array, Array]]


class Updater:
    """One update. `entities` and `relations` are the objects of the night with their tables.

    `check` tells of the added triples whether they are learnt.
    """

    def __init__(
        self,
        plan: UpdatePlan,
        entities: OnlineObjects,
        relations: OnlineObjects,
        maker: BatchMaker[OnlineBatch],
        validation: Validation,
        check: Validation,
        loss: Loss,
        settings: OnlineSettings,
        seed: int,
        communicator: Communicator,
    ) -> None:
        self.plan, self.entities, self.relations, self.maker = plan, entities, relations, maker
        self.validation, self.check, self.settings = validation, check, settings
        self.seed, self.communicator = seed, communicator
        self.stopping = EarlyStopping(settings.early_stopping_metric, settings.patience)
        self.step = Step(entities, relations, loss, communicator)
        size = settings.batch_size
        self.by_change = settings.epochs_over == "changed"
        self.changed = ChangedOrder.of(plan, size, settings.replay)
        self.order: BatchOrder = self.changed if self.by_change else ShuffledOrder(plan.triples.count, size)

    def run(self, init_scale: float) -> UpdateResult:
        """Learn all epochs over what changed, and again over what is not learnt by then; or, over affected objects,
        until validation stops getting better.

        What changed is to be learnt, whatever validation, which hardly knows of it, says of an epoch. And so the state
        before the first epoch over affected objects is never restored.
        """
        self._initialize(init_scale)
        for objects in (self.entities, self.relations):
            objects.prepare()
        began, history = self.communicator.clock(), list[dict[str, Any]]()
        self._learn(began, history)
        if self.by_change and self.settings.again and 0 < self.settings.max_epochs == len(history):
            not_learnt = self._not_learnt()
            if not_learnt.shape[0]:
                self.order = self.changed.again(not_learnt)
                self._learn(began, history)
        return UpdateResult(len(history), history)

    def _learn(self, began: float, history: list[dict[str, Any]]) -> None:
        """The epochs over `order`, noted in `history`; then o* is materialised."""
        best: Metrics = {}
        kept: Weights = []
        before, since, epoch = len(history), 0, 0
        with Prefetcher(self.maker, self.entities, self.relations, self.order, self.seed) as prefetcher:
            while epoch < self.settings.max_epochs and self.order.batches:
                loss = self._epoch(epoch, before, began, prefetcher)
                epoch += 1
                if not self.by_change:
                    self._refresh()
                found = self._validate() if self.settings.max_epochs > 1 and not self.by_change else {}
                seconds = self.communicator.clock() - began
                history.append({"epoch": before + epoch, "loss": loss, **found, "seconds": round(seconds, 3)})
                if self.stopping.improved(found, best):
                    best, since = found, 0
                    kept = self._weights() if epoch < self.settings.max_epochs else []
                else:
                    since += 1
                if self.stopping.is_over(since) or 0 < self.settings.max_seconds <= seconds:
                    break
        if since:
            self._restore(kept)
        if since or not epoch or self.by_change:
            self._refresh()

    def _not_learnt(self) -> Array:
        """Positions of added triples that, on either side, something else is nearer to."""
        ranks = self.check.rank(*self._joint(self.check))
        found: Array = self.plan.added[(ranks.tail > 1) | (ranks.head > 1)]
        return found

    def _initialize(self, scale: float) -> None:
        """Start values of emerging objects: at random, as in learning from scratch."""
        for number, objects in enumerate((self.entities, self.relations)):
            rng = np.random.default_rng([self.seed, 5, number])
            rows = objects.plan.emerging.astype(ROW)
            for field in TRAINED:
                objects.table.reset(field, rows, initial_rows(rows.shape[0], objects.table.dim, rng, scale))

    def _epoch(self, epoch: int, before: int, began: float, prefetcher: Prefetcher[OnlineBatch]) -> float:
        """One pass, after `before` epochs over something else; the mean loss."""
        count, total, done = 0, 0.0, 0
        with closing(prefetcher.epoch(before + epoch)) as batches:
            for prepared in batches:
                left = 1 - self._share_done(epoch, done) if self.settings.schedule == "linear" else 1.0
                rate = self.settings.learning_rate * (AGAIN_RATE if before else 1.0)
                optimizer = Optimizer(self.settings.optimizer, rate * left)
                try:
                    total += self.step.learn(prepared, optimizer)
                except NotFiniteError as error:
                    raise NotFiniteError(f"the update diverged: {error}; try a smaller online.learning_rate") from None
                done += 1
                count += prepared.size
                self.communicator.report(
                    self._share_done(epoch, done), f"epoch {before + epoch + 1}/{before + self.settings.max_epochs}"
                )
                if self.communicator.should_stop():
                    raise DkgeError(
                        "the update was stopped; the store is as before, and the same command starts it again"
                    )
                if 0 < self.settings.max_seconds <= self.communicator.clock() - began:
                    break
        return total / count

    def _share_done(self, epoch: int, batches: int) -> float:
        """The share of all epochs that is over after some batches of one."""
        return (epoch + batches / self.order.batches) / self.settings.max_epochs

    def _refresh(self) -> None:
        """Materialise o* of everything that depends on what is trained."""
        for objects in (self.entities, self.relations):
            objects.refresh()

    def _validate(self) -> Metrics:
        return self.validation.measure(*self._joint(self.validation)) if self.validation.rows.shape[0] else {}

    def _joint(self, asked: Validation) -> tuple[Array, Array]:
        """o* of the entities that are asked for, and of all relations."""
        every = np.arange(self.relations.count, dtype=ROW)
        entities = self.entities.table.pull({Field.JOINT: asked.rows})[Field.JOINT]
        return entities, self.relations.table.pull({Field.JOINT: every})[Field.JOINT]

    def _weights(self) -> Weights:
        """Copies of all that is trained."""
        return [
            (objects, field, rows, objects.table.pull({field: rows})[field])
            for objects in (self.entities, self.relations)
            for field, rows in (
                (Field.KNOWLEDGE, objects.plan.trained),
                (Field.CONTEXT, objects.plan.emerging.astype(ROW)),
            )
            if rows.shape[0]
        ]

    def _restore(self, weights: Weights) -> None:
        for objects, field, rows, values in weights:
            objects.table.write(field, rows, values)
