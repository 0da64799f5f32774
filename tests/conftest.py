"""Settings of all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import dkge_dist  # noqa: F401  # First: it says how threads wait, which torch and numba read when they start.

# Compiling a kernel at its first example takes seconds: no example has a deadline.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("interpreted", parent=settings.get_profile("default"), max_examples=10)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests that train: their batches are so small that threads would only wait for each other."""
    import torch

    from dkge_dist.kernels.jit import set_threads, threads

    before = (threads(), torch.get_num_threads())
    set_threads(1)
    torch.set_num_threads(1)
    yield
    set_threads(before[0])
    torch.set_num_threads(before[1])
