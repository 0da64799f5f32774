"""Ray and the shard actors for as long as they are needed: started or found, placed, and taken down again."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dkge_dist.cluster.requests import serve_shard
from dkge_dist.cluster.server import ShardServer
from dkge_dist.cluster.transport import Address
from dkge_dist.learn.machine import keep_freed_memory
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import DkgeError, UsageError

STARTS = 3
"""How often a Ray of our own is tried to be started; Ray waits half a minute each time."""

SPARE_BYTES = 200 << 20
"""Of an actor beside its rows: Python, numba, what is on its way."""


class ShardActor:
    """A shard that listens for its workers. It has a server and is none: Ray wraps all methods of an actor's class, and
    those of the server are called for every request."""

    def __init__(self, number: int, plan: ShardPlan) -> None:
        keep_freed_memory()
        self._server = ShardServer(number, plan)
        self._listener = serve_shard(self._server, _node_ip())

    def ask(self, method: str, *arguments: Any) -> Any:
        """What is asked for more rarely, by way of Ray."""
        return getattr(self._server, method)(*arguments)

    def address(self) -> Address:
        """Where it listens."""
        return self._listener.address


def _node_ip() -> str:
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class ClusterConfig:
    """So many shards and workers, at a Ray cluster's address (or one started here), and how long to wait for room."""

    shards: int
    workers: int = 1
    address: str | None = None
    wait_seconds: float = 120.0

    def __post_init__(self) -> None:
        if self.shards < 1 or self.workers < 1:
            raise UsageError(f"--shards {self.shards} --workers {self.workers}: at least one of each")


@contextmanager
def ray_session(config: ClusterConfig, cpus: int) -> Iterator[None]:
    """A connection to the cluster: the one that is there already, the one named, or one of our own on this machine.

    `cpus` is what workers will ask of one that is started here.
    """
    if ray.is_initialized():
        yield
        return
    # Ray would hide GPUs from actors that ask for none, and warns that it will stop doing so.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Of a Ray that is started here: its actors would give way to every other process, the one that waits for them too.
    os.environ.setdefault("RAY_worker_niceness", "0")
    address = config.address or os.environ.get("RAY_ADDRESS")
    if address == "local":
        address = None
    own: dict[str, Any] = {"num_cpus": max(os.cpu_count() or 1, cpus), "include_dashboard": False}
    terminate = signal.getsignal(signal.SIGTERM)
    _join(address, {} if address else own)
    if threading.current_thread() is threading.main_thread():
        # Ray puts its own in the place of ours, and a training would end without a checkpoint.
        signal.signal(signal.SIGTERM, terminate)
    try:
        # What Ray says of itself is no output of a command.
        with redirect_stdout(sys.stderr):
            yield
    finally:
        ray.shutdown()


def _join(address: str | None, own: dict[str, Any]) -> None:
    """Join a cluster, or start one here; on a busy machine Ray may give that up, so that it is tried again."""
    for left in reversed(range(1 if address else STARTS)):
        try:
            ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
            return
        except Exception as error:  # Ray raises all kinds, plain ones among them.
            ray.shutdown()
            if not left:
                raise DkgeError(f"no Ray cluster at {address or 'this machine'}: {error}") from None


@contextmanager
def shard_actors(config: ClusterConfig, plan: ShardPlan, row_bytes: int) -> Iterator[list[Any]]:
    """Actors for the shards of a table, spread over the nodes, each with room for its rows; gone afterwards."""
    needed = [plan.size(shard) * row_bytes + SPARE_BYTES for shard in range(plan.shards)]
    group = _reserved(config, needed)
    actors: list[Any] = []
    try:
        kind = ray.remote(ShardActor)
        for number in range(plan.shards):
            options = kind.options(
                num_cpus=0,
                memory=needed[number],
                max_restarts=-1,
                max_concurrency=2 * config.workers + 2,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=number),
            )
            actors.append(options.remote(number, plan))
        yield actors
    finally:
        for actor in actors:
            ray.kill(actor, no_restart=True)
        remove_placement_group(group)


def _reserved(config: ClusterConfig, needed: list[int]) -> PlacementGroup:
    group: PlacementGroup = placement_group([{"memory": float(bytes_)} for bytes_ in needed], strategy="SPREAD")
    if group.wait(math.ceil(config.wait_seconds)):  # Ray takes whole seconds, and cuts off the rest.
        return group
    remove_placement_group(group)
    nodes = [node["Resources"].get("memory", 0.0) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    free = ray.available_resources().get("memory", 0.0)  # type: ignore[no-untyped-call]
    raise DkgeError(
        f"no room for {len(needed)} shards of up to {max(needed) / 1e9:.2f} GB after {config.wait_seconds:g} s: "
        f"{len(nodes)} nodes with {sum(nodes) / 1e9:.2f} GB for actors, {free / 1e9:.2f} GB of it free. "
        "Use more shards or nodes, or give nodes more (`ray start --memory BYTES`)"
    )


def require_workers(config: ClusterConfig, cpus: int, gpus: int) -> None:
    """Wait until the cluster has nodes for all workers; Ray Train itself would wait for ever."""
    until = time.monotonic() + config.wait_seconds
    while (room := _room_for_workers(cpus, gpus)) < config.workers:
        if time.monotonic() >= until:
            needs = f"{cpus} CPUs" + (f" and {gpus} GPU" if gpus else "")
            raise DkgeError(
                f"no room for {config.workers} workers of {needs} after {config.wait_seconds:g} s: the cluster's nodes "
                f"have it for {room}. Use fewer workers or `threads`, or more nodes"
            )
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))


def _room_for_workers(cpus: int, gpus: int) -> int:
    """How many workers the nodes have room for in all, whoever uses it now."""
    room = 0
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        has = node["Resources"] if node["Alive"] else {}
        by_gpu = int(has.get("GPU", 0) // gpus) if gpus else sys.maxsize
        room += min(int(has.get("CPU", 0) // cpus), by_gpu)
    return room


def gpus() -> float:
    """How many GPUs the cluster has."""
    return float(ray.cluster_resources().get("GPU", 0.0))  # type: ignore[no-untyped-call]
