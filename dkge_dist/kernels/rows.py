"""Rows of tables: within their bounds, partitioned by shard, gathered, looked up in another batch, and stepped.

Nothing here costs more than the batch, whatever the size of the table.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import parallel_kernel, prange
from dkge_dist.kernels.vectors import dot
from dkge_dist.types import OFFSET, ROW, Array


def first_outside(rows: Array, size: int) -> int:
    """Where the first of some rows stands that is negative or not below `size`; -1 if there is none."""
    if not rows.shape[0] or (rows.min() >= 0 and rows.max() < size):
        return -1
    return int(np.argmax((rows < 0) | (rows >= size)))


def partition(rows: Array, block_rows: int, shards: int) -> tuple[Array, Array, Array]:
    """(order, local rows, begin): shard s owns `rows[order[begin[s]:begin[s + 1]]]`, as local rows of the same slice.

    Blocks of `block_rows` rows go to the shards round robin: shard = (row // block_rows) % shards. Rows of a shard keep
    their order.
    """
    block = rows // block_rows
    shard = block % shards
    # Few bits are sorted by counting.
    order = np.argsort(shard.astype(np.uint16) if shards <= 1 << 16 else shard, kind="stable").astype(OFFSET)
    begin = np.zeros(shards + 1, OFFSET)
    np.cumsum(np.bincount(shard, minlength=shards), out=begin[1:])
    return order, (block // shards * block_rows + rows % block_rows)[order].astype(ROW), begin


@parallel_kernel
def gather_rows(table_RD, rows_U, out_UD):  # type: ignore[no-untyped-def]
    """out[u] = table[rows[u]]."""
    for u in prange(out_UD.shape[0]):
        for d in range(out_UD.shape[1]):
            out_UD[u, d] = table_RD[rows_U[u], d]


class RowMembership:
    """Tells which rows of one batch are in another, by a flag per row of the table that is kept between batches."""

    def __init__(self, rows: int) -> None:
        self._flags = np.zeros(rows, np.bool_)

    def isin(self, rows: Array, others: Array) -> Array:
        """For each of `rows`: is it one of `others`?"""
        self._flags[others] = True
        found: Array = self._flags[rows]
        self._flags[others] = False
        return found


@parallel_kernel
def adagrad_rows(table_RD, state_R, rows_U, grad_UD, rate, damping, epsilon):  # type: ignore[no-untyped-def]
    """Row-wise Adagrad: one accumulated mean square per row instead of one per component. Rows are distinct.

    `damping` is added to it: without, the first step is as long as the rate, however small the gradient.
    """
    dim = grad_UD.shape[1]
    for u in prange(rows_U.shape[0]):
        row = rows_U[u]
        state_R[row] += dot(grad_UD[u], grad_UD[u]) / dim
        step = rate / (np.sqrt(state_R[row] + damping) + epsilon)
        for d in range(dim):
            table_RD[row, d] -= step * grad_UD[u, d]


@parallel_kernel
def sgd_rows(table_RD, rows_U, grad_UD, rate):  # type: ignore[no-untyped-def]
    """Stochastic gradient descent on distinct rows."""
    for u in prange(rows_U.shape[0]):
        for d in range(grad_UD.shape[1]):
            table_RD[rows_U[u], d] -= rate * grad_UD[u, d]
