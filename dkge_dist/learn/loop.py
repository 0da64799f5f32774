"""The loop that learns: epochs over the triples of a plan, until they are over, time is, or validation finds nothing
better. The same for a training, a refresh and a night, for one worker and for many.

What differs is given: which triples an epoch passes over and what is measured after it (`Course`), how objects are
encoded (`Step`), and where the run goes back to (`Keeper`). Randomness follows from (seed, epoch, batch) alone, so a
run that was stopped and resumed ends bit for bit where an undisturbed one ends. Several workers run a loop each, in
step: the communicator tells all of them the same.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from dkge_dist.learn.batches import BatchMaker
from dkge_dist.learn.order import BatchOrder
from dkge_dist.learn.prefetch import Prefetcher, PreparedBatch
from dkge_dist.learn.step import NotFiniteError, Step
from dkge_dist.runtime import CollectiveError, Communicator
from dkge_dist.tables.shard import Optimizer, OptimizerKind

Metrics = dict[str, float]
Line = Literal["last", "best"]


class StoppedError(CollectiveError):
    """The run was asked to stop."""


class DivergedError(CollectiveError):
    """The run diverged; what was kept before is still there."""


@dataclass(frozen=True)
class Progress:
    """The next batch to learn, what was seen so far, and what was best. The names are those in checkpoints."""

    epoch: int = 0
    batch: int = 0
    seen: int = 0
    epoch_loss: float = 0.0
    seconds: float = 0.0
    evaluations_since_best: int = 0
    best: Metrics = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


class EarlyStopping(NamedTuple):
    """By a validation metric, larger is better. `patience` 0 never stops."""

    metric: str
    patience: int

    def improved(self, found: Metrics, best: Metrics) -> bool:
        """Is a validation better than the best before? Where nothing can be measured, the newest model is the best."""
        return not found or not best or found[self.metric] > best[self.metric]

    def is_over(self, validations_since_best: int) -> bool:
        """Have there been enough validations without a better one?"""
        return 0 < self.patience <= validations_since_best


@dataclass(frozen=True)
class Schedule:
    """How long to learn, and how fast. `max_seconds` 0 is no limit."""

    max_epochs: int
    max_seconds: float
    stopping: EarlyStopping
    optimizer: OptimizerKind
    rate: float
    dense_rate: float = 0.0
    kind: Literal["linear", "constant"] = "linear"
    least: float = 0.0
    checkpoint_seconds: float = math.inf
    diverged_above: float = math.inf
    margin: float = 0.0

    def is_out_of_time(self, progress: Progress) -> bool:
        """Is the limit of seconds reached?"""
        return 0 < self.max_seconds <= progress.seconds

    def is_over(self, progress: Progress) -> bool:
        """By epochs, by seconds, or by validations without a better one?"""
        stopped_early = self.stopping.is_over(progress.evaluations_since_best)
        return progress.epoch >= self.max_epochs or self.is_out_of_time(progress) or stopped_early

    def share_done(self, progress: Progress, batches: int) -> float:
        """By epochs (of so many batches) or by seconds, whichever is further: a schedule ends with either."""
        by_epochs = (progress.epoch + progress.batch / batches) / self.max_epochs
        by_time = progress.seconds / self.max_seconds if self.max_seconds else 0.0
        return min(1.0, max(by_epochs, by_time))

    def factor(self, share: float) -> float:
        """Of the learning rates, once a share is done."""
        return max(1 - share, self.least) if self.kind == "linear" else 1.0

    def is_diverged(self, progress: Progress, loss: float) -> bool:
        """Is the loss of an epoch far above that of the first one?"""
        usual = max(progress.history[0]["loss"], self.margin) if progress.history else 0.0
        return 0 < self.diverged_above * usual < loss


class Course(Protocol):
    """Which triples epochs pass over, and what is looked at between them."""

    order: BatchOrder

    def begin(self, prefetcher: Prefetcher[Any]) -> None:
        """Before the first epoch: start values, and what later looks are compared with."""

    def after_epoch(self, epochs: int, is_over: bool) -> Metrics | None:
        """So many epochs are done: what a look at them finds, None if there is none now. May change the order."""


class Keeper(Protocol):
    """Where a run goes back to: the newest state, if it was stopped, and the best one."""

    def resume(self, batches: int) -> Progress | None:
        """Load the newest state of a run with so many batches an epoch, if one was kept."""

    def save(self, line: Line, progress: Progress) -> None:
        """Keep the state of now."""

    def restore_best(self, progress: Progress) -> Progress:
        """Load the best state, if one was kept."""

    def stopped(self, progress: Progress) -> str:
        """How a run that was asked to stop can be gone on with."""

    def advice(self, cause: object) -> str:
        """What to do about a run that diverged."""


class Learning:
    """One run of the loop, with everything that it is made of."""

    def __init__(
        self,
        maker: BatchMaker[Any],
        step: Step[Any],
        course: Course,
        schedule: Schedule,
        keeper: Keeper,
        communicator: Communicator,
        seed: int,
    ) -> None:
        self.maker, self.step, self.course, self.schedule = maker, step, course, schedule
        self.keeper, self.communicator, self.seed = keeper, communicator, seed

    def run(self) -> Progress:
        """Learn to the end, and leave the tables at their best, with o* of all that changed."""
        self._is_at_best = False
        progress = self.keeper.resume(self.course.order.batches) or Progress()
        self._saved = self.communicator.clock()
        with Prefetcher(self.maker, self.step.entities, self.step.relations, self.seed) as prefetcher:
            self.course.begin(prefetcher)
            while self.course.order.batches and not self.schedule.is_over(progress):
                progress = self._epoch(progress, prefetcher)
        if not self._is_at_best:
            progress = self.keeper.restore_best(progress)
        for objects in (self.step.entities, self.step.relations):
            objects.materialise()
        return progress

    def _epoch(self, progress: Progress, prefetcher: Prefetcher[Any]) -> Progress:
        """Learn the rest of an epoch, then look at what came of it."""
        clock, before, first, speed = self.communicator.clock, progress.seconds, progress.seen, 0.0
        began, order = clock(), self.course.order
        with closing(prefetcher.epoch(order, progress.epoch, progress.batch)) as batches:
            for prepared in batches:
                loss = self._learn(prepared, progress)
                progress = replace(
                    progress,
                    batch=progress.batch + 1,
                    seen=progress.seen + prepared.size,
                    epoch_loss=progress.epoch_loss + loss,
                    seconds=before + clock() - began,
                )
                speed = (progress.seen - first) / max(progress.seconds - before, 1e-9)
                share = self.schedule.share_done(progress, order.batches)
                self.communicator.report(share, self._message(progress, speed))
                if self.communicator.should_stop():
                    self.keeper.save("last", progress)
                    raise StoppedError(self.keeper.stopped(progress))
                if self.schedule.is_out_of_time(progress):
                    break
                self._save_if_due(progress)
        loss = progress.epoch_loss / progress.seen
        self._refuse_diverged(progress, loss)
        line: dict[str, Any] = {"epoch": progress.epoch + 1, "loss": loss, "triples_per_second": round(speed)}
        progress = replace(progress, epoch=progress.epoch + 1, batch=0, seen=0, epoch_loss=0.0)
        progress = replace(progress, seconds=before + clock() - began)
        found = self.course.after_epoch(progress.epoch, self.schedule.is_over(progress))
        if found is not None:
            # Only then: time that ran out since `is_over` would leave an end without validation.
            progress = replace(self._compare(progress, found), seconds=before + clock() - began)
        line |= {**(found or {}), "seconds": round(progress.seconds, 3)}
        progress = replace(progress, history=[*progress.history, line])
        self.communicator.report_epoch(line)
        if not self.schedule.is_over(progress):
            self._save_if_due(progress)
        return progress

    def _learn(self, prepared: PreparedBatch[Any], progress: Progress) -> float:
        schedule, share = self.schedule, self.schedule.share_done(progress, self.course.order.batches)
        factor = schedule.factor(share)
        if self.step.dense is not None:
            self.step.dense.set_rate(schedule.dense_rate * factor)
        try:
            # Evidence leads at first, so that vectors look for what it does not say; in the end they know everything.
            return self.step.learn(prepared, Optimizer(schedule.optimizer, schedule.rate * factor), 1 - share)
        except NotFiniteError as error:
            where = f"epoch {progress.epoch + 1}, batch {progress.batch + 1}"
            raise DivergedError(f"{where}: {self.keeper.advice(error)}") from None

    def _refuse_diverged(self, progress: Progress, loss: float) -> None:
        if self.schedule.is_diverged(progress, loss):
            cause = f"a loss of {loss:.3g} after {progress.history[0]['loss']:.3g} in the first epoch"
            raise DivergedError(f"epoch {progress.epoch + 1}: {self.keeper.advice(cause)}")

    def _compare(self, progress: Progress, found: Metrics) -> Progress:
        """Keep the model if it is the best so far, and not the last: that one is kept as it stands."""
        if not self.schedule.stopping.improved(found, progress.best):
            return replace(progress, evaluations_since_best=progress.evaluations_since_best + 1)
        progress = replace(progress, evaluations_since_best=0, best=found)
        self._is_at_best = bool(found) and self.schedule.is_over(progress)
        if found and not self._is_at_best:
            self.keeper.save("best", progress)
        return progress

    def _save_if_due(self, progress: Progress) -> None:
        if self.communicator.clock() - self._saved >= self.schedule.checkpoint_seconds:
            self.keeper.save("last", progress)
            self._saved = self.communicator.clock()

    def _message(self, progress: Progress, speed: float) -> str:
        metric = self.schedule.stopping.metric
        best = f", {metric} {progress.best[metric]:.3f}" if metric in progress.best else ""
        # How many epochs fit into a limit of seconds is not known before.
        of = "" if self.schedule.max_seconds else f"/{self.schedule.max_epochs}"
        loss = progress.epoch_loss / progress.seen
        return f"epoch {progress.epoch + 1}{of}, loss {loss:.4f}, {speed:,.0f} triples/s{best}"
