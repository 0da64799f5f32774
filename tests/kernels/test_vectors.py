"""Sums over vectors and rows, against numpy in 64 bits, for dimensions with and without whole strips."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.jit import kernel
from dkge_dist.kernels.vectors import (
    add_slopes,
    distance,
    dot,
    exponentials,
    slopes_of_attention,
    sum_rows,
    total,
)
from dkge_dist.types import ROW, Array

sizes = st.integers(0, 200)
dims = st.integers(1, 200)
seeds = st.integers(0, 2**32 - 1)


@kernel
def reduce(x, y, out):  # type: ignore[no-untyped-def]
    """All sums over vectors."""
    out[0], out[1], out[2] = dot(x, y), distance(x, y), total(x)


@kernel
def sums(rows, index, via, weight, first, last, offset, out):  # type: ignore[no-untyped-def]
    """All forms of sums of rows, a row of `out` each."""
    sum_rows(out[0], rows, index, via, weight, first, last, offset, False)
    sum_rows(out[1], rows, index, None, weight, first, last, offset, False)
    sum_rows(out[2], rows, index, None, None, first, last, offset, False)
    sum_rows(out[3], rows, None, None, weight, first, last, 0, False)
    sum_rows(out[4], rows, index, via, weight, first, last, offset, True)


@kernel
def attend(hidden, count, begin, by_sum, by_score, grad, query, by_query):  # type: ignore[no-untyped-def]
    """The gradients of an attention."""
    slopes_of_attention(hidden, count, begin, by_sum, by_score, grad, query, by_query)


@kernel
def slopes(query, candidate, near, weight, count, by_query, by_candidate):  # type: ignore[no-untyped-def]
    """The gradients of weighted distances."""
    add_slopes(query, candidate, near, weight, count, by_query, by_candidate)


@kernel
def exponentiate(x, top):  # type: ignore[no-untyped-def]
    """e^(x − top), in place."""
    exponentials(x, top)


def widened(halves: Array) -> Array:
    """bfloat16 as float32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


def halved(values: Array) -> Array:
    """float32 as bfloat16, rounded by torch."""
    return torch.from_numpy(values.copy()).bfloat16().view(torch.uint16).numpy()


@given(sizes, seeds, st.booleans())
def test_sums_equal_those_in_64_bits(size: int, seed: int, is_broken: bool) -> None:
    """What is not a number shows: training stops where a loss is not finite."""
    x, y = np.random.default_rng(seed).normal(size=(2, size)).astype(np.float32)
    x[: int(is_broken)] = np.nan
    a, b = (array.astype(np.float64) for array in (x, y))
    found = np.zeros(3, np.float32)
    reduce(x, y, found)
    np.testing.assert_allclose(found, [a @ b, np.abs(a - b).sum(), a.sum()], rtol=1e-5, atol=1e-5)


@given(dims, st.integers(1, 9), st.integers(0, 12), st.integers(0, 5), seeds)
def test_sums_of_rows_equal_those_in_64_bits(dim: int, rows: int, entries: int, offset: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(max(rows, entries), dim)).astype(np.float32)
    # `via` leads from a number that an index may have to a row, both counted from the offset on.
    index = rng.integers(offset, offset + rows, entries).astype(ROW)
    via = rng.integers(offset, offset + rows, offset + rows).astype(ROW)
    weight = rng.normal(size=entries).astype(np.float32)
    first = int(rng.integers(0, entries + 1))
    last = int(rng.integers(first, entries + 1))
    out = np.full((5, dim), np.nan, np.float32)
    sums(table, index, via, weight, first, last, offset, out)
    exact, some, scale = table.astype(np.float64), index[first:last], weight[first:last].astype(np.float64)
    through = scale @ exact[via[some] - offset]
    expected = [through, scale @ exact[some - offset], exact[some - offset].sum(0), scale @ exact[first:last]]
    np.testing.assert_allclose(out, [*expected, np.maximum(through, 0)], rtol=1e-5, atol=1e-5)


@given(dims, st.integers(1, 9), seeds)
def test_rows_and_sums_may_be_bfloat16(dim: int, rows: int, seed: int) -> None:
    """The same to the bit as of the widened rows, then rounded as torch does."""
    rng = np.random.default_rng(seed)
    table = halved(rng.normal(size=(rows, dim)).astype(np.float32))
    every, weight = rng.integers(0, rows, rows).astype(ROW), rng.normal(size=rows).astype(np.float32)
    given_rows, out, exact = (every, every, weight, 0, rows, 0), np.empty((5, dim), np.float32), widened(table)
    sums(exact, *given_rows, out)
    found, rounded = np.empty_like(out), np.empty((5, dim), np.uint16)
    sums(table, *given_rows, found)
    assert np.array_equal(found, out)
    sums(table, *given_rows, rounded)
    assert np.array_equal(rounded, halved(out))


@given(st.integers(0, 2**32 - 1), st.integers(1, 80))
def test_numbers_are_rounded_as_torch_does(bits: int, dim: int) -> None:
    """Any bits, no numbers (which show through a ReLU too) and infinities."""
    values = np.arange(bits, bits + dim, dtype=np.uint64).astype(np.uint32).view(np.float32)[None]
    out = np.empty((5, dim), np.uint16)
    sums(values, np.zeros(1, ROW), np.zeros(1, ROW), np.ones(1, np.float32), 0, 1, 0, out)
    # A sum begins with 0: −0 becomes 0.
    expected = torch.from_numpy(values[0] + 0).bfloat16()
    found = torch.from_numpy(out.copy()).view(torch.bfloat16)
    assert all(torch.equal(row.nan_to_num(7), expected.nan_to_num(7)) for row in found[:4])
    assert torch.equal(found[4].isnan(), expected.isnan())


@given(dims, st.integers(1, 12), st.integers(0, 3), seeds)
def test_slopes_of_attention_equal_those_in_64_bits(dim: int, count: int, begin: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hidden = np.maximum(rng.normal(size=(count + 2, dim)), 0).astype(np.float32)
    by_sum, by_score = rng.normal(size=(2, begin + count)).astype(np.float32)
    grad, query = rng.normal(size=(2, dim)).astype(np.float32)
    found, by_query = hidden.copy(), np.full(dim, np.nan, np.float32)
    attend(found, count, begin, by_sum, by_score, grad, query, by_query)
    seen, slope = hidden[:count].astype(np.float64), by_score[:count].astype(np.float64)
    np.testing.assert_allclose(by_query, slope @ seen, rtol=1e-4, atol=1e-4)
    back = np.outer(by_sum[begin : begin + count], grad) + np.outer(slope, query)
    np.testing.assert_allclose(found[:count], np.where(seen > 0, back, 0), rtol=1e-4, atol=1e-4)
    assert np.array_equal(found[count:], hidden[count:])


@given(dims, seeds)
def test_slopes_that_cancel_out_leave_nothing(dim: int, seed: int) -> None:
    """Of two equal rows, as in every context of two vertices."""
    rng = np.random.default_rng(seed)
    hidden = np.repeat(np.maximum(rng.normal(size=(1, dim)), 0), 2, axis=0).astype(np.float32)
    slope = np.float32(rng.normal())
    grad, query, by_query = (rng.normal(size=dim).astype(np.float32) for _ in range(3))
    attend(hidden, 2, 0, np.full(2, 0.5, np.float32), np.array([slope, -slope]), grad, query, by_query)
    assert not by_query.any()


@given(dims, st.integers(1, 9), st.integers(0, 12), seeds)
def test_slopes_are_added_in_the_order_of_the_candidates(dim: int, candidates: int, count: int, seed: int) -> None:
    """To the bit; a candidate may come again, and the slope of equal numbers is promised too."""
    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray:
        return np.where(rng.random(shape) < 0.3, 0, rng.normal(size=shape)).astype(np.float32)

    query, candidate, weight = drawn(dim), drawn(candidates, dim), drawn(count + 2)
    near = rng.integers(0, candidates, count + 2).astype(ROW)
    by_query, by_candidate = drawn(dim), drawn(candidates, dim)
    expected = by_query.copy(), by_candidate.copy()
    for n, some in zip(near[:count], weight[:count], strict=True):
        slope = np.where(query > candidate[n], some, -some)
        expected[0][:] -= slope
        expected[1][n] += slope
    slopes(query, candidate, near, weight, count, by_query, by_candidate)
    assert np.array_equal(by_query, expected[0]) and np.array_equal(by_candidate, expected[1])


@given(st.lists(st.floats(-200, 0, width=32), max_size=70), st.floats(-100, 100, width=32))
def test_exponentials_have_the_precision_of_float32(below: list[float], top: float) -> None:
    x = np.float32(top) + np.array([*below, -np.inf, np.nan], np.float32)
    found = x.copy()
    exponentiate(found, np.float32(top))
    difference = x - np.float32(top)
    expected = np.where(difference < -87, 0, np.exp(difference.astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=0)


def test_all_exponents_of_float32() -> None:
    x = np.linspace(-87, 0, 1_000_001 if "NUMBA_DISABLE_JIT" not in os.environ else 1001, dtype=np.float32)
    found = x.copy()
    exponentiate(found, np.float32(0))
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=2e-7, atol=0)
    assert found[-1] == 1


TRAIN = """
import numpy as np
import torch
import dkge_dist

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.adjacency import ragged
from dkge_dist.kernels.batches import RowNumbering
from dkge_dist.kernels.contexts import Sampling, build_contexts
from dkge_dist.kernels.rows import adagrad_rows
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
    print(loss.item())
print(np.abs(table).sum())
"""


@pytest.mark.slow
def test_a_cold_and_a_warm_cache_agree(tmp_path: Path) -> None:
    """Numba optimises a kernel again when it is read: sums may then be added in another order, and no more."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-c", TRAIN]
    cold, warm = (
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
        for _ in range(2)
    )
    assert len(cold) == 4
    np.testing.assert_allclose([float(x) for x in warm], [float(x) for x in cold], rtol=1e-4)
