"""Learning from scratch: epochs over the train triples until validation stops getting better.

Randomness follows from (seed, epoch, batch) alone, so a training that was stopped and resumed ends bit for bit where an
undisturbed one ends. Several workers run a trainer each, in step: the communicator tells all of them the same.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from safetensors import SafetensorError

from dkge_dist.learn.batches import BatchMaker
from dkge_dist.learn.checkpoints import Checkpoints, Line
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.early_stopping import EarlyStopping, Metrics
from dkge_dist.learn.learner import Learner, Rates
from dkge_dist.learn.prefetch import Prefetcher, PreparedBatch, ShuffledOrder
from dkge_dist.learn.progress import DivergedError, StoppedError, TrainProgress
from dkge_dist.learn.step import NotFiniteError
from dkge_dist.measure.validation import Validation
from dkge_dist.runtime import Communicator
from dkge_dist.settings import TrainSettings
from dkge_dist.store.storage import MissingError
from dkge_dist.tables.checkpoint import CheckpointFolder, DamagedCheckpointError
from dkge_dist.types import ROW

DIVERGED = 3.0
"""An epoch whose loss is this many times that of the first one (or the margin) will not recover."""
DAMAGED = (DamagedCheckpointError, MissingError, SafetensorError)
LEAST_RATE = 0.01
"""Share of the learning rate that a schedule ends at."""


class Trainer:
    """One training, from wherever its checkpoints say it is."""

    def __init__(
        self,
        maker: BatchMaker[ObjectBatch],
        learner: Learner,
        validation: Validation,
        checkpoints: Checkpoints,
        settings: TrainSettings,
        seed: int,
        communicator: Communicator,
    ) -> None:
        self.maker, self.learner, self.validation, self.checkpoints = maker, learner, validation, checkpoints
        self.settings, self.seed, self.communicator = settings, seed, communicator
        self.batch_size, factor = settings.batch_for(maker.triples.count)
        rate = settings.learning_rate * factor
        self.rates = Rates(rate, settings.dense_learning_rate or rate)
        self.stopping = EarlyStopping(settings.early_stopping_metric, settings.patience)
        self.order = ShuffledOrder(maker.triples.count, self.batch_size)
        self.batches = self.order.batches
        self.relations = np.arange(maker.relations.count, dtype=ROW)
        self._is_at_best = False

    def run(self) -> TrainProgress:
        """Train to the end, and leave the learner at its best."""
        progress = self._resume()
        self._saved = self.communicator.clock()
        learner = self.learner
        with Prefetcher(self.maker, learner.entities, learner.relations, self.order, self.seed) as prefetcher:
            while not self._finished(progress):
                progress = self._epoch(progress, prefetcher)
        if self._is_at_best:
            return progress
        best = self.checkpoints.load("best")
        if best is None:
            return progress
        folder, found = best
        self._load(folder)
        return replace(progress, best={name: value for name, value in found.items() if name != "epoch"})

    def _resume(self) -> TrainProgress:
        found = self.checkpoints.load("last")
        if found is None:
            return TrainProgress()
        folder, values = found
        # Epochs were once planned ahead: a training that was stopped then goes on.
        values = {name: value for name, value in values.items() if name != "epochs_planned"}
        if values.keys() != {known.name for known in fields(TrainProgress)} or values["batch"] > self.batches:
            raise self.checkpoints.damaged(folder, "its progress is not one of this training")
        self._load(folder)
        return TrainProgress(**values)

    def _load(self, folder: CheckpointFolder) -> None:
        try:
            self.learner.load(folder)
        except (*DAMAGED, OSError, ValueError, KeyError, RuntimeError) as error:
            raise self.checkpoints.damaged(folder, error) from None

    def _finished(self, progress: TrainProgress) -> bool:
        out_of_time = 0 < self.settings.max_seconds <= progress.seconds
        stopped_early = self.stopping.is_over(progress.evaluations_since_best)
        return progress.epoch >= self.settings.max_epochs or out_of_time or stopped_early

    def _epoch(self, progress: TrainProgress, prefetcher: Prefetcher[ObjectBatch]) -> TrainProgress:
        """Learn the rest of an epoch, then validate."""
        clock = self.communicator.clock
        began, before, first, speed = clock(), progress.seconds, progress.batch, 0.0
        size = self.batch_size
        with closing(prefetcher.epoch(progress.epoch, progress.batch)) as batches:
            for prepared in batches:
                loss = self._learn(prepared, progress)
                elapsed = clock() - began
                progress = replace(
                    progress,
                    batch=progress.batch + 1,
                    epoch_loss=progress.epoch_loss + loss,
                    seconds=before + elapsed,
                )
                seen = min(progress.batch * size, self.maker.triples.count)
                speed = (seen - first * size) / max(elapsed, 1e-9)
                message = self._message(progress, progress.epoch_loss / seen, speed)
                self.communicator.report(self._share_done(progress), message)
                if self.communicator.should_stop():
                    self._save_progress(progress)
                    raise StoppedError(
                        f"stopped in epoch {progress.epoch + 1}; the same command goes on from here "
                        f"({self.checkpoints.folder})"
                    )
                if 0 < self.settings.max_seconds <= progress.seconds:
                    break
                self._save_if_due(progress)
        return self._end_epoch(progress, speed, before, began)

    def _learn(self, prepared: PreparedBatch[ObjectBatch], progress: TrainProgress) -> float:
        share = self._share_done(progress)
        factor = max(1 - share, LEAST_RATE) if self.settings.schedule == "linear" else 1.0
        try:
            # Evidence leads at first, so that vectors look for what it does not say; in the end they know everything.
            return self.learner.learn(prepared, self.rates.scaled(factor), 1 - share)
        except NotFiniteError as error:
            raise DivergedError(
                f"epoch {progress.epoch + 1}, batch {progress.batch + 1}: {self._advice(error)}"
            ) from None

    def _end_epoch(self, progress: TrainProgress, speed: float, before: float, began: float) -> TrainProgress:
        clock = self.communicator.clock
        seen = min(progress.batch * self.batch_size, self.maker.triples.count)
        number = progress.epoch + 1
        line: dict[str, Any] = {"epoch": number, "loss": progress.epoch_loss / seen, "triples_per_second": round(speed)}
        usual = max(progress.history[0]["loss"], self.settings.margin) if progress.history else 0.0
        if 0 < DIVERGED * usual < line["loss"]:
            cause = f"a loss of {line['loss']:.3g} after {progress.history[0]['loss']:.3g} in the first epoch"
            raise DivergedError(f"epoch {number}: {self._advice(cause)}")
        progress = replace(progress, epoch=number, batch=0, epoch_loss=0.0, seconds=before + clock() - began)
        if number % self.settings.eval_every == 0 or self._finished(progress):
            found = self._validate()
            line |= found
            progress = self._compare(progress, found)
            progress = replace(progress, seconds=before + clock() - began)
        line["seconds"] = round(progress.seconds, 3)
        progress = replace(progress, history=[*progress.history, line])
        self.communicator.report_epoch(line)
        if not self._finished(progress):
            self._save_if_due(progress)
        return progress

    def _compare(self, progress: TrainProgress, found: Metrics) -> TrainProgress:
        """Keep the model if it is the best so far, and not the last: that one is kept as it stands."""
        if not self.stopping.improved(found, progress.best):
            return replace(progress, evaluations_since_best=progress.evaluations_since_best + 1)
        progress = replace(progress, evaluations_since_best=0, best=found)
        self._is_at_best = bool(found) and self._finished(progress)
        if found and not self._is_at_best:
            self._save("best", {"epoch": progress.epoch, **found})
        return progress

    def _validate(self) -> Metrics:
        if not self.validation.rows.shape[0]:
            return {}
        return self.communicator.broadcast(self._measure)

    def _measure(self) -> Metrics:
        return self.validation.measure(
            self.learner.entities.joint(self.maker.entities, self.validation.rows),
            self.learner.relations.joint(self.maker.relations, self.relations),
        )

    def _save_if_due(self, progress: TrainProgress) -> None:
        if self.communicator.clock() - self._saved >= self.settings.checkpoint_seconds:
            self._save_progress(progress)

    def _save_progress(self, progress: TrainProgress) -> None:
        self._save("last", asdict(progress))
        self._saved = self.communicator.clock()

    def _save(self, line: Line, progress: dict[str, Any]) -> None:
        """The first worker writes, and nobody goes on before it has."""
        if self.communicator.rank == 0:
            self.checkpoints.save(line, self.learner.save, progress)
        self.communicator.barrier()

    def _share_done(self, progress: TrainProgress) -> float:
        """By epochs or by seconds, whichever is further: schedules come to their end with either."""
        by_epochs = (progress.epoch * self.batches + progress.batch) / (self.settings.max_epochs * self.batches)
        by_time = progress.seconds / self.settings.max_seconds if self.settings.max_seconds else 0.0
        return min(1.0, max(by_epochs, by_time))

    def _message(self, progress: TrainProgress, loss: float, speed: float) -> str:
        metric = self.stopping.metric
        best = f", {metric} {progress.best[metric]:.3f}" if metric in progress.best else ""
        # How many epochs fit into a limit of seconds is not known before.
        of = "" if self.settings.max_seconds else f"/{self.settings.max_epochs}"
        return f"epoch {progress.epoch + 1}{of}, loss {loss:.4f}, {speed:,.0f} triples/s{best}"

    def _advice(self, cause: object) -> str:
        kept = self.checkpoints.load("last")
        where = f"the last good checkpoint is in {kept[0]}" if kept else "there was no checkpoint yet"
        return f"training diverged: {cause}. Try a smaller train.learning_rate; {where}"
