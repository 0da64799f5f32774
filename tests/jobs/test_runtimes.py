"""Which runtime a job gets."""

from __future__ import annotations

import pytest

from dkge_dist.jobs.runtimes import ClusterOptions, choose_runtime
from dkge_dist.runtime import LocalRuntime
from dkge_dist.types import UsageError


def test_without_shards_it_is_this_process() -> None:
    runtime = choose_runtime(ClusterOptions())
    assert isinstance(runtime, LocalRuntime)
    assert (runtime.shards, runtime.workers) == (1, 1)
    assert isinstance(choose_runtime(ClusterOptions(wait_seconds=3.0)), LocalRuntime)


@pytest.mark.parametrize("options", [ClusterOptions(workers=2), ClusterOptions(address="auto")])
def test_workers_and_addresses_go_with_shards(options: ClusterOptions) -> None:
    with pytest.raises(UsageError, match="--workers and --address go with --shards N"):
        choose_runtime(options)


def test_with_shards_it_is_a_cluster_that_is_joined_later() -> None:
    import ray

    before = ray.is_initialized()
    runtime = choose_runtime(ClusterOptions(4, 2, "10.0.0.1:6379", 5.0))
    assert (runtime.shards, runtime.workers) == (4, 2)
    assert type(runtime).__name__ == "RayRuntime"
    config = runtime.config  # type: ignore[attr-defined]
    assert (config.address, config.wait_seconds) == ("10.0.0.1:6379", 5.0)
    assert ray.is_initialized() == before


@pytest.mark.parametrize("options", [ClusterOptions(0), ClusterOptions(2, 0)])
def test_a_cluster_has_a_shard_and_a_worker_at_least(options: ClusterOptions) -> None:
    with pytest.raises(UsageError, match="at least one of each"):
        choose_runtime(options)
