"""Worker functions for the tests of runs. Ray imports them by name in its own processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.runtime import CollectiveError, Communicator, WorkerSpec
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import Tables
from dkge_dist.types import Field, UsageError
from tests.tables.rows import BLOCK, DIM, START, rows_of

SGD = Optimizer("sgd", 0.25)
RELATIONS = RowInitializer((3, 1), 4, DIM, 1.0)


def spec_of(function: Any, job: Any, folder: Path) -> WorkerSpec:
    return WorkerSpec(function, job, START, RELATIONS, BLOCK, 1, "cpu", folder)


def take_a_step(communicator: Communicator, tables: Tables, job: Any) -> dict[str, Any]:
    """One step of both tables, reports, and then nothing but waiting for the wish to stop."""
    ones = np.ones((2, DIM), np.float32)
    shared, own = 9, 20 + communicator.rank
    tables.entities.push({Field.KNOWLEDGE: (rows_of(shared, own), ones)}, SGD)
    tables.relations.push({Field.CONTEXT: (rows_of(0, 1 + communicator.rank), ones)}, SGD)
    total = torch.tensor([1.0 + communicator.rank])
    communicator.all_reduce([total])
    communicator.report_epoch({"epoch": 1, "rank": communicator.rank})
    began = time.monotonic()
    while not communicator.should_stop() and time.monotonic() < began + 60:
        communicator.report(0.5, f"rank {communicator.rank} waits")
        communicator.all_reduce([torch.zeros(1)])
    return {
        "rank": communicator.rank,
        "world": communicator.world,
        "total": float(total),
        "job": job,
        "stopped": communicator.should_stop(),
    }


def fail_on_rank_1(communicator: Communicator, tables: Tables, job: Path) -> None:
    """The others wait for a worker that is gone. `job` notes the attempts of that worker."""
    if communicator.rank == 1:
        with job.open("a") as file:
            file.write("attempt\n")
        raise UsageError("a setting of rank 1 is wrong")
    communicator.barrier()


class AllStoppedError(CollectiveError):
    """What all workers raise at the same step."""


def fail_together(communicator: Communicator, tables: Tables, job: Any) -> None:
    raise AllStoppedError("stopped in step 1")


def lose_a_shard_once(communicator: Communicator, tables: Tables, job: Path) -> list[float]:
    """The first attempt moves a row and loses a shard; what the row is in the second one."""
    row = {Field.KNOWLEDGE: rows_of(3)}
    if job.exists():
        return [float(value) for value in tables.entities.pull(row)[Field.KNOWLEDGE][0]]
    tables.entities.push({Field.KNOWLEDGE: (rows_of(3), np.ones((1, DIM), np.float32))}, SGD)
    tables.entities.pull(row)
    job.touch()
    raise ShardLostError("shard 0 is gone")
