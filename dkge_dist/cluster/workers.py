"""Ray Train runs a worker function in all workers, and starts them again when a worker, a shard or a node is lost."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from threading import Thread
from typing import Any, NamedTuple

import ray
import ray.train
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dkge_dist.cluster.communicator import RayCommunicator
from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.session import ClusterConfig
from dkge_dist.cluster.table import RayTable, ReplicatedTable
from dkge_dist.runtime import CollectiveError, Monitor, WorkerFn, WorkerSpec
from dkge_dist.tables.initializer import TableStart
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Shard
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import Array, DkgeError, Field


class RunNews(NamedTuple):
    """How far a run is, the epochs that ended since the last look, and its outcome once there is one."""

    share: float
    message: str
    epochs: list[dict[str, Any]]
    outcome: Any


class TrainCoordinator:
    """Holds what the first worker reports until the driver asks for it."""

    def __init__(self) -> None:
        self._stop = False
        self._share, self._message = 0.0, ""
        self._epochs: list[dict[str, Any]] = []
        self._outcome: Any = None

    def report(self, share: float, message: str) -> bool:
        """How much is done; is the run to stop?"""
        self._share, self._message = share, message
        return self._stop

    def report_epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over."""
        self._epochs.append(metrics)

    def finish(self, outcome: Any) -> None:
        """The run is over, with a result or an error. The first outcome counts."""
        if self._outcome is None:
            self._outcome = outcome

    def is_over(self) -> bool:
        """Is the run over?"""
        return self._outcome is not None

    def news(self, stop: bool) -> RunNews:
        """For the driver."""
        self._stop = self._stop or stop
        epochs, self._epochs = self._epochs, []
        return RunNews(self._share, self._message, epochs, self._outcome)


FAILURES = 20
"""How often in one run workers are started again before giving up; checkpoints are kept in any case."""

START_SECONDS = 300
"""How long workers may take to start, on a busy machine."""
WORKER_SILENCE_SECONDS = 60
"""After which a worker that does not answer Ray Train is replaced: it is stopped, or its machine is cut off."""
LOOK_SECONDS = 0.25
COLLECTIVE_TIMEOUT = 1800
"""Seconds that workers wait for each other: the first one validates and saves meanwhile."""


@dataclass(frozen=True)
class Assignment:
    """What a worker is given. `job` is in the object store: once a node, however many workers are there."""

    function: WorkerFn
    job: Any
    entities: TableStart
    relations: TableStart
    plan: ShardPlan
    actors: list[Any]
    coordinator: Any
    threads: int


@dataclass(frozen=True)
class Outcome:
    """How a run ended: an error, or what rank 0 returned with its relations and the attempt that the shards hold."""

    error: DkgeError | None = None
    result: Any = None
    attempt: str = ""
    relations: dict[Field, Array] | None = None


def run_workers(
    spec: WorkerSpec, config: ClusterConfig, plan: ShardPlan, actors: list[Any], use_gpu: bool, monitor: Monitor
) -> Outcome:
    """Run a worker function in all workers; the outcome of rank 0."""
    _set_environment()
    # On the driver's node, so that the end of no other node ends the run.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    coordinator: Any = ray.remote(TrainCoordinator).options(num_cpus=0, scheduling_strategy=here).remote()
    threads = spec.threads or 1
    job = ray.put(spec.job)
    assignment = Assignment(spec.function, job, spec.entities, spec.relations, plan, actors, coordinator, threads)
    trainer = TorchTrainer(
        _work,
        train_loop_config={"assignment": assignment},
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo", timeout_s=COLLECTIVE_TIMEOUT),
        scaling_config=ScalingConfig(
            num_workers=config.workers,
            use_gpu=use_gpu,
            resources_per_worker={"CPU": threads, **({"GPU": 1} if use_gpu else {})},
        ),
        run_config=RunConfig(
            name="workers",
            storage_path=str(spec.folder.resolve()),
            failure_config=FailureConfig(max_failures=FAILURES),
        ),
    )
    outcome = _watch(trainer, coordinator, monitor)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def _watch(trainer: TorchTrainer, coordinator: Any, monitor: Monitor) -> Outcome:
    """Run the trainer to its end and pass its progress on."""
    failure: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # Whatever it is, the waiting thread tells it.
            failure.append(error)

    # Not in the main thread: there Ray Train would take Ctrl-C for itself, and kill where we leave a checkpoint.
    thread = Thread(target=fit, name="ray-train", daemon=True)
    thread.start()
    outcome: Outcome | None = None
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            outcome = _pass_on(coordinator, monitor) or outcome
        outcome = _pass_on(coordinator, monitor) or outcome
    finally:
        ray.kill(coordinator)
    if outcome is None:
        lines = str(failure[0]).strip().splitlines() if failure else ["the workers ended without an outcome"]
        raise DkgeError(f"the workers failed: {lines[-1][:500]}")
    return outcome


def _pass_on(coordinator: Any, monitor: Monitor) -> Outcome | None:
    news: RunNews = ray.get(coordinator.news.remote(monitor.should_stop()))
    if news.message:
        monitor.progress(news.share, news.message)
    for metrics in news.epochs:
        monitor.epoch(metrics)
    outcome: Outcome | None = news.outcome
    return outcome


def _work(config: dict[str, Any]) -> None:
    """In a worker."""
    given: Assignment = config["assignment"]
    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    torch.set_num_threads(given.threads)
    rank, world = context.get_world_rank(), context.get_world_size()
    communicator = RayCommunicator(rank, world, given.threads, device, given.coordinator)
    if communicator.is_over():
        return  # An earlier attempt met an error that another attempt does not change.
    try:
        entities = _open_entities(given, communicator)
        relations = _open_relations(given.relations, communicator)
        result = given.function(communicator, Tables(entities, relations), ray.get(given.job))
        communicator.barrier()
        if communicator.rank == 0:
            communicator.finish(Outcome(None, result, entities.attempt, relations.shard.values))
    except ShardLostError:
        raise  # Another attempt may succeed.
    except DkgeError as error:
        communicator.finish(Outcome(error))
        if not isinstance(error, CollectiveError):
            raise  # Other workers may be waiting for this one: end them too.


def _open_entities(given: Assignment, communicator: RayCommunicator) -> RayTable:
    """The entities: an attempt of its own on all shards, which fill themselves with start values."""
    attempt = communicator.broadcast(lambda: secrets.token_hex(8))
    table = RayTable(given.plan, given.actors, attempt, given.entities.dim, communicator)
    if communicator.rank == 0:
        table.open(given.entities)
    communicator.barrier()
    return table


def _open_relations(start: TableStart, communicator: RayCommunicator) -> LocalTable:
    """The relations: a copy in every worker."""
    if communicator.world == 1:
        return LocalTable.initialized(start)
    return ReplicatedTable(Shard(start.whole()), communicator)


def _set_environment() -> None:
    """Ray Train reads these settings from the environment."""
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(START_SECONDS))
    os.environ.setdefault("RAY_TRAIN_WORKER_HEALTH_CHECK_TIMEOUT_S", str(WORKER_SILENCE_SECONDS))
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
