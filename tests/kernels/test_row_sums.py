"""Sums of rows in registers: against sums in 64 bits, for every width and with every column left out or given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.jit import kernel
from dkge_dist.kernels.row_sums import halved, slopes_of_attention, sum_rows, sum_rows_relu, widened
from dkge_dist.types import ROW

dims = st.integers(1, 200)
seeds = st.integers(0, 2**32 - 1)


@kernel
def sums(rows, index, via, weight, first, last, offset, out):  # type: ignore[no-untyped-def]
    """All forms, a row of `out` each."""
    sum_rows(out[0], rows, index, via, weight, first, last, offset)
    sum_rows(out[1], rows, index, None, weight, first, last, offset)
    sum_rows(out[2], rows, index, None, None, first, last, offset)
    sum_rows(out[3], rows, None, None, weight, first, last, 0)
    sum_rows_relu(out[4], rows, index, via, weight, first, last, offset)


@kernel
def slopes(hidden, count, begin, by_sum, by_score, grad, query, by_query):  # type: ignore[no-untyped-def]
    """The gradients of an attention."""
    slopes_of_attention(hidden, count, begin, by_sum, by_score, grad, query, by_query)


@given(dims, st.integers(1, 9), st.integers(0, 12), st.integers(0, 5), seeds)
def test_sums_equal_those_in_64_bits(dim: int, rows: int, entries: int, offset: int, seed: int) -> None:
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
    table = halved(rng.normal(size=(rows, dim)))
    every, weight = rng.integers(0, rows, rows).astype(ROW), rng.normal(size=rows).astype(np.float32)
    given_rows, out, exact = (every, every, weight, 0, rows, 0), np.empty((5, dim), np.float32), widened(table)
    sums(exact, *given_rows, out)
    found, rounded = np.empty_like(out), np.empty((5, dim), np.uint16)
    sums(table, *given_rows, found)
    assert np.array_equal(found, out)
    sums(table, *given_rows, rounded)
    assert np.array_equal(rounded, torch.from_numpy(out).bfloat16().view(torch.uint16).numpy())
    assert np.array_equal(rounded, halved(out))


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_numbers_are_rounded_as_torch_does(bits: int, dim: int) -> None:
    """Any bits, no numbers and infinities too, in registers of every width."""
    values = np.arange(bits, bits + dim, dtype=np.uint64).astype(np.uint32).view(np.float32)[None]
    out = np.empty((5, dim), np.uint16)
    sums(values, np.zeros(1, ROW), np.zeros(1, ROW), np.ones(1, np.float32), 0, 1, 0, out)
    # A sum begins with 0: −0 becomes 0.
    expected = torch.from_numpy(values[0] + 0).bfloat16()
    found = torch.from_numpy(out[:4].copy()).view(torch.bfloat16)
    assert all(torch.equal(row.nan_to_num(7), expected.nan_to_num(7)) for row in found)
    assert np.array_equal(np.isnan(widened(halved(values[0]))), np.isnan(values[0]))


@given(dims, st.integers(1, 12), st.integers(0, 3), seeds)
def test_slopes_equal_those_in_64_bits(dim: int, count: int, begin: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    hidden = np.maximum(rng.normal(size=(count + 2, dim)), 0).astype(np.float32)
    by_sum, by_score = rng.normal(size=(2, begin + count)).astype(np.float32)
    grad, query = rng.normal(size=(2, dim)).astype(np.float32)
    found, by_query = hidden.copy(), np.full(dim, np.nan, np.float32)
    slopes(found, count, begin, by_sum, by_score, grad, query, by_query)
    seen, slope = hidden[:count].astype(np.float64), by_score[:count].astype(np.float64)
    np.testing.assert_allclose(by_query, slope @ seen, rtol=1e-4, atol=1e-4)
    back = np.outer(by_sum[begin : begin + count], grad) + np.outer(slope, query)
    np.testing.assert_allclose(found[:count], np.where(seen > 0, back, 0), rtol=1e-4, atol=1e-4)
    assert np.array_equal(found[count:], hidden[count:])


@pytest.mark.parametrize("dim", [1, 4, 16, 64, 100])
def test_what_is_not_a_number_shows(dim: int) -> None:
    """Also through a ReLU: training stops where a loss is not finite."""
    table = np.ones((2, dim), np.float32)
    table[1] = np.nan
    every, weight = np.array([0, 1], ROW), np.ones(2, np.float32)
    out = np.zeros((5, dim), np.float32)
    sums(table, every, every, weight, 0, 2, 0, out)
    assert np.isnan(out).all()


@given(dims, seeds)
def test_slopes_that_cancel_out_leave_nothing(dim: int, seed: int) -> None:
    """Of two equal rows, as in every context of two vertices."""
    rng = np.random.default_rng(seed)
    hidden = np.repeat(np.maximum(rng.normal(size=(1, dim)), 0), 2, axis=0).astype(np.float32)
    slope = np.float32(rng.normal())
    grad, query, by_query = (rng.normal(size=dim).astype(np.float32) for _ in range(3))
    slopes(hidden, 2, 0, np.full(2, 0.5, np.float32), np.array([slope, -slope]), grad, query, by_query)
    assert not by_query.any()
