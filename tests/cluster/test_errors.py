"""Errors of a shard travel from its actor as what they are."""

from __future__ import annotations

import pytest
import ray

from dkge_dist.cluster.errors import ShardLostError, StaleAttemptError
from dkge_dist.types import DkgeError

pytestmark = pytest.mark.usefixtures("ray_here")


@pytest.mark.parametrize("kind", [StaleAttemptError, ShardLostError, DkgeError])
def test_error_raised_by_a_task_has_its_class_at_the_caller(kind: type[DkgeError]) -> None:
    @ray.remote(num_cpus=0)
    def fail() -> None:
        raise kind("shard 1 has been restarted")

    with pytest.raises(ray.exceptions.RayTaskError) as caught:
        ray.get(fail.remote())
    assert type(caught.value.cause) is kind
    assert str(caught.value.cause) == "shard 1 has been restarted"


def test_stale_attempt_is_not_a_lost_shard() -> None:
    """A stale caller is refused by a shard that is there; only the caller makes a lost shard of it."""
    assert not issubclass(StaleAttemptError, ShardLostError)
    assert not issubclass(ShardLostError, StaleAttemptError)
