"""Rows taken apart by shard, and put together again: what a table on many machines does for every batch."""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.types import OFFSET, ROW, Array


@kernel
def _deal(rows, block_rows, shards, order, places, begin):  # type: ignore[no-untyped-def]
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
        places[at] = block // shards * block_rows + rows[i] % block_rows


def partition(rows: Array, block_rows: int, shards: int) -> tuple[Array, Array, Array]:
    """(numbers of the rows by shard, their places in it, where each shard begins): a stable counting sort."""
    order, places = np.empty(rows.shape[0], OFFSET), np.empty(rows.shape[0], ROW)
    begin = np.zeros(shards + 1, OFFSET)
    _deal(as_readonly(rows, ROW), block_rows, shards, order, places, begin)
    return order, places, begin


@kernel
def _mark(rows, seen, again):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        again[i] = seen[rows[i]]


@kernel
def _set(rows, seen, value):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        seen[rows[i]] = value


class Recurrence:
    """Tells which rows of a batch were in another one. The memory is kept; nothing per batch follows the table."""

    def __init__(self, rows: int) -> None:
        self._seen = np.zeros(rows, np.bool_)

    def among(self, rows: Array, others: Array) -> Array:
        """For each of `rows`: is it one of `others`?"""
        again = np.empty(rows.shape[0], np.bool_)
        others = as_readonly(others, ROW)
        _set(others, self._seen, True)
        _mark(as_readonly(rows, ROW), self._seen, again)
        _set(others, self._seen, False)
        return again


@kernel
def _spread(values_ND, order, out_MD):  # type: ignore[no-untyped-def]
    for i in range(order.shape[0]):
        to = order[i]
        for d in range(values_ND.shape[1]):
            out_MD[to, d] = values_ND[i, d]


def spread_rows(values_ND: Array, order: Array, out_MD: Array) -> None:
    """out[order[i]] = values[i]; the numbers are distinct."""
    _spread(as_readonly(values_ND, np.float32), as_readonly(order, OFFSET), out_MD)
