"""Rows in which two tables differ, bit for bit. Where one came from the other by updates, the cost follows the updates.

Versions share blocks and deltas by naming the same parts. A block that both tables name, and a delta that both begin
with, is equal without being read; only what is left is compared.
"""

from __future__ import annotations

from itertools import takewhile

import numpy as np

from dkge_dist.kernels.sets import distinct
from dkge_dist.store.tables import StoredTable
from dkge_dist.types import ROW, Array

RUN_ROWS = 16_384


def may_differ(old: StoredTable, new: StoredTable) -> Array:
    """Rows (ascending) outside of which both tables have the same vectors. Rows that one of them lacks are left out."""
    both = min(old.entry.rows, new.entry.rows)
    deltas = zip(old.entry.deltas, new.entry.deltas, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].digest == pair[1].digest, deltas))
    found = [np.empty(0, ROW), *old.written_rows(shared), *new.written_rows(shared), *_other_blocks(old, new)]
    rows = distinct(*found)
    return rows[: np.searchsorted(rows, both)]


def _other_blocks(old: StoredTable, new: StoredTable) -> list[Array]:
    """The rows of blocks that are not the same part in both bases; a fold or a training lies between."""
    if old.entry.base.digest == new.entry.base.digest:
        return []
    ours, theirs = old.index, new.index
    if ours.block != theirs.block:
        return [np.arange(max(ours.rows, theirs.rows), dtype=ROW)]
    shared = min(len(ours.parts), len(theirs.parts))
    same = [ours.parts[number].digest == theirs.parts[number].digest for number in range(shared)]
    same += [False] * (max(len(ours.parts), len(theirs.parts)) - shared)
    starts = (number * ours.block for number, is_same in enumerate(same) if not is_same)
    return [np.arange(first, first + ours.block, dtype=ROW) for first in starts]


def differing(old: StoredTable, new: StoredTable, rows: Array) -> Array:
    """Of these rows (ascending, both tables have them), those whose vectors differ in any bit."""
    runs = (rows[first : first + RUN_ROWS] for first in range(0, rows.shape[0], RUN_ROWS))
    is_other = [(old.take(run).view(np.uint32) != new.take(run).view(np.uint32)).any(1) for run in runs]
    found: Array = rows[np.concatenate([np.empty(0, np.bool_), *is_other])]
    return found
