"""One Ray for all tests of this folder: starting it takes longer than most of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

from dkge_dist.tables.plan import ShardPlan
from tests.cluster import two_workers as two_processes
from tests.tables.rows import BLOCK, ROWS


@pytest.fixture(scope="session")
def _ray_ends() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


@pytest.fixture(scope="module")
def ray_here(_ray_ends: None) -> None:
    """Ray on this machine, with four processors as far as it knows; started unless an earlier module left it on."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    if not ray.is_initialized():
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


@pytest.fixture(scope="module")
def actors(ray_here: None) -> Iterator[dict[int, list[Any]]]:
    """Shard actors of the table of `tests.tables.rows`: one, and three. A test opens an attempt of its own."""
    import ray

    from dkge_dist.cluster.session import ShardActor

    kind = ray.remote(ShardActor).options(num_cpus=0, max_concurrency=6)
    made = {
        shards: [kind.remote(number, ShardPlan(ROWS, BLOCK, shards)) for number in range(shards)] for shards in (1, 3)
    }
    yield made
    for some in made.values():
        for actor in some:
            ray.kill(actor)


@pytest.fixture(scope="session")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> list[two_processes.Arrays]:
    """What two worker processes ended with, by rank."""
    return two_processes.run(tmp_path_factory.mktemp("two-workers"))
