"""e^x of vectors, against numpy's in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.exponentials import LEAST, exponentials

numbers = st.lists(st.floats(-200, 0, width=32), max_size=70)


@given(numbers, st.floats(-100, 100, width=32))
def test_exponentials_have_the_precision_of_float32(below: list[float], top: float) -> None:
    x = np.float32(top) + np.array(below, np.float32)
    found = x.copy()
    exponentials(found, np.float32(top))
    difference = x - np.float32(top)
    expected = np.where(difference < LEAST, 0, np.exp(difference.astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=0)


def test_all_exponents_of_float32() -> None:
    x = np.linspace(float(LEAST), 0, 1_000_001, dtype=np.float32)
    found = x.copy()
    exponentials(found, np.float32(0))
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=2e-7, atol=0)
    assert found[-1] == 1


@pytest.mark.parametrize(("x", "expected"), [(-np.inf, 0.0), (float(LEAST) - 1, 0.0), (np.nan, np.nan)])
def test_what_is_no_number_or_too_small(x: float, expected: float) -> None:
    found = np.array([x], np.float32)
    exponentials(found, np.float32(0))
    np.testing.assert_equal(found, np.array([expected], np.float32))
