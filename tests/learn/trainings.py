"""Trainers of a small movie graph, with scripted validation, clocks and monitors, for the tests of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkge_dist.evidence.fitting import EvidenceFitting
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.jobs.train import _task as task_of_training
from dkge_dist.jobs.train import random_start
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.learn.checkpoints import CheckpointKeeper, load_state, save_state
from dkge_dist.learn.courses import ValidatedCourse
from dkge_dist.learn.loop import Learning, Progress
from dkge_dist.learn.step import DenseParameters
from dkge_dist.learn.task import LearnTask, learning_of, model_of
from dkge_dist.runtime import Communicator, LocalCommunicator, Monitor
from dkge_dist.settings import Settings, load_settings
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import TRAINED, Array
from tests.graphs import Labelled, movies
from tests.training_graphs import graph_of_labels

TRAIN, VALID = movies(100), [("title1", "director", "person2"), ("title2", "actor", "person9")]
SMALL = [
    "model.dim=6", "context.cap=5", "train.batch_size=30", "train.negatives=8", "train.max_epochs=3",
    "train.eval_every=1", "train.patience=0", "evidence=false",
]  # fmt: skip
BATCHES = 4
"""Of an epoch: 100 triples, 30 a batch."""
PAPER = [
    "train.sampler=bernoulli", "train.loss=margin", "train.margin=3", "train.optimizer=sgd",
    "train.learning_rate=0.01", "train.dense_learning_rate=null", "train.schedule=constant",
]  # fmt: skip
State = dict[str, Array]


class Clock:
    """Stands still unless it is told to go."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class TimedCommunicator(LocalCommunicator):
    """The only worker, with a clock that is given."""

    def __init__(self, monitor: Monitor, clock: Callable[[], float]) -> None:
        super().__init__(monitor, threads=1, device="cpu")
        self.clock = clock  # type: ignore[method-assign]


@dataclass
class ScriptedMonitor(Monitor):
    """Keeps what it hears, lets a clock go on with every batch, and asks to stop after so many of them."""

    batches: int | None = None
    clock: Clock | None = None
    seconds: float = 1.0
    heard: list[tuple[float, str]] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    on_batch: Callable[[], None] | None = None
    on_epoch: Callable[[], None] | None = None

    def progress(self, share: float, message: str) -> None:
        self.heard.append((share, message))
        if self.clock is not None:
            self.clock.now += self.seconds
        if self.on_batch is not None:
            self.on_batch()

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.epochs.append(metrics)
        if self.on_epoch is not None:
            self.on_epoch()

    def should_stop(self) -> bool:
        return self.batches is not None and len(self.heard) >= self.batches


@dataclass
class ScriptedValidation:
    """Finds what it was told to."""

    hits: list[float]
    rows: Array = field(default_factory=lambda: np.arange(3, dtype=np.int32))
    asked: int = 0

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        assert entities.shape == (3, 6)
        self.asked += 1
        return {"hits@10": self.hits[self.asked - 1], "mrr": float(self.asked)}


def settings_of(words: Iterable[str] = ()) -> Settings:
    return load_settings(None, [*SMALL, *words])


def task_of(
    folder: Path, words: Iterable[str] = (), train: list[Labelled] = TRAIN, valid: list[Labelled] = VALID
) -> LearnTask:
    settings = settings_of(words)
    sampling = Sampling(settings.seed, settings.context.cap, settings.context.hops)
    graph = graph_of_labels(train, valid, sampling, settings.context.path_length)
    fitting = EvidenceFitting.of(graph, WalkLimits.of(settings)) if settings.evidence.enabled else None
    return task_of_training(graph, settings, fitting, folder)


def tables_of(task: LearnTask) -> Tables:
    """At start values, as a runtime makes them."""
    return Tables(*(LocalTable.initialized(start) for start in random_start(task.graph, task.settings)))


class Training(Learning):
    """A run, with what tests look at."""

    course: ValidatedCourse
    keeper: CheckpointKeeper

    @property
    def dense(self) -> DenseParameters:
        assert self.step.dense is not None
        return self.step.dense

    @property
    def tables(self) -> Tables:
        return self.keeper.tables

    def load(self, folder: Path) -> None:
        load_state(folder, self.dense, self.tables)

    def save(self, folder: Path) -> None:
        save_state(folder, self.dense, self.tables)


def training_of(
    task: LearnTask, communicator: Communicator | None = None, device: str = "cpu", tables: Tables | None = None
) -> Training:
    communicator = communicator or LocalCommunicator(Monitor())
    model = model_of(task, torch.device(device))
    made = learning_of(communicator, tables or tables_of(task), task, model, torch.device(device))
    made.__class__ = Training
    assert isinstance(made, Training)
    return made


def trainer(
    folder: Path,
    words: Iterable[str] = (),
    *,
    graph: tuple[list[Labelled], list[Labelled]] = (TRAIN, VALID),
    validation: Any = None,
    monitor: Monitor | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Training:
    """As a new process would make it: nothing is shared with another one but the folder."""
    made = training_of(task_of(folder, words, *graph), TimedCommunicator(monitor or Monitor(), clock))
    made.course.validation = validation or made.course.validation
    return made


def run(one: Training) -> Progress:
    folder = one.keeper.checkpoints.folder
    assert isinstance(folder, Path)
    folder.mkdir(parents=True, exist_ok=True)
    return one.run()


def state(one: Training) -> State:
    """Everything that training moves."""
    found = {name: value.detach().numpy().copy() for name, value in one.dense.model.state_dict().items()}
    for kind, table in zip(("entities", "relations"), one.tables, strict=True):
        assert isinstance(table, LocalTable)
        for name in TRAINED:
            found[f"{kind}-{name}"] = table.shard.values[name].copy()
            found[f"{kind}-{name}-state"] = table.shard.state[name].copy()
    for number, value in one.dense.optimizer.state_dict()["state"].items():
        found |= {f"{number}-{name}": v.numpy().copy() for name, v in value.items() if isinstance(v, torch.Tensor)}
    return found


def same(one: State, other: State) -> bool:
    """To the bit."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def untimed(progress: Progress) -> Progress:
    """What does not depend on how fast the machine was."""
    timed = ("seconds", "triples_per_second")
    history = [{name: value for name, value in line.items() if name not in timed} for line in progress.history]
    return replace(progress, seconds=0.0, history=history)
