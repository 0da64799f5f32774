"""Sums by vector registers: correct, and the same bits whether a kernel was just compiled or read from the cache."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.jit import kernel
from dkge_dist.kernels.vectors import distance, dot, largest, total, translated_distance

sizes = st.integers(0, 200)
seeds = st.integers(0, 2**32 - 1)


@kernel
def reduce(x, y, z, out):  # type: ignore[no-untyped-def]
    """All sums."""
    out[0], out[1], out[2] = dot(x, y), distance(x, y), translated_distance(x, y, z)
    out[3], out[4] = total(x), largest(x)


@given(sizes, seeds)
def test_sums_equal_those_in_64_bits(size: int, seed: int) -> None:
    x, y, z = np.random.default_rng(seed).normal(size=(3, size)).astype(np.float32)
    a, b, c = (array.astype(np.float64) for array in (x, y, z))
    found = np.full(5, np.nan, np.float32)
    reduce(x, y, z, found)
    expected = [a @ b, np.abs(a - b).sum(), np.abs(a + b - c).sum(), a.sum(), max(x, default=-np.inf)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found[4] == max(x, default=-np.inf)


@given(st.integers(1, 120), seeds)
def test_what_is_not_a_number_shows_in_sums(size: int, seed: int) -> None:
    """Training stops where a loss is not finite: it must not be lost on the way."""
    rng = np.random.default_rng(seed)
    x, y, z = rng.normal(size=(3, size)).astype(np.float32)
    x[rng.integers(size)] = np.nan
    found = np.zeros(5, np.float32)
    reduce(x, y, z, found)
    assert np.isnan(found[:4]).all()


TRAIN = """
import hashlib
import numpy as np
import torch
import dkge_dist

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.adjacency import ragged
from dkge_dist.kernels.batches import RowNumbering
from dkge_dist.kernels.contexts import Sampling, build_contexts
from dkge_dist.kernels.optimizers import adagrad_rows
from dkge_dist.kernels.ragged import ragged_batch
from dkge_dist.model.dkge import Encoder
from dkge_dist.model.losses import Negatives, softmax_loss
from dkge_dist.kernels.triples import canonical
from tests.strategies import digests, to_triples

rng = np.random.default_rng(0)
train = canonical(to_triples([(int(h), 0, int(t)) for h, t in rng.integers(0, 200, (900, 2))]))
contexts = build_contexts(Topology.of(train, 200).neighbours, digests(200), Sampling(1, 35, 1), np.arange(200))
flat = ragged(contexts)
distinct, slot_row = RowNumbering(200).number(flat.vertices)
batch = ragged_batch(flat, slot_row, len(distinct))
encoder = Encoder(40, 2, torch.Generator().manual_seed(1))
table, state = rng.normal(size=(200, 40)).astype(np.float32), np.zeros(200, np.float32)
for step in range(3):
    leaf = torch.from_numpy(table.copy()).requires_grad_()
    joint = encoder(leaf[torch.from_numpy(distinct)], batch, leaf)
    known, logq, own = torch.zeros(100, 100, dtype=torch.bool), torch.zeros(100), joint[:100].abs().sum(1)
    negatives = Negatives(joint[100:], known, logq, own)
    denied = torch.arange(100) % 7 == 0
    loss = softmax_loss((joint[:100] - joint[100:]).abs().sum(1), denied, joint[:100], negatives, 1.0)
    loss.backward()
    adagrad_rows(table, state, np.arange(200, dtype=np.int32), leaf.grad.numpy(), *np.float32((0.1, 0, 1e-10)))
    print(loss.item().hex())
print(hashlib.sha256(table.tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_same_bits_from_a_cold_and_a_warm_cache(tmp_path: Path) -> None:
    """Else resumed and sharded trainings would equal others only if all found their kernels compiled."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", TRAIN]
    cold, warm = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout for _ in range(2)
    )
    assert cold == warm
    assert len(cold.split()) == 4
