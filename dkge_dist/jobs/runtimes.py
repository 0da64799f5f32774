"""Which runtime a job gets: this process, or a Ray cluster when shards are asked for."""

from __future__ import annotations

from typing import NamedTuple

from dkge_dist.runtime import LocalRuntime, Runtime
from dkge_dist.types import UsageError


class ClusterOptions(NamedTuple):
    """What a caller says about the cluster; no shards means no Ray."""

    shards: int | None = None
    workers: int = 1
    address: str | None = None
    wait_seconds: float | None = None


def choose_runtime(options: ClusterOptions) -> Runtime:
    """The runtime for some options. Ray is imported only where it is used."""
    if options.shards is None:
        if options.workers != 1 or options.address is not None:
            raise UsageError("--workers and --address go with --shards N: without shards no Ray is used")
        return LocalRuntime()
    from dkge_dist.cluster.runtime import RayRuntime
    from dkge_dist.cluster.session import ClusterConfig

    wait = {} if options.wait_seconds is None else {"wait_seconds": options.wait_seconds}
    return RayRuntime(ClusterConfig(options.shards, options.workers, options.address, **wait))
