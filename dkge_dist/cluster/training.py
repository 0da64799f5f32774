"""Ray Train runs the workers and starts them again when one of them, or a shard, or a node is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import ray
import ray.train
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.session import Place
from dkge_dist.cluster.workers import TrainCoordinator, Worker
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.training.trainer import DivergedError, StoppedError
from dkge_dist.types import DkgeError

FAILURES = 20
"""How often in one training workers are started again before giving up; checkpoints are kept in any case."""

LOOK_SECONDS = 0.25
COLLECTIVE_TIMEOUT = 1800
"""Seconds that workers wait for each other: the first one measures and saves meanwhile."""

WorkerFn = Callable[[Worker, Any], dict[str, Any]]


@dataclass(frozen=True)
class Assignment:
    """What a worker is given. `job` is in the object store: once a node, however many workers are there."""

    function: WorkerFn
    job: Any
    plan: ShardPlan
    actors: list[Any]
    board: Any
    threads: int


@dataclass(frozen=True)
class Driver:
    """Who watches over a training: hears how far it is, and may stop it."""

    progress: Callable[[float, str], None]
    on_epoch: Callable[[dict[str, Any]], None]
    stop: Callable[[], bool]


def fit(
    function: WorkerFn,
    job: Any,
    place: Place,
    plan: ShardPlan,
    actors: list[Any],
    threads: int,
    use_gpu: bool,
    folder: Path,
    driver: Driver,
) -> dict[str, Any]:
    """Run `function` in all workers; the outcome that the first one reports. Ray Train keeps notes in `folder`."""
    _quieten()
    # With the driver, so that no other node's end is the end of it.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    board: Any = ray.remote(TrainCoordinator).options(num_cpus=0, scheduling_strategy=here).remote()
    assignment = Assignment(function, ray.put(job), plan, actors, board, threads)
    trainer = TorchTrainer(
        _run,
        train_loop_config={"assignment": assignment},
        torch_config=TorchConfig(backend="nccl" if use_gpu else "gloo", timeout_s=COLLECTIVE_TIMEOUT),
        scaling_config=ScalingConfig(
            num_workers=place.workers,
            use_gpu=use_gpu,
            resources_per_worker={"CPU": threads, **({"GPU": 1} if use_gpu else {})},
        ),
        run_config=RunConfig(
            name="workers", storage_path=str(folder.resolve()), failure_config=FailureConfig(max_failures=FAILURES)
        ),
    )
    failure: list[BaseException] = []

    def run() -> None:
        try:
            trainer.fit()
        except BaseException as error:  # Whatever it is, it is told by the thread that waits.
            failure.append(error)

    # Not in the main thread: there Ray Train would take Ctrl-C for itself, and kill where we leave a checkpoint.
    thread = Thread(target=run, name="ray-train", daemon=True)
    thread.start()
    outcome = None
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            outcome = _look(board, driver) or outcome
        outcome = _look(board, driver) or outcome
    finally:
        ray.kill(board)
    if outcome is None:
        told = str(failure[0]).strip().splitlines() if failure else ["the workers ended without a word"]
        raise DkgeError(f"the workers failed: {told[-1][:500]}")
    return outcome


def _look(board: Any, driver: Driver) -> dict[str, Any] | None:
    done, words, lines, outcome = ray.get(board.news.remote(driver.stop()))
    if words:
        driver.progress(done, words)
    for line in lines:
        driver.on_epoch(line)
    return outcome  # type: ignore[no-any-return]


def _run(config: dict[str, Any]) -> None:
    """In a worker."""
    given: Assignment = config["assignment"]
    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    torch.set_num_threads(given.threads)
    worker = Worker(context.get_world_rank(), context.get_world_size(), device, given.plan, given.actors, given.board)
    if worker.is_over():
        return  # An attempt before this one met something that trying again does not change.
    try:
        outcome = given.function(worker, ray.get(given.job))
        worker.barrier()
        worker.finish(outcome)
    except ShardLostError:
        raise  # Another attempt may do better.
    except DkgeError as error:
        worker.finish({"error": type(error).__name__, "message": str(error)})
        # These all workers come to at the same step. From others somebody may be waiting for this one.
        if not isinstance(error, StoppedError | DivergedError):
            raise


def _quieten() -> None:
    """Ray Train's settings, by the environment, which is where it reads them."""
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300")
    os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
    os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
