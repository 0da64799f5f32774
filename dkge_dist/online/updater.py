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
from dkge_dist.learning.prefetch import Prefetcher
from dkge_dist.learning.step import Loss, NotFiniteError, Step
from dkge_dist.online.encoder import OnlineBatch, OnlineObjects
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


Weights = list[tuple[OnlineObjects, Field, Array, Array]]


class Updater:
    """One update. `entities` and `relations` are the objects of the night with their tables."""

    def __init__(
        self,
        plan: UpdatePlan,
        entities: OnlineObjects,
        relations: OnlineObjects,
        maker: BatchMaker[OnlineBatch],
        validation: Validation,
        loss: Loss,
        settings: OnlineSettings,
        seed: int,
        communicator: Communicator,
    ) -> None:
        self.plan, self.entities, self.relations, self.maker = plan, entities, relations, maker
        self.validation, self.settings, self.seed, self.communicator = validation, settings, seed, communicator
        self.stopping = EarlyStopping(settings.early_stopping_metric, settings.patience)
        self.step = Step(entities, relations, loss, communicator)

    def run(self, init_scale: float) -> UpdateResult:
        """Learn until validation stops getting better, and leave the tables at the best of it.

        The state before the first epoch is never restored: validation may hardly know of tonight's triples, and all of
        them are to be learnt once.
        """
        self._initialize(init_scale)
        for objects in (self.entities, self.relations):
            objects.prepare()
        began = self.communicator.clock()
        best: Metrics = {}
        kept: Weights = []
        since, history, epoch = 0, [], 0
        batch_size = self.settings.batch_size
        with Prefetcher(self.maker, self.entities, self.relations, batch_size, self.seed) as prefetcher:
            while epoch < self.settings.max_epochs and self.plan.triples.count:
                loss = self._epoch(epoch, began, prefetcher)
                epoch += 1
                self._refresh()
                found = self._validate() if self.settings.max_epochs > 1 else {}
                seconds = self.communicator.clock() - began
                history.append({"epoch": epoch, "loss": loss, **found, "seconds": round(seconds, 3)})
                if self.stopping.improved(found, best):
                    best, since = found, 0
                    kept = self._weights() if epoch < self.settings.max_epochs else []
                else:
                    since += 1
                if self.stopping.is_over(since) or 0 < self.settings.max_seconds <= seconds:
                    break
        if since:
            self._restore(kept)
        if since or not epoch:
            self._refresh()
        return UpdateResult(epoch, history)

    def _initialize(self, scale: float) -> None:
        """Start values of emerging objects: at random, as in learning from scratch."""
        for number, objects in enumerate((self.entities, self.relations)):
            rng = np.random.default_rng([self.seed, 5, number])
            rows = objects.plan.emerging.astype(ROW)
            for field in TRAINED:
                objects.table.reset(field, rows, initial_rows(rows.shape[0], objects.table.dim, rng, scale))

    def _epoch(self, epoch: int, began: float, prefetcher: Prefetcher[OnlineBatch]) -> float:
        """One pass over the triples of the plan; the mean loss."""
        count, total, done = self.plan.triples.count, 0.0, 0
        with closing(prefetcher.epoch(epoch)) as batches:
            for prepared in batches:
                left = 1 - self._share_done(epoch, done) if self.settings.schedule == "linear" else 1.0
                optimizer = Optimizer(self.settings.optimizer, self.settings.learning_rate * left)
                try:
                    total += self.step.learn(prepared, optimizer)
                except NotFiniteError as error:
                    raise NotFiniteError(f"the update diverged: {error}; try a smaller online.learning_rate") from None
                done += prepared.size
                self.communicator.report(self._share_done(epoch, done), f"epoch {epoch + 1}/{self.settings.max_epochs}")
                if self.communicator.should_stop():
                    raise DkgeError(
                        "the update was stopped; the store is as before, and the same command starts it again"
                    )
                if 0 < self.settings.max_seconds <= self.communicator.clock() - began:
                    break
        return total / count

    def _share_done(self, epoch: int, triples: int) -> float:
        """The share of all epochs that is over after some triples of one."""
        return (epoch + triples / self.plan.triples.count) / self.settings.max_epochs

    def _refresh(self) -> None:
        """Materialise o* of everything that depends on what is trained."""
        for objects in (self.entities, self.relations):
            objects.refresh()

    def _validate(self) -> Metrics:
        rows = self.validation.rows
        if not rows.shape[0]:
            return {}
        every = np.arange(self.relations.count, dtype=ROW)
        entities = self.entities.table.pull({Field.JOINT: rows})[Field.JOINT]
        relations = self.relations.table.pull({Field.JOINT: every})[Field.JOINT]
        return self.validation.measure(entities, relations)

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
