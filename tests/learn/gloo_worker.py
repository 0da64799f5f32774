"""One of two workers of a training on padded contexts: `python -m tests.learn.gloo_worker RANK FOLDER`.

What runs on GPUs of a cluster, without Ray and on a CPU: the collectives of torch.distributed, and tables that every
worker has a copy of. Writes what it learnt to FOLDER.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from dkge_dist.cluster.communicator import RayCommunicator
from dkge_dist.cluster.table import ReplicatedTable
from dkge_dist.learn.task import learn as learn_task
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import Field
from tests.learn.trainings import tables_of, task_of

WORLD = 2


class Communicator(RayCommunicator):
    """Without a coordinator: reports go nowhere."""

    def report(self, share: float, message: str) -> None:
        pass

    def report_epoch(self, metrics: dict[str, object]) -> None:
        pass


def learn(rank: int, folder: Path, preset: str, words: list[str]) -> None:
    communicator = Communicator(rank, WORLD, 1, torch.device("cpu"), None)
    job = replace(task_of(folder / f"{preset}-checkpoints", words), form="padded")
    tables = []
    for table in tables_of(job):
        assert isinstance(table, LocalTable)
        tables.append(ReplicatedTable(table.shard, communicator))
    Path(str(job.folder)).mkdir(exist_ok=True)
    result = learn_task(communicator, Tables(*tables), job)
    arrays = {
        f"{kind}/{field}": table.shard.values[field]
        for kind, table in zip("er", tables, strict=True)
        for field in Field
    }
    np.savez(folder / f"{preset}-{rank}.npz", **arrays, **result.dense)
    (folder / f"{preset}-{rank}.json").write_text(json.dumps(result.progress.history))


def main() -> None:
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank, world_size=WORLD)
    for preset, words in json.loads(sys.argv[3]).items():
        learn(rank, folder, preset, words)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
