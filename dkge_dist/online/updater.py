"""Carry out an `UpdatePlan`: start values for emerging objects, a few epochs over its triples, o* made fresh.

Nothing outside the plan's write set is written. Optimizer state is fresh each night.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkge_dist.config import OnlineSettings
from dkge_dist.kernels.jit import set_threads
from dkge_dist.learning.batches import Batch, BatchMaker
from dkge_dist.learning.measure import Measure
from dkge_dist.learning.step import Loss, NotFiniteError, batch_loss
from dkge_dist.online.encoder import OnlineBatch, OnlineObjects
from dkge_dist.online.plan import ObjectPlan, UpdatePlan
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import ROW, Array, DkgeError, Field

METRIC = "mrr"


@dataclass(frozen=True)
class Updated:
    """What an update did."""

    epochs: int
    seconds: float
    best: dict[str, float]
    history: list[dict[str, Any]]


Kept = list[tuple[OnlineObjects, Field, Array, Array]]


class Updater:
    """One update. `entities` and `relations` know how objects are encoded tonight, and hold their tables."""

    def __init__(
        self,
        plan: UpdatePlan,
        entities: OnlineObjects,
        relations: OnlineObjects,
        maker: BatchMaker[OnlineBatch],
        validation: Measure,
        loss: Loss,
        settings: OnlineSettings,
        seed: int,
        progress: Callable[[float, str], None] = lambda done, words: None,
        stop: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan, self.entities, self.relations, self.maker = plan, entities, relations, maker
        self.validation, self.loss, self.settings, self.seed = validation, loss, settings, seed
        self.progress, self.stop, self.clock = progress, stop, clock

    @property
    def _kinds(self) -> tuple[tuple[OnlineObjects, ObjectPlan], tuple[OnlineObjects, ObjectPlan]]:
        return (self.entities, self.plan.entities), (self.relations, self.plan.relations)

    def run(self) -> Updated:
        """Learn until validation stops getting better, and leave the tables at the best of it.

        What was before the first epoch is never gone back to: validation may hardly know of tonight's triples, and all
        of them are to be learnt once.
        """
        began = self.clock()
        best: dict[str, float] = {}
        kept: Kept = []
        since, history, epoch = 0, [], 0
        while epoch < self.settings.max_epochs and self.plan.triples.count:
            loss = self._epoch(epoch, began)
            epoch += 1
            self._refresh()
            found = self._validate() if self.settings.max_epochs > 1 else {}
            history.append({"epoch": epoch, "loss": loss, **found, "seconds": round(self.clock() - began, 3)})
            if found.get(METRIC, 1.0) >= best.get(METRIC, 0.0):
                best, since = found, 0
                kept = self._keep() if epoch < self.settings.max_epochs else []
            else:
                since += 1
            if 0 < self.settings.patience <= since or 0 < self.settings.max_seconds <= self.clock() - began:
                break
        if since:
            self._restore(kept)
        if since or not epoch:
            self._refresh()
        return Updated(epoch, self.clock() - began, best, history)

    def _epoch(self, epoch: int, began: float) -> float:
        """One pass over the triples of the plan; the mean loss."""
        count, total, done = self.plan.triples.count, 0.0, 0
        with closing(self._batches(epoch)) as batches:
            for size, batch in batches:
                left = 1 - self._done(epoch, done) if self.settings.schedule == "linear" else 1.0
                total += self._learn(batch, self.settings.learning_rate * left)
                done += size
                self.progress(self._done(epoch, done), f"epoch {epoch + 1}/{self.settings.max_epochs}")
                if self.stop():
                    raise DkgeError(
                        "the update was stopped; the store is as before, and the same command starts it again"
                    )
                if 0 < self.settings.max_seconds <= self.clock() - began:
                    break
        return total / count

    def _batches(self, epoch: int) -> Generator[tuple[int, Batch[OnlineBatch]]]:
        """The batches of an epoch and their sizes; the next one is made, and its rows fetched, while one is learnt."""
        count, size = self.plan.triples.count, self.settings.batch_size
        order = np.random.default_rng([self.seed, epoch]).permutation(count)

        def make(number: int) -> tuple[int, Batch[OnlineBatch]]:
            positions = order[number * size : (number + 1) * size]
            batch = self.maker.make(positions, np.random.default_rng([self.seed, epoch, number]))
            for objects, part in ((self.entities, batch.entities), (self.relations, batch.relations)):
                objects.table.expect(part.rows)
            return positions.shape[0], batch

        with ThreadPoolExecutor(1, "next-batch", lambda: set_threads(1)) as pool:
            coming = pool.submit(make, 0)
            for number in range(1, -(-count // size) + 1):
                made = coming.result()
                if number * size < count:
                    coming = pool.submit(make, number)
                yield made

    def _done(self, epoch: int, triples: int) -> float:
        """The share of all epochs that is over after some triples of one."""
        return (epoch + triples / self.plan.triples.count) / self.settings.max_epochs

    def _learn(self, batch: Batch[OnlineBatch], rate: float) -> float:
        entity, entity_leaves = self.entities.encode(batch.entities)
        relation, relation_leaves = self.relations.encode(batch.relations)
        total = batch_loss(entity, relation, batch, self.loss)
        value = float(total.detach())
        if not np.isfinite(value):
            raise NotFiniteError(f"the update diverged (loss {value}); try a smaller online.learning_rate")
        if total.requires_grad:
            total.backward()  # type: ignore[no-untyped-call]
        optimizer = Optimizer(self.settings.optimizer, rate)
        for objects, leaves in ((self.entities, entity_leaves), (self.relations, relation_leaves)):
            objects.table.push(objects.gradients(leaves), optimizer)
        return value

    def _refresh(self) -> None:
        """o* of everything that depends on what is trained."""
        for objects, plan in self._kinds:
            objects.refresh(plan.trained)

    def _validate(self) -> dict[str, float]:
        rows = self.validation.rows
        if not rows.shape[0]:
            return {}
        every = np.arange(self.relations.count, dtype=ROW)
        entities = self.entities.table.pull({Field.JOINT: rows})[Field.JOINT]
        relations = self.relations.table.pull({Field.JOINT: every})[Field.JOINT]
        return self.validation.measure(entities, relations)

    def _keep(self) -> Kept:
        """Copies of all that is trained."""
        return [
            (objects, field, rows, objects.table.pull({field: rows})[field])
            for objects, plan in self._kinds
            for field, rows in ((Field.KNOWLEDGE, plan.trained), (Field.CONTEXT, plan.emerging.astype(ROW)))
            if rows.shape[0]
        ]

    def _restore(self, kept: Kept) -> None:
        for objects, field, rows, values in kept:
            objects.table.write(field, rows, values)
