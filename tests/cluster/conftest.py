"""One Ray for all tests of this folder: starting it takes longer than most of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def _ray_ends() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


@pytest.fixture(scope="module")
def ray_here(_ray_ends: None) -> None:
    """Ray on this machine, with four processors as far as it knows; started if no module before has left it on."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")
    import ray

    if not ray.is_initialized():
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
