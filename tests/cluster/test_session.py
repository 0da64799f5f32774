"""Joining a cluster or starting one, without any; and what is said when it has no room."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from dkge_dist.cluster import session
from dkge_dist.cluster.session import ClusterConfig, ray_session, require_workers
from dkge_dist.types import DkgeError, UsageError


class Starts:
    """Stands in for `ray.init`: fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.calls = failures, []  # type: ignore[var-annotated]

    def __call__(self, **options: Any) -> None:
        self.calls.append(options)
        if len(self.calls) <= self.failures:
            raise Exception("The current node timed out during startup.")


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Starts:
    made = Starts(request.param)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", made)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return made


@pytest.mark.parametrize("starts", [session.STARTS - 1], indirect=True)
def test_own_ray_is_started_again_when_it_fails(starts: Starts) -> None:
    with ray_session(ClusterConfig(1), 3):
        pass
    assert [call["address"] for call in starts.calls] == ["local"] * session.STARTS
    assert all(call["num_cpus"] >= 3 for call in starts.calls)


@pytest.mark.parametrize("starts", [99], indirect=True)
@pytest.mark.parametrize(("address", "tries", "where"), [(None, session.STARTS, "this machine"), ("a:1", 1, "a:1")])
def test_error_says_which_cluster_and_why(starts: Starts, address: str | None, tries: int, where: str) -> None:
    with (
        pytest.raises(DkgeError, match=f"^no Ray cluster at {where}: The current node timed out"),
        ray_session(ClusterConfig(1, address=address), 1),
    ):
        pass
    assert len(starts.calls) == tries


@pytest.mark.parametrize(("shards", "workers"), [(0, 1), (-1, 1), (2, 0)])
def test_at_least_one_shard_and_one_worker(shards: int, workers: int) -> None:
    with pytest.raises(UsageError, match=f"^--shards {shards} --workers {workers}: at least one of each$"):
        ClusterConfig(shards, workers)


@pytest.mark.usefixtures("ray_here")
def test_no_room_for_the_workers_says_what_is_missing() -> None:
    with pytest.raises(DkgeError, match=r"no room for 99 workers of 1 CPUs after 0\.5 s: the cluster's nodes have it"):
        require_workers(ClusterConfig(1, 99, wait_seconds=0.5), 1, 0)
    with pytest.raises(DkgeError, match=r"no room for 1 workers of 1 CPUs and 1 GPU after 0\.5 s: .* have it for 0\."):
        require_workers(ClusterConfig(1, 1, wait_seconds=0.5), 1, 1)
    require_workers(ClusterConfig(1, 4, wait_seconds=0.5), 1, 0)
