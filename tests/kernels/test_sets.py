"""Sets by sorting are those of numpy, of any type and number of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.sets import among, distinct


@given(st.lists(st.lists(st.integers(-5, 2**31 - 1), max_size=30), min_size=1, max_size=3))
def test_distinct_values_are_those_of_numpy(parts: list[list[int]]) -> None:
    for kind in (np.int32, np.int64):
        arrays = [np.array(part, kind) for part in parts]
        before = [array.copy() for array in arrays]
        found = distinct(*arrays)
        assert found.dtype == kind
        assert found.tolist() == np.unique(np.concatenate(arrays)).tolist()
        assert all((array == copy).all() for array, copy in zip(arrays, before, strict=True)), "they are left alone"


@pytest.mark.parametrize("kind", [np.uint64, np.int64])
def test_codes_of_64_bits(kind: type) -> None:
    values = np.array([2**63 - 1, 1 << 32, 2**63 - 1, 0], kind)
    assert distinct(values).tolist() == [0, 1 << 32, 2**63 - 1]


@given(*2 * [st.lists(st.integers(-5, 40), max_size=30)])
def test_members_are_those_of_numpy(members: list[int], values: list[int]) -> None:
    ascending, asked = distinct(np.array(members, np.int32)), np.array(values, np.int64)
    assert among(ascending, asked).tolist() == np.isin(asked, ascending).tolist()
