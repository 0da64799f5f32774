"""Sums in a written order: right, and the same bits whether a kernel was just compiled or found in the cache."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.sums import dot, largest, total, translated_distance

sizes = st.integers(0, 70)
seeds = st.integers(0, 2**32 - 1)


@given(sizes, seeds)
def test_equal_to_exact_sums(size: int, seed: int) -> None:
    x, y, z = np.random.default_rng(seed).normal(size=(3, size)).astype(np.float32)
    exact = [array.astype(np.float64) for array in (x, y, z)]
    near = {"rel": 1e-5, "abs": 1e-5}
    assert dot(x, y) == pytest.approx(exact[0] @ exact[1], **near)
    assert total(x) == pytest.approx(exact[0].sum(), **near)
    assert translated_distance(x, y, z) == pytest.approx(np.abs(exact[0] + exact[1] - exact[2]).sum(), **near)
    assert largest(x) == max(x, default=-np.inf)


LEARN = """
import hashlib
import numpy as np
import dkge_dist

from tests.learn.test_step import learn
losses, vectors = learn(0, steps=3)
print(losses, hashlib.sha256(vectors.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_the_same_bits_from_a_cold_and_a_warm_cache(tmp_path: Path) -> None:
    """Trainings that are resumed, or run on shards, equal others to the bit, whoever compiled the kernels."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", LEARN]
    cold, warm = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout for _ in range(2)
    )
    assert cold == warm
    assert len(cold.split()) == 4
