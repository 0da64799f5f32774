"""Growing buffers against Python lists."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.buffers import append, sort_distinct

values = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=70)


@given(values, st.integers(1, 5))
def test_appended_values_survive_every_doubling(given: list[int], room: int) -> None:
    buffer = np.empty(room, np.int64)
    for count, value in enumerate(given):
        buffer = append(buffer, count, value)
        assert buffer[: count + 1].tolist() == given[: count + 1]
    assert buffer.shape[0] < 2 * max(room, len(given)) + 1


@given(st.lists(st.integers(0, 30), max_size=70), st.integers(0, 5))
def test_sort_distinct_leaves_what_is_behind_the_count_alone(given: list[int], spare: int) -> None:
    """Short ranges are sorted by insertion, long ones by numpy: both lengths occur."""
    buffer = np.array([*given, *([-1] * spare)], np.int64)
    left = sort_distinct(buffer, len(given))
    assert buffer[:left].tolist() == sorted(set(given))
    assert buffer[len(given) :].tolist() == [-1] * spare
