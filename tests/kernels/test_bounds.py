"""Row numbers outside of a table are found, whatever they are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.bounds import first_outside
from dkge_dist.types import MAX_ROWS, ROW

numbers = st.one_of(st.integers(0, 300), st.integers(-(2**31), 2**31 - 1))


@given(st.lists(numbers, max_size=200), st.one_of(st.integers(0, 300), st.just(MAX_ROWS)))
def test_the_first_row_outside_is_found(rows: list[int], size: int) -> None:
    slow = next((place for place, row in enumerate(rows) if not 0 <= row < size), -1)
    assert first_outside(np.array(rows, ROW), size) == slow
