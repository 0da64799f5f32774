"""Data-parallel workers: each has a part of every batch, all of them the same dense parameters and relations.

Rows of entities lie in shards. Dense gradients and those of relations are added up over all workers in every step, so
that everybody takes the same step; time and the wish to stop come from the first worker with it, so that everybody
also takes the same decisions.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
import torch.distributed as dist
from torch import Tensor

from dkge_dist.cluster.table import RayTable
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Optimizer, RowInitializer, Shard
from dkge_dist.tables.table import Gradients, LocalTable
from dkge_dist.training.checkpoints import Checkpoints, Line
from dkge_dist.types import Field

NEWS_SECONDS = 0.5
"""Between two looks at the board."""


class TrainCoordinator:
    """An actor where the first worker says how far it is, and hears whether to stop."""

    def __init__(self) -> None:
        self._stop = False
        self._done, self._words = 0.0, ""
        self._lines: list[dict[str, Any]] = []
        self._outcome: dict[str, Any] | None = None

    def report(self, done: float, words: str) -> bool:
        """How far it is; is it to stop?"""
        self._done, self._words = done, words
        return self._stop

    def add_line(self, line: dict[str, Any]) -> None:
        """An epoch is over."""
        self._lines.append(line)

    def finish(self, outcome: dict[str, Any]) -> None:
        """The training came to its end, good or bad. The first to say so is heard."""
        self._outcome = self._outcome or outcome

    def is_over(self) -> bool:
        """Did it come to its end?"""
        return self._outcome is not None

    def news(self, stop: bool) -> tuple[float, str, list[dict[str, Any]], dict[str, Any] | None]:
        """For the driver: how far, in words, the epochs since it last asked, and the outcome once there is one."""
        self._stop = self._stop or stop
        lines, self._lines = self._lines, []
        return self._done, self._words, lines, self._outcome


class Worker:
    """One of `world` workers, as the function that it runs sees it."""

    def __init__(self, rank: int, world: int, device: torch.device, plan: ShardPlan, actors: list[Any], board: Any):
        self.rank, self.world, self.device = rank, world, device
        self._plan, self._actors, self._board = plan, actors, board
        self._pulse = torch.zeros(2, dtype=torch.float64, device=device)
        self._asked: Any = None
        self._asked_at = 0.0
        self._stop = False
        self._beat()

    def table(self, start: RowInitializer) -> RayTable:
        """The entities: an attempt of its own on all shards, which fill themselves with start values."""
        attempt = self.agreed(lambda: secrets.token_hex(8))
        table = RayTable(self._plan, self._actors, attempt, start.dim, self.rank, self.world, barrier=self.barrier)
        if self.rank == 0:
            table.open(start)
        self.barrier()
        return table

    def replicated(self, values: dict[Field, Any]) -> LocalTable:
        """The relations: a copy in every worker."""
        return ReplicatedTable(Shard(values), self._sum) if self.world > 1 else LocalTable(Shard(values))

    def checkpoints(self, folder: Path) -> Checkpoints:
        """Checkpoints that the first worker writes and all of them read."""
        return SharedCheckpoints(folder, self.rank == 0, self.barrier)

    def add_up(self, tensors: list[Tensor]) -> None:
        """Make each tensor the sum of those of all workers; the clock moves on with it."""
        if self.world > 1:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            self._sum(flat)
            begin = 0
            for tensor in tensors:
                tensor.copy_(flat[begin : begin + tensor.numel()].view_as(tensor))
                begin += tensor.numel()
        self._beat()

    def _sum(self, tensor: Tensor) -> None:
        """In place; by way of the worker's device, which is what its backend can add up on."""
        there = tensor.to(self.device)
        dist.all_reduce(there)
        if there is not tensor:
            tensor.copy_(there)

    def _beat(self) -> None:
        self._pulse.zero_()
        if self.rank == 0:
            self._pulse[0], self._pulse[1] = time.monotonic(), float(self._stop)
        if self.world > 1:
            dist.broadcast(self._pulse, 0)
        self._now, self._stopping = float(self._pulse[0]), bool(self._pulse[1] > 0)

    def clock(self) -> float:
        """Seconds, the same for all workers between two steps."""
        return self._now

    def stopping(self) -> bool:
        """Is everybody to stop?"""
        return self._stopping

    def report(self, done: float, words: str) -> None:
        """Tell the driver how far it is, now and then, and hear whether to stop."""
        if self.rank or time.monotonic() - self._asked_at < NEWS_SECONDS:
            return
        if self._asked is not None:
            ready, _ = ray.wait([self._asked], timeout=0)
            if not ready:
                return
            self._stop = bool(ray.get(self._asked))
        self._asked, self._asked_at = self._board.report.remote(done, words), time.monotonic()

    def add_line(self, line: dict[str, Any]) -> None:
        """Tell the driver of an epoch."""
        if self.rank == 0:
            self._board.add_line.remote(line)

    def finish(self, outcome: dict[str, Any]) -> None:
        """Tell the driver how it ended; errors of any worker, success of the first one."""
        if self.rank == 0 or "error" in outcome:
            ray.get(self._board.finish.remote(outcome))

    def is_over(self) -> bool:
        """Has the training ended?"""
        return bool(ray.get(self._board.is_over.remote()))

    def agreed(self, measure: Callable[[], Any]) -> Any:
        """What the first worker finds."""
        found = [measure() if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(found, 0, device=self.device)
        return found[0]

    def barrier(self) -> None:
        """Wait for all workers."""
        if self.world > 1:
            self._sum(torch.zeros(1, device=self.device))


class ReplicatedTable(LocalTable):
    """A small table that every worker has: they add up their gradients and take the same step."""

    def __init__(self, shard: Shard, add_up: Callable[[Tensor], None]) -> None:
        super().__init__(shard)
        self._add_up = add_up

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on the rows that any worker has a gradient of."""
        for field, (rows, values) in gradients.items():
            count, dim = self.shard.values[field].shape
            whole = torch.zeros(count, dim + 1)
            whole[torch.from_numpy(rows).long()] = torch.cat(
                [torch.from_numpy(np.asarray(values)), torch.ones(rows.shape[0], 1)], 1
            )
            self._add_up(whole)
            touched = np.flatnonzero(whole[:, dim].numpy())
            self.shard.step(field, touched, whole[:, :dim].numpy()[touched], optimizer)


class SharedCheckpoints(Checkpoints):
    """Checkpoints of several workers: the first one writes, and nobody goes on before it has."""

    def __init__(self, folder: Path, writes: bool, barrier: Callable[[], None]) -> None:
        super().__init__(folder)
        self._writes, self._barrier = writes, barrier

    def save(self, line: Line, write: Callable[[Path], None], progress: dict[str, Any]) -> None:
        """Let `write` fill a folder and make it the newest of its line."""
        if self._writes:
            super().save(line, write, progress)
        self._barrier()
