"""Which runtime a job gets."""

from __future__ import annotations

import pytest

from dkge_dist.runtime import LocalRuntime
from dkge_dist.surfaces.requests.fields import OnWorkers
from dkge_dist.types import UsageError


def test_without_shards_it_is_this_process() -> None:
    runtime = OnWorkers().runtime()
    assert isinstance(runtime, LocalRuntime)
    assert (runtime.shards, runtime.workers) == (1, 1)
    assert isinstance(OnWorkers(wait_seconds=3.0).runtime(), LocalRuntime)


@pytest.mark.parametrize("options", [OnWorkers(workers=2), OnWorkers(address="auto")])
def test_workers_and_addresses_go_with_shards(options: OnWorkers) -> None:
    with pytest.raises(UsageError, match="--workers and --address go with --shards N"):
        options.runtime()


def test_with_shards_it_is_a_cluster_that_is_joined_later() -> None:
    import ray

    before = ray.is_initialized()
    runtime = OnWorkers(shards=4, workers=2, address="10.0.0.1:6379", wait_seconds=5.0).runtime()
    assert (runtime.shards, runtime.workers) == (4, 2)
    assert type(runtime).__name__ == "RayRuntime"
    config = runtime.config  # type: ignore[attr-defined]
    assert (config.address, config.wait_seconds) == ("10.0.0.1:6379", 5.0)
    assert ray.is_initialized() == before


@pytest.mark.parametrize("options", [OnWorkers(shards=0), OnWorkers(shards=2, workers=0)])
def test_a_cluster_has_a_shard_and_a_worker_at_least(options: OnWorkers) -> None:
    with pytest.raises(UsageError, match="at least one of each"):
        options.runtime()
