"""Runs of a worker function in Ray Train workers: what comes back of them, and which errors end them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.session import ClusterConfig
from dkge_dist.cluster.workers import Outcome, run_workers
from dkge_dist.runtime import Monitor, WorkerSpec
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import DkgeError, UsageError
from tests.cluster import worker_functions as functions
from tests.tables.rows import BLOCK, ROWS, START

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.timeout(300)]


def run(spec: WorkerSpec, actors: list[Any], workers: int, monitor: Monitor | None = None) -> Outcome:
    shards = len(actors)
    plan = ShardPlan(ROWS, BLOCK, shards)
    return run_workers(spec, ClusterConfig(shards, workers), plan, actors, False, monitor or Monitor())


def test_error_of_one_worker_ends_the_run(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    """It comes out as it was raised, at once, though another worker waits for the one that raised it."""
    notes = tmp_path / "attempts"
    with pytest.raises(UsageError, match=r"^a setting of rank 1 is wrong$"):
        run(functions.spec_of(functions.fail_on_rank_1, notes, tmp_path), actors[3], 2)
    assert notes.read_text() == "attempt\n", "another attempt would not change it"


def test_error_of_all_workers_ends_the_run(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    with pytest.raises(functions.AllStoppedError, match=r"^stopped in step 1$"):
        run(functions.spec_of(functions.fail_together, None, tmp_path), actors[1], 2)


def test_run_starts_again_from_start_values_when_a_shard_is_lost(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    spec = functions.spec_of(functions.lose_a_shard_once, tmp_path / "lost", tmp_path)
    outcome = run(spec, actors[1], 1)
    assert outcome.result == START.whole()["knowledge"][3].tolist(), "what the lost attempt did is gone"


@pytest.mark.parametrize(("use_gpu", "backend"), [(True, "nccl"), (False, "gloo")])
def test_backend_goes_by_the_device_and_the_job_is_once_on_a_node(
    actors: dict[int, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_gpu: bool, backend: str
) -> None:
    """What Ray Train is asked for can be seen without a GPU."""
    import ray

    from dkge_dist.cluster import workers

    asked: dict[str, Any] = {}

    class Trainer:
        def __init__(self, function: Any, **options: Any) -> None:
            asked.update(options)

        def fit(self) -> None:
            given = asked["train_loop_config"]["assignment"].job
            assert isinstance(given, ray.ObjectRef), "a reference, however many workers there are"
            asked["jobs"] = [ray.get(given), ray.get(given)]
            raise RuntimeError("enough")

    monkeypatch.setattr(workers, "TorchTrainer", Trainer)
    spec = functions.spec_of(functions.fail_together, np.zeros(1 << 20), tmp_path)
    with pytest.raises(DkgeError, match="the workers failed: enough"):
        run_workers(spec, ClusterConfig(1, 3), ShardPlan(ROWS, BLOCK, 1), actors[1], use_gpu, Monitor())
    assert asked["torch_config"].backend == backend
    scaling = asked["scaling_config"]
    assert (scaling.num_workers, scaling.use_gpu) == (3, use_gpu)
    assert scaling.resources_per_worker == {"CPU": 1, **({"GPU": 1} if use_gpu else {})}
    assert np.shares_memory(*asked["jobs"]), "two workers of one node look at the same memory"
