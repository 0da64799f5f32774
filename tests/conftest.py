"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

import dkge_dist  # noqa: F401  # First: it says how threads wait, which torch and numba read when they start.

# Compiling a kernel at its first example takes seconds: no example has a deadline.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("interpreted", parent=settings.get_profile("default"), max_examples=10)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
