"""Carry out an `UpdatePlan`: start values for emerging objects, a few epochs over its triples, o* materialised.

Nothing outside the plan's write set is written. Optimizer state is fresh each night.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dkge_dist.learn.batches import BatchMaker
from dkge_dist.learn.early_stopping import EarlyStopping, Metrics
from dkge_dist.learn.frozen import OnlineBatch, OnlineObjects
from dkge_dist.learn.order import ChangedOrder
from dkge_dist.learn.plan import UpdatePlan
from dkge_dist.learn.prefetch import BatchOrder, Prefetcher, ShuffledOrder
from dkge_dist.learn.step import Loss, NotFiniteError, Step
from dkge_dist.measure.validation import Validation
from dkge_dist.runtime import Communicator
from dkge_dist.settings import OnlineSettings
from dkge_dist.tables.initializer import initial_rows, mean_start
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import ROW, TRAINED, Array, DkgeError, Field


@dataclass(frozen=True)
class UpdateResult:
    """What an update did: epochs, and metrics by epoch."""

    epochs: int
    history: list[dict[str, Any]]


ROUND = 4
"""Epochs between two looks at what is left to learn: most of it needs few, and a look costs about as much as one."""

SPARING = 0.6
"""Share of the replay in a large night, while its surroundings are unhurt. A small one has time for all of it."""

UNHURT = 0.99
"""Share of its MRR before the night at which the surroundings of the change count as unhurt."""

BELIEVED = 0.7
"""Mean reciprocal rank of its two ends above which a deleted triple is still believed. Many that were deleted stay
likely for a good reason: denied further, they would take with them what speaks for others."""

MEASURED = 500
"""Affected entities that tell how large emerging ones begin."""

Weights = list[tuple[OnlineObjects, Field, Array, Array]]


class Updater:
    """One update. `entities` and `relations` are the objects of the night with their tables.

    `check` ranks what changed (`plan.changed`), to tell what is left to learn; `surroundings` a sample of what stayed.
    """

    def __init__(
        self,
        plan: UpdatePlan,
        entities: OnlineObjects,
        relations: OnlineObjects,
        maker: BatchMaker[OnlineBatch],
        validation: Validation,
        check: Validation,
        surroundings: Validation,
        loss: Loss,
        settings: OnlineSettings,
        seed: int,
        communicator: Communicator,
    ) -> None:
        self.plan, self.entities, self.relations, self.maker = plan, entities, relations, maker
        self.validation, self.check, self.surroundings, self.settings = validation, check, surroundings, settings
        self.seed, self.communicator = seed, communicator
        self.stopping = EarlyStopping(settings.early_stopping_metric, settings.patience)
        self.step = Step(entities, relations, loss, communicator)
        size = settings.batch_size
        self.by_change = settings.epochs_over == "changed"
        self.changed = ChangedOrder.of(plan, size, settings.replay, settings.global_replay)
        is_large = 0 < settings.narrow_after <= self.changed.batches
        self.spared = self.changed.sparing(SPARING) if is_large else self.changed
        self.order: BatchOrder = self.spared if self.by_change else ShuffledOrder(plan.triples.count, size)

    def run(self, init_scale: float) -> UpdateResult:
        """Learn what changed, or (over affected objects) until validation stops getting better; o* is fresh then."""
        self._initialize(init_scale)
        for objects in (self.entities, self.relations):
            objects.prepare()
        self.step.loss = replace(self.step.loss, denied_offset=self._loss_of_stayed())
        began, history = self.communicator.clock(), list[dict[str, Any]]()
        if self.by_change:
            self._learn_changed(began, history)
        else:
            self._learn_affected(began, history)
        return UpdateResult(len(history), history)

    def _learn_changed(self, began: float, history: list[dict[str, Any]]) -> None:
        """All epochs, the first ones over all that changed, the others over what is not learnt by then.

        Most added triples need few epochs. More of them for all cost time. But with them comes what is replayed, and a
        small graph in which much changed needs that: as long as its surroundings are worse than before the night,
        epochs are over all.
        """
        before = self._mrr_of_surroundings()
        is_over = False
        while len(history) < self.settings.max_epochs and self.order.batches and not is_over:
            with self._prefetcher() as prefetcher:
                for epoch in range(len(history), self._next_look(len(history))):
                    loss = self._epoch(epoch, began, prefetcher)
                    seconds = self.communicator.clock() - began
                    history.append({"epoch": epoch + 1, "loss": loss, "seconds": round(seconds, 3)})
                    is_over = 0 < self.settings.max_seconds <= seconds
                    if is_over:
                        break
            self._refresh()
            if len(history) < self.settings.max_epochs and not is_over:
                holds = self._mrr_of_surroundings() >= UNHURT * before
                self.order = self.spared.narrowed(self._is_left()) if holds else self.changed
        if not history:
            self._refresh()

    def _next_look(self, epoch: int) -> int:
        """The epoch after which what is left to learn is looked for."""
        if not self.settings.narrow_after:
            return self.settings.max_epochs
        first = -(-self.settings.narrow_after // self.changed.batches)
        return min(self.settings.max_epochs, first if epoch < first else epoch + ROUND)

    def _is_left(self) -> Array:
        """Of the changed triples: added ones that, on either side, something else is nearer to; deleted ones that are
        still believed."""
        ranks = self.check.rank(*self._joint(self.check))
        left: Array = (ranks.tail > 1) | (ranks.head > 1)
        deleted = slice(self.changed.added, None)
        left[deleted] = (1 / ranks.tail[deleted] + 1 / ranks.head[deleted]) / 2 > BELIEVED
        return left

    def _mrr_of_surroundings(self) -> float:
        """Of a sample of triples that surround the change, as far as o* are materialised."""
        asked = self.surroundings
        return asked.measure(*self._joint(asked))["mrr"] if asked.triples.count else 1.0

    def _learn_affected(self, began: float, history: list[dict[str, Any]]) -> None:
        """Until validation stops getting better. It hardly knows of what changed: the state before the first epoch is
        never restored."""
        best: Metrics = {}
        kept: Weights = []
        since = 0
        with self._prefetcher() as prefetcher:
            while len(history) < self.settings.max_epochs and self.order.batches:
                loss = self._epoch(len(history), began, prefetcher)
                self._refresh()
                found = self._validate() if self.settings.max_epochs > 1 else {}
                seconds = self.communicator.clock() - began
                history.append({"epoch": len(history) + 1, "loss": loss, **found, "seconds": round(seconds, 3)})
                if self.stopping.improved(found, best):
                    best, since = found, 0
                    kept = self._weights() if len(history) < self.settings.max_epochs else []
                else:
                    since += 1
                if self.stopping.is_over(since) or 0 < self.settings.max_seconds <= seconds:
                    break
        if since:
            self._restore(kept)
        if since or not history:
            self._refresh()

    def _loss_of_stayed(self) -> float:
        """The mean loss of a question about what surrounds the change, of a batch of it; 0 where it is not needed.

        Deleted triples are denied as far as they are more likely than that. In a large graph, or a model that did not
        learn for long, not even what is believed has a probability worth denying.
        """
        rng, stayed = np.random.default_rng([self.seed, 11]), self.plan.stayed
        if not self.by_change or self.step.loss.kind != "softmax" or not stayed.shape[0] or not self.plan.deleted.count:
            return 0.0
        some = rng.choice(stayed, min(stayed.shape[0], self.settings.batch_size), replace=False)
        with self._prefetcher() as prefetcher:
            return float(self.step.measure(prefetcher.prepare(some, rng)) / (2 * some.shape[0]))

    def _prefetcher(self) -> Prefetcher[OnlineBatch]:
        return Prefetcher(self.maker, self.entities, self.relations, self.order, self.seed)

    def _initialize(self, scale: float) -> None:
        """Start values of emerging objects: at random, as in learning from scratch.

        Entities are as large as those that are there: one that is small among large ones stays in the middle of them,
        near to every question, and a night is too short to drive it out.
        """
        for number, objects in enumerate((self.entities, self.relations)):
            rng = np.random.default_rng([self.seed, 5, number])
            rows = objects.plan.emerging.astype(ROW)
            for field in TRAINED:
                of_field = self._scale_of_affected(field) if self.by_change and objects is self.entities else None
                start = initial_rows(rows.shape[0], objects.table.dim, rng, of_field or scale)
                objects.table.reset(field, rows, start)

    def _scale_of_affected(self, field: Field) -> float | None:
        """The `scale` that makes start values as large as affected entities are in the mean; None if there are none."""
        objects = self.entities
        rng = np.random.default_rng([self.seed, 9])
        some = objects.plan.affected
        some = np.sort(rng.choice(some, min(some.shape[0], MEASURED), replace=False)).astype(ROW)
        values = objects.table.pull({field: some})[field]
        return float(np.abs(values).mean() / mean_start(objects.table.dim)) if some.shape[0] else None

    def _epoch(self, epoch: int, began: float, prefetcher: Prefetcher[OnlineBatch]) -> float:
        """One pass; the mean loss."""
        count, total, done = 0, 0.0, 0
        with closing(prefetcher.epoch(epoch)) as batches:
            for prepared in batches:
                left = 1 - self._share_done(epoch, done) if self.settings.schedule == "linear" else 1.0
                optimizer = Optimizer(self.settings.optimizer, self.settings.learning_rate * left)
                try:
                    total += self.step.learn(prepared, optimizer)
                except NotFiniteError as error:
                    raise NotFiniteError(f"the update diverged: {error}; try a smaller online.learning_rate") from None
                done += 1
                count += prepared.size
                self.communicator.report(self._share_done(epoch, done), f"epoch {epoch + 1}/{self.settings.max_epochs}")
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
