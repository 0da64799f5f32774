"""Rows partitioned by shard, against a loop over the shards."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.partition import partition
from dkge_dist.kernels.rows import scatter_rows
from dkge_dist.types import OFFSET, ROW
from tests import reference

block_sizes = st.integers(0, 6).map(lambda power: 2**power)
some_rows = st.lists(st.integers(0, 300), max_size=80)


@given(some_rows, block_sizes, st.integers(1, 9))
def test_partition_is_a_stable_sort_by_shard(rows: list[int], block: int, shards: int) -> None:
    order, local, begin = partition(np.array(rows, ROW), block, shards)
    assert (order.dtype, local.dtype, begin.dtype) == (OFFSET, ROW, OFFSET)
    assert (order.tolist(), local.tolist(), begin.tolist()) == reference.partition(rows, block, shards)


@given(some_rows, block_sizes, st.integers(1, 9))
def test_ascending_rows_stay_ascending_in_every_shard(rows: list[int], block: int, shards: int) -> None:
    """Without this, the deltas of a shard and the filtered candidates of a query would have to be sorted."""
    _, local, begin = partition(np.unique(np.array(rows, ROW)), block, shards)
    for shard in range(shards):
        assert (np.diff(local[begin[shard] : begin[shard + 1]]) > 0).all()


def test_partitioned_rows_scatter_back_to_their_order() -> None:
    rng = np.random.default_rng(3)
    rows = rng.permutation(500)[:333].astype(ROW)
    table = rng.random((500, 5), np.float32)
    order, local, begin = partition(rows, 16, 4)
    out = np.full((333, 5), np.nan, np.float32)
    for shard in range(4):
        held = table[[row for row in range(500) if row // 16 % 4 == shard]]
        mine = slice(begin[shard], begin[shard + 1])
        scatter_rows(held[local[mine]], order[mine], out)
    assert np.array_equal(out, table[rows])
