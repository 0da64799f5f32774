"""Joining a cluster or starting one, without any: what is tried, and what is said when it fails."""

from __future__ import annotations

from typing import Any

import pytest
import ray

from dkge_dist.cluster import session
from dkge_dist.cluster.session import Place, connected
from dkge_dist.types import DkgeError


class Starts:
    """Takes the place of `ray.init`: fails so many times."""

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
def test_a_ray_of_our_own_that_does_not_start_is_started_again(starts: Starts) -> None:
    with connected(Place(1), 3):
        pass
    assert [call["address"] for call in starts.calls] == ["local"] * session.STARTS
    assert all(call["num_cpus"] >= 3 for call in starts.calls)


@pytest.mark.parametrize("starts", [99], indirect=True)
@pytest.mark.parametrize(("address", "tries", "where"), [(None, session.STARTS, "this machine"), ("a:1", 1, "a:1")])
def test_no_ray_is_a_sentence_with_the_reason(starts: Starts, address: str | None, tries: int, where: str) -> None:
    with (
        pytest.raises(DkgeError, match=f"^no Ray cluster at {where}: The current node timed out"),
        connected(Place(1, address=address), 1),
    ):
        pass
    assert len(starts.calls) == tries
