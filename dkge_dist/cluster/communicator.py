"""The communicator of a Ray Train worker: collectives by torch.distributed, reports by the coordinator actor.

Time and the stop signal come from rank 0 with every all-reduce, so that all workers take the same decisions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ray
import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")

REPORT_SECONDS = 0.5
"""Between two reports to the coordinator."""


class RayCommunicator:
    """One of `world` workers; `device` is where its collectives run."""

    def __init__(self, rank: int, world: int, threads: int, device: torch.device, coordinator: Any) -> None:
        self.rank, self.world, self.threads, self.device = rank, world, threads, str(device)
        self._device, self._coordinator = device, coordinator
        self._signal = torch.zeros(2, dtype=torch.float64, device=device)
        self._reply: Any = None
        self._reported_at = 0.0
        self._stop = False
        self._sync_clock()

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of those of all workers; the shared clock moves on."""
        if self.world > 1:
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            self.sum(flat)
            begin = 0
            for tensor in tensors:
                tensor.copy_(flat[begin : begin + tensor.numel()].view_as(tensor))
                begin += tensor.numel()
        self._sync_clock()

    def sum(self, tensor: Tensor) -> None:
        """Sum over all workers, in place, on the device that the backend works on."""
        there = tensor.to(self._device)
        dist.all_reduce(there)
        if there is not tensor:
            tensor.copy_(there)

    def _sync_clock(self) -> None:
        self._signal.zero_()
        if self.rank == 0:
            self._signal[0], self._signal[1] = time.monotonic(), float(self._stop)
        if self.world > 1:
            dist.broadcast(self._signal, 0)
        self._now, self._stopping = float(self._signal[0]), bool(self._signal[1] > 0)

    def broadcast(self, compute: Callable[[], T]) -> T:
        """What `compute` returns on rank 0."""
        found: list[Any] = [compute() if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(found, 0, device=self._device)
        value: T = found[0]
        return value

    def barrier(self) -> None:
        """Wait for all workers."""
        if self.world > 1:
            self.sum(torch.zeros(1, device=self._device))

    def clock(self) -> float:
        """Seconds, the same for all workers between two steps."""
        return self._now

    def should_stop(self) -> bool:
        """Is the run to stop?"""
        return self._stopping

    def report(self, share: float, message: str) -> None:
        """Tell the coordinator how much is done, now and then, and learn whether to stop."""
        if self.rank or time.monotonic() - self._reported_at < REPORT_SECONDS:
            return
        if self._reply is not None:
            ready, _ = ray.wait([self._reply], timeout=0)
            if not ready:
                return
            self._stop = bool(ray.get(self._reply))
        self._reply, self._reported_at = self._coordinator.report.remote(share, message), time.monotonic()

    def report_epoch(self, metrics: dict[str, Any]) -> None:
        """Tell the coordinator that an epoch is over."""
        if self.rank == 0:
            self._coordinator.report_epoch.remote(metrics)

    def finish(self, outcome: Any) -> None:
        """Tell the coordinator how the run ended."""
        ray.get(self._coordinator.finish.remote(outcome))

    def is_over(self) -> bool:
        """Has the run ended?"""
        return bool(ray.get(self._coordinator.is_over.remote()))
