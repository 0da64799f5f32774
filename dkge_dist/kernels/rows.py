"""Rows of a batch: gathered from a table, scattered into an array, and looked up in another batch.

Nothing here costs more than the batch, whatever the size of the table.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange
from dkge_dist.types import OFFSET, ROW, Array


@parallel_kernel
def gather_rows(table_RD, rows_U, out_UD):  # type: ignore[no-untyped-def]
    """out[u] = table[rows[u]]."""
    for u in prange(out_UD.shape[0]):
        for d in range(out_UD.shape[1]):
            out_UD[u, d] = table_RD[rows_U[u], d]


@kernel
def _scatter(values_ND, order, out_MD):  # type: ignore[no-untyped-def]
    for i in range(order.shape[0]):
        to = order[i]
        for d in range(values_ND.shape[1]):
            out_MD[to, d] = values_ND[i, d]


def scatter_rows(values_ND: Array, order: Array, out_MD: Array) -> None:
    """out[order[i]] = values[i]; the positions `order` are distinct."""
    _scatter(as_readonly(values_ND, np.float32), as_readonly(order, OFFSET), out_MD)


@kernel
def _set_flags(rows, flags, value):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        flags[rows[i]] = value


@kernel
def _get_flags(rows, flags, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = flags[rows[i]]


class RowMembership:
    """Tells which rows of one batch are in another, by a flag per row of the table that is kept between batches."""

    def __init__(self, rows: int) -> None:
        self._flags = np.zeros(rows, np.bool_)

    def isin(self, rows: Array, others: Array) -> Array:
        """For each of `rows`: is it one of `others`?"""
        found = np.empty(rows.shape[0], np.bool_)
        others = as_readonly(others, ROW)
        _set_flags(others, self._flags, True)
        _get_flags(as_readonly(rows, ROW), self._flags, found)
        _set_flags(others, self._flags, False)
        return found
