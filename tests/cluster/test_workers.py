"""Runs of a worker function in Ray Train workers: what comes back of them, and which errors end them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dkge_dist.cluster.session import ClusterConfig
from dkge_dist.cluster.workers import Outcome, RunNews, TrainCoordinator, run_workers
from dkge_dist.runtime import Monitor, WorkerSpec
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import UsageError
from tests.cluster import worker_functions as functions
from tests.tables.rows import BLOCK, ROWS, START

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.timeout(300)]


def run(spec: WorkerSpec, actors: list[Any], workers: int, monitor: Monitor | None = None) -> Outcome:
    shards = len(actors)
    plan = ShardPlan(ROWS, BLOCK, shards)
    return run_workers(spec, ClusterConfig(shards, workers), plan, actors, False, monitor or Monitor())


@pytest.mark.slow
def test_error_of_one_worker_ends_the_run(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    """It comes out as it was raised, at once, though another worker waits for the one that raised it."""
    notes = tmp_path / "attempts"
    with pytest.raises(UsageError, match=r"^a setting of rank 1 is wrong$"):
        run(functions.spec_of(functions.fail_on_rank_1, notes, tmp_path), actors[3], 2)
    assert notes.read_text() == "attempt\n", "another attempt would not change it"


@pytest.mark.slow
def test_error_of_all_workers_ends_the_run(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    with pytest.raises(functions.AllStoppedError, match=r"^stopped in step 1$"):
        run(functions.spec_of(functions.fail_together, None, tmp_path), actors[1], 2)


@pytest.mark.slow
def test_run_starts_again_from_start_values_when_a_shard_is_lost(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    spec = functions.spec_of(functions.lose_a_shard_once, tmp_path / "lost", tmp_path)
    outcome = run(spec, actors[1], 1)
    assert outcome.result == START.whole()["knowledge"][3].tolist(), "what the lost attempt did is gone"


def test_epochs_are_told_once() -> None:
    coordinator = TrainCoordinator()
    coordinator.report(0.1, "epoch 1")
    coordinator.report_epoch({"epoch": 1})
    coordinator.report_epoch({"epoch": 2})
    assert coordinator.news(False) == RunNews(0.1, "epoch 1", [{"epoch": 1}, {"epoch": 2}], None)
    assert coordinator.news(False).epochs == []
    coordinator.report(0.2, "epoch 3")
    assert coordinator.news(False) == RunNews(0.2, "epoch 3", [], None)


def test_wish_to_stop_stays() -> None:
    coordinator = TrainCoordinator()
    assert coordinator.report(0.1, "epoch 1") is False
    coordinator.news(True)
    assert coordinator.report(0.2, "epoch 3") is True
    coordinator.news(False)
    assert coordinator.report(0.3, "") is True


def test_first_outcome_counts() -> None:
    """The error that ended a run is not replaced by what its ending leads to."""
    coordinator = TrainCoordinator()
    assert not coordinator.is_over()
    coordinator.finish("the first")
    coordinator.finish("the second")
    assert coordinator.is_over()
    assert coordinator.news(False).outcome == "the first"
