"""Learning from scratch: epochs over the train triples until validation stops getting better.

Randomness follows from (seed, epoch, batch) alone, so a training that was stopped and resumed ends bit for bit where an
undisturbed one ends. The trainer knows neither store nor ranks: it is handed what saves, measures and listens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from dkge_dist.config import TrainSettings
from dkge_dist.kernels.jit import set_threads
from dkge_dist.learning.batches import Batch, BatchMaker
from dkge_dist.learning.contexts import ObjectBatch
from dkge_dist.learning.encode import joint_of
from dkge_dist.learning.measure import Measure
from dkge_dist.learning.step import NotFiniteError
from dkge_dist.training.checkpoints import Checkpoints
from dkge_dist.training.learner import Learner, Rates
from dkge_dist.types import ROW, Array, DkgeError

METRIC = "hits@10"
Metrics = dict[str, float]
DIVERGED = 3.0
"""An epoch whose loss is this many times that of the first one (or the margin) is not going anywhere."""
LEAST_RATE = 0.01
"""Share of the learning rate that a schedule ends at."""


class StoppedError(DkgeError):
    """Training was asked to stop; a checkpoint was left to go on from."""


class DivergedError(DkgeError):
    """Training went wrong; the last good checkpoint was kept."""


@dataclass(frozen=True)
class Progress:
    """How far a training is: the next batch to learn, what was seen so far, and what was best."""

    epoch: int = 0
    batch: int = 0
    epoch_loss: float = 0.0
    seconds: float = 0.0
    epochs_planned: int = 0
    evaluations_since_best: int = 0
    best: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Listener:
    """Who hears of a training: of every batch (share done, a few words), and of every epoch."""

    on_batch: Callable[[float, str], None] = lambda done, words: None
    on_epoch: Callable[[dict[str, Any]], None] = lambda line: None
    stop: Callable[[], bool] = lambda: False


class Trainer:
    """One training, from wherever its checkpoints say it is.

    Several workers run one each, in step: `clock` and `agreed` (one of them measures) tell all of them the same.
    """

    def __init__(
        self,
        maker: BatchMaker[ObjectBatch],
        learner: Learner,
        validation: Measure,
        checkpoints: Checkpoints,
        settings: TrainSettings,
        seed: int,
        listener: Listener | None = None,
        clock: Callable[[], float] = time.monotonic,
        agreed: Callable[[Callable[[], Metrics]], Metrics] = lambda measure: measure(),
    ) -> None:
        self.agreed = agreed
        self.maker, self.learner, self.validation, self.checkpoints = maker, learner, validation, checkpoints
        self.settings, self.seed, self.listener, self.clock = settings, seed, listener or Listener(), clock
        self.rates = Rates(settings.learning_rate, settings.dense_learning_rate or settings.learning_rate)
        self.batches = -(-maker.train.count // settings.batch_size)
        self.relations = np.arange(maker.relations.count, dtype=ROW)

    def run(self) -> Progress:
        """Train to the end, and leave the learner at its best."""
        progress = self._resume()
        self._saved = self.clock()
        with ThreadPoolExecutor(1, "next-batch", lambda: set_threads(1)) as prefetcher:
            while not self._finished(progress):
                progress = self._epoch(progress, prefetcher)
        best = self.checkpoints.load("best")
        if best is None:
            return progress
        folder, found = best
        self._load(folder)
        return replace(progress, best={name: value for name, value in found.items() if name != "epoch"})

    def _resume(self) -> Progress:
        found = self.checkpoints.load("last")
        if found is None:
            return Progress(epochs_planned=self.settings.max_epochs)
        folder, values = found
        if values.keys() != {known.name for known in fields(Progress)} or values["batch"] > self.batches:
            raise self.checkpoints.damaged(folder, "its progress is not one of this training")
        self._load(folder)
        return Progress(**values)

    def _load(self, folder: Path) -> None:
        try:
            self.learner.load(folder)
        except (OSError, EOFError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise self.checkpoints.damaged(folder, error) from None

    def _finished(self, progress: Progress) -> bool:
        out_of_time = 0 < self.settings.max_seconds <= progress.seconds
        impatient = 0 < self.settings.patience <= progress.evaluations_since_best
        return progress.epoch >= progress.epochs_planned or out_of_time or impatient

    def _epoch(self, progress: Progress, prefetcher: ThreadPoolExecutor) -> Progress:
        """Learn the rest of an epoch, then look how good it is."""
        began, before, first, speed = self.clock(), progress.seconds, progress.batch, 0.0
        size = self.settings.batch_size
        with closing(self._prefetched(progress, prefetcher)) as batches:
            for batch in batches:
                loss = self._learn(batch, progress)
                elapsed = self.clock() - began
                progress = replace(
                    progress,
                    batch=progress.batch + 1,
                    epoch_loss=progress.epoch_loss + loss,
                    seconds=before + elapsed,
                )
                seen = min(progress.batch * size, self.maker.train.count)
                speed = (seen - first * size) / max(elapsed, 1e-9)
                words = self._words(progress, progress.epoch_loss / seen, speed)
                self.listener.on_batch(self._share_done(progress), words)
                if self.listener.stop():
                    self._save(progress)
                    raise StoppedError(
                        f"stopped in epoch {progress.epoch + 1}; the same command goes on from here "
                        f"({self.checkpoints.folder})"
                    )
                if 0 < self.settings.max_seconds <= progress.seconds:
                    break
                self._save_if_due(progress)
        return self._end_epoch(progress, speed, before, began)

    def _prefetched(
        self, progress: Progress, prefetcher: ThreadPoolExecutor
    ) -> Generator[Batch[ObjectBatch], None, None]:
        """The batches left in an epoch; the next one is made while the caller has this one.

        Once it is closed no batch is being made any more: validation uses the same contexts.
        """
        order = np.random.default_rng([self.seed, progress.epoch]).permutation(self.maker.train.count)
        size = self.settings.batch_size

        def make(number: int) -> Future[Batch[ObjectBatch]]:
            rng = np.random.default_rng([self.seed, progress.epoch, number])
            return prefetcher.submit(self._make, order[number * size : (number + 1) * size], rng)

        if progress.batch == self.batches:
            return
        coming = make(progress.batch)
        try:
            for number in range(progress.batch, self.batches):
                batch = coming.result()
                if number + 1 < self.batches:
                    coming = make(number + 1)
                yield batch
        finally:
            wait([coming])

    def _make(self, positions: Array, rng: np.random.Generator) -> Batch[ObjectBatch]:
        batch = self.maker.make(positions, rng)
        self.learner.expect(batch)
        return batch

    def _learn(self, batch: Batch[ObjectBatch], progress: Progress) -> float:
        step = progress.epoch * self.batches + progress.batch
        share = step / (progress.epochs_planned * self.batches)
        factor = max(1 - share, LEAST_RATE) if self.settings.schedule == "linear" else 1.0
        try:
            return self.learner.learn(batch, self.rates.scaled(factor))
        except NotFiniteError as error:
            raise DivergedError(
                f"epoch {progress.epoch + 1}, batch {progress.batch + 1}: {self._advice(error)}"
            ) from None

    def _end_epoch(self, progress: Progress, speed: float, before: float, began: float) -> Progress:
        seen = min(progress.batch * self.settings.batch_size, self.maker.train.count)
        number = progress.epoch + 1
        line: dict[str, Any] = {"epoch": number, "loss": progress.epoch_loss / seen, "triples_per_second": round(speed)}
        usual = max(progress.history[0]["loss"], self.settings.margin) if progress.history else 0.0
        if 0 < DIVERGED * usual < line["loss"]:
            told = f"a loss of {line['loss']:.3g} after {progress.history[0]['loss']:.3g} in the first epoch"
            raise DivergedError(f"epoch {number}: {self._advice(told)}")
        progress = replace(progress, epoch=number, batch=0, epoch_loss=0.0, seconds=before + self.clock() - began)
        if number == 1:
            progress = self._plan(progress)
        if number % self.settings.eval_every == 0 or self._finished(progress):
            found = self._validate()
            line |= found
            better = found.get(METRIC, 0.0) > progress.best.get(METRIC, -1.0)
            since = 0 if better else progress.evaluations_since_best + 1
            progress = replace(progress, evaluations_since_best=since, best=found if better else progress.best)
            if better and found:
                self.checkpoints.save("best", self.learner.save, {"epoch": number, **found})
            progress = replace(progress, seconds=before + self.clock() - began)
        line["seconds"] = round(progress.seconds, 3)
        progress = replace(progress, history=[*progress.history, line])
        self.listener.on_epoch(line)
        if not self._finished(progress):
            self._save_if_due(progress)
        return progress

    def _plan(self, progress: Progress) -> Progress:
        """With a limit in seconds, plan as many epochs as will fit, so that the schedule gets to its end."""
        if not self.settings.max_seconds:
            return progress
        fitting = min(self.settings.max_epochs, self.settings.max_seconds / max(progress.seconds, 1e-9))
        return replace(progress, epochs_planned=max(1, int(fitting)))

    def _validate(self) -> Metrics:
        if not self.validation.rows.shape[0]:
            return {}
        return self.agreed(self._measure)

    def _measure(self) -> Metrics:
        model, (entities, relations) = self.learner.model, self.learner.tables
        return self.validation.measure(
            joint_of(model.entity, entities, self.maker.entities, self.validation.rows, self.learner.device),
            joint_of(model.relation, relations, self.maker.relations, self.relations, self.learner.device),
        )

    def _save_if_due(self, progress: Progress) -> None:
        if self.clock() - self._saved >= self.settings.checkpoint_seconds:
            self._save(progress)

    def _save(self, progress: Progress) -> None:
        self.checkpoints.save("last", self.learner.save, asdict(progress))
        self._saved = self.clock()

    def _share_done(self, progress: Progress) -> float:
        by_epochs = (progress.epoch + progress.batch / self.batches) / progress.epochs_planned
        by_time = progress.seconds / self.settings.max_seconds if self.settings.max_seconds else 0.0
        return min(1.0, max(by_epochs, by_time))

    def _words(self, progress: Progress, loss: float, speed: float) -> str:
        best = f", {METRIC} {progress.best[METRIC]:.3f}" if METRIC in progress.best else ""
        return f"epoch {progress.epoch + 1}/{progress.epochs_planned}, loss {loss:.4f}, {speed:,.0f} triples/s{best}"

    def _advice(self, what: object) -> str:
        kept = self.checkpoints.load("last")
        where = f"the last good checkpoint is in {kept[0]}" if kept else "there was no checkpoint yet"
        return f"training diverged: {what}. Try a smaller train.learning_rate; {where}"
