"""The courses that a run can take: epochs over all triples of a plan with validation between them, or over what a night
changed, narrowed to what is not learnt yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dkge_dist.learn.frozen import FrozenObjects
from dkge_dist.learn.loop import Metrics
from dkge_dist.learn.order import BatchOrder, ReplayOrder
from dkge_dist.learn.plan import Plan
from dkge_dist.learn.prefetch import Prefetcher
from dkge_dist.learn.step import Step
from dkge_dist.measure.validation import Validation
from dkge_dist.runtime import Communicator
from dkge_dist.settings import OnlineSettings
from dkge_dist.tables.initializer import initial_rows, mean_start
from dkge_dist.types import ROW, TRAINED, Array, Field

MEASURED = 500
"""Affected entities that tell how large emerging ones begin."""


def joint_of(step: Step[Any], asked: Validation) -> tuple[Array, Array]:
    """o* of the entities that are asked for, and of all relations."""
    return step.entities.joint(asked.rows), step.relations.joint(np.arange(step.relations.table.rows, dtype=ROW))


class ValidatedCourse:
    """All triples in every epoch, and validation after some of them. `begins` prepares the tables."""

    def __init__(
        self,
        order: BatchOrder,
        step: Step[Any],
        validation: Validation,
        every: int,
        communicator: Communicator,
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        self.order, self.step, self.validation, self.every = order, step, validation, every
        self.communicator, self._begins = communicator, begins

    def begin(self, prefetcher: Prefetcher[Any]) -> None:
        """Before the first epoch."""
        self._begins()

    def after_epoch(self, epochs: int, is_over: bool) -> Metrics | None:
        """What validation finds, by the first worker."""
        if epochs % self.every and not is_over:
            return None
        if not self.validation.rows.shape[0]:
            return {}
        return self.communicator.broadcast(lambda: self.validation.measure(*joint_of(self.step, self.validation)))


class ChangedCourse:
    """The first epochs over all that changed, the others over what is not learnt by then.

    Most added triples need few epochs. More of them for all cost time. But with them comes what is replayed, and a
    small graph in which much changed needs that: as long as its surroundings are worse than before the night, epochs
    are over all. A large night replays less while its surroundings are retained; a small one has time for all of it.

    `check` ranks what changed (`plan.changed`), to tell what is left to learn; `surroundings` a sample of what stayed.
    """

    def __init__(
        self,
        plan: Plan,
        step: Step[Any],
        check: Validation,
        surroundings: Validation,
        settings: OnlineSettings,
        seed: int,
        begins: Callable[[], None],
    ) -> None:
        self.plan, self.step, self.check, self.surroundings = plan, step, check, surroundings
        self.settings, self.seed, self._begins = settings, seed, begins
        self.changed = ReplayOrder.of(plan, settings.batch_size, settings.replay, settings.global_replay)
        is_large = 0 < settings.narrow_after <= self.changed.batches
        self.reduced = self.changed.with_replay_ratio(settings.replay_ratio) if is_large else self.changed
        self.order: BatchOrder = self.reduced

    def begin(self, prefetcher: Prefetcher[Any]) -> None:
        """Measure what later looks are compared with."""
        self._begins()
        self.step.loss = replace(self.step.loss, unlearn_offset=self.loss_of_stayed(prefetcher))
        self._mrr_before = self.mrr_of_surroundings()
        self._next_look = self._look_after(0)

    def after_epoch(self, epochs: int, is_over: bool) -> Metrics | None:
        """Narrow the epochs to come. Validation hardly knows of what changed, and is not asked."""
        if epochs != self._next_look or is_over:
            return None
        self._next_look = self._look_after(epochs)
        is_retained = self.mrr_of_surroundings() >= self.settings.retention_threshold * self._mrr_before
        self.order = self.reduced.narrowed(self.is_left()) if is_retained else self.changed
        return {}

    def _look_after(self, epoch: int) -> int:
        """The epoch after which what is left to learn is looked for; 0 is never."""
        if not self.settings.narrow_after or not self.changed.batches:
            return 0
        first = -(-self.settings.narrow_after // self.changed.batches)
        return first if epoch < first else epoch + self.settings.narrow_every

    def is_left(self) -> Array:
        """Of the changed triples: added ones that, on either side, something else is nearer to; deleted ones that
        still rank high."""
        ranks = self.check.rank(*joint_of(self.step, self.check))
        left: Array = (ranks.tail > 1) | (ranks.head > 1)
        deleted = slice(self.changed.added, None)
        mrr = (1 / ranks.tail[deleted] + 1 / ranks.head[deleted]) / 2
        left[deleted] = mrr > self.settings.unlearn_above
        return left

    def mrr_of_surroundings(self) -> float:
        """Of a sample of triples that surround the change: of before the night until something was learnt."""
        asked = self.surroundings
        return asked.measure(*joint_of(self.step, asked))["mrr"] if asked.triples.count else 1.0

    def loss_of_stayed(self, prefetcher: Prefetcher[Any]) -> float:
        """The mean loss of a question about what surrounds the change, of a batch of it; 0 where it is not needed.

        Deleted triples are unlearnt as far as they are more likely than that. In a large graph, or a model that did not
        learn for long, not even triples of the graph have a probability worth pushing down.
        """
        rng, stayed = np.random.default_rng([self.seed, 11]), self.plan.stayed
        if self.step.loss.kind != "softmax" or not stayed.shape[0] or not self.plan.deleted.count:
            return 0.0
        some = rng.choice(stayed, min(stayed.shape[0], self.settings.batch_size), replace=False)
        return float(self.step.measure(prefetcher.prepare(some, rng)) / (2 * some.shape[0]))


def begin_night(entities: FrozenObjects, relations: FrozenObjects, scale: float, seed: int, fits: bool) -> None:
    """Start values of emerging objects, at random as in learning from scratch; and what stays the same all night.

    With `fits` entities are as large as those that are there: one that is small among large ones stays in the middle of
    them, near to every question, and a night is too short to drive it out.
    """
    for number, objects in enumerate((entities, relations)):
        rng = np.random.default_rng([seed, 5, number])
        rows = objects.plan.emerging.astype(ROW)
        for field in TRAINED:
            fitting = _scale_of_affected(objects, field, seed) if fits and objects is entities else None
            start = initial_rows(rows.shape[0], objects.table.dim, rng, fitting or scale)
            objects.table.write(field, rows, start, is_reset=True)
    for objects in (entities, relations):
        objects.prepare()


def _scale_of_affected(objects: FrozenObjects, field: Field, seed: int) -> float | None:
    """The `scale` that makes start values as large as affected entities are in the mean; None if there are none."""
    rng, some = np.random.default_rng([seed, 9]), objects.plan.affected
    some = np.sort(rng.choice(some, min(some.shape[0], MEASURED), replace=False)).astype(ROW)
    values = objects.table.pull({field: some})[field]
    return float(np.abs(values).mean() / mean_start(objects.table.dim)) if some.shape[0] else None
