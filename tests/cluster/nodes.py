"""A cluster of several nodes on this machine, and accidents that happen to it: real processes are killed or stopped.

Only processes below this one are touched.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

SHORT_HEALTH_CHECKS = {
    "health_check_initial_delay_ms": 2000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
}
HEAD = {"num_cpus": 2, "memory": 1 << 28, "include_dashboard": False, "_system_config": SHORT_HEALTH_CHECKS}
NODE_CPUS, NODE_MEMORY = 2, 2 << 30


class Nodes:
    """A head for the driver, and nodes with room for shards; all at one address of this machine, or at Ray's choice."""

    def __init__(self, host: str | None = None) -> None:
        os.environ.setdefault("RAY_worker_niceness", "0")
        self._host = {"node_ip_address": host} if host else {}
        self.cluster = _patiently(lambda: Cluster(initialize_head=True, head_node_args={**HEAD, **self._host}))
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR", _node_ip_address=host)
        self.nodes: list[Any] = []

    def add(self) -> None:
        size = {"num_cpus": NODE_CPUS, "memory": NODE_MEMORY}
        self.nodes.append(_patiently(lambda: self.cluster.add_node(**size, **self._host)))

    def lose(self, number: int = 0) -> None:
        """Kill a node with all that runs on it."""
        self.cluster.remove_node(self.nodes.pop(number), allow_graceful=False)

    def close(self) -> None:
        ray.shutdown()
        self.cluster.shutdown()


def _patiently(start: Callable[[], Any], seconds: float = 900) -> Any:
    """Start a node, again and again: half a minute, which Ray allows for that, may not be enough on a busy machine."""
    until = time.monotonic() + seconds
    while True:
        try:
            return start()
        except Exception as error:  # Ray raises a plain one.
            if "timed out during startup" not in str(error) or time.monotonic() > until:
                raise


def processes(title: str) -> list[int]:
    """Processes below this one, by the name that Ray gives them."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _name(folder).startswith(f"ray::{title}") and _is_below(int(folder.name))
    ]


def kill(title: str) -> bool:
    """SIGKILL one of them."""
    return _send(signal.SIGKILL, processes(title))


def stop(title: str) -> bool:
    """SIGSTOP one of them."""
    return _send(signal.SIGSTOP, processes(title))


def stop_shard() -> bool:
    """SIGSTOP a shard that listens. One that still starts has another, much longer deadline."""
    return _send(signal.SIGSTOP, [process for process in processes("ShardActor") if _is_listening(process)])


def _send(number: signal.Signals, found: list[int]) -> bool:
    if found:
        os.kill(found[0], number)
    return bool(found)


def _is_listening(process: int) -> bool:
    """Has it one of the transport's Unix sockets?"""
    try:
        lines = Path(f"/proc/{process}/net/unix").read_text().splitlines()
        sockets = {f"socket:[{line.split()[6]}]" for line in lines if "@dkge-" in line}
        return any(os.readlink(file) in sockets for file in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False


def _name(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _is_below(process: int) -> bool:
    while process > 1:
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if process == os.getpid():
            return True
    return False


def soon(happens: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.1)
