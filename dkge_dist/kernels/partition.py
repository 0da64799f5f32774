"""Rows partitioned by the shard that owns them. In: rows of a table. Out: their numbers by shard, and rows local to it.

Blocks of `block_rows` rows go to the shards round robin: shard = (row // block_rows) % shards.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.types import OFFSET, ROW, Array


@kernel
def _partition(rows, block_rows, shards, order, local, begin):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        begin[rows[i] // block_rows % shards + 1] += 1
    for shard in range(shards):
        begin[shard + 1] += begin[shard]
    free = begin.copy()
    for i in range(rows.shape[0]):
        block = rows[i] // block_rows
        at = free[block % shards]
        free[block % shards] += 1
        order[at] = i
        local[at] = block // shards * block_rows + rows[i] % block_rows


def partition(rows: Array, block_rows: int, shards: int) -> tuple[Array, Array, Array]:
    """(order, local rows, begin): shard s owns `rows[order[begin[s]:begin[s + 1]]]`, as local rows of the same slice.

    A stable counting sort: rows of a shard keep their order.
    """
    order, local = np.empty(rows.shape[0], OFFSET), np.empty(rows.shape[0], ROW)
    begin = np.zeros(shards + 1, OFFSET)
    _partition(as_readonly(rows, ROW), block_rows, shards, order, local, begin)
    return order, local, begin
