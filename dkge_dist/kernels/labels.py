"""Open-addressing hash tables from labels to rows. A hit compares bytes: labels with equal digests are told apart."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange, subkernel
from dkge_dist.types import OFFSET, ROW, Array

EMPTY = 0
"""A free slot; taken slots hold row + 1."""


BLOCK = 64
"""Look-ups whose memory is prefetched together."""


class Queries(NamedTuple):
    """Labels to look up: `data[start[i]:stop[i]]`, with their digests."""

    data: Array
    start: Array
    stop: Array
    digest: Array

    @staticmethod
    def of(data: Array, start: Array, stop: Array) -> Queries:
        """With the digests computed, as read-only arrays."""
        return Queries(
            as_readonly(data), as_readonly(start), as_readonly(stop), as_readonly(digests(data, start, stop))
        )

    def take(self, where: Array) -> Queries:
        """The queries at `where`."""
        return Queries(self.data, *(as_readonly(column[where]) for column in self[1:]))


class LabelTable(NamedTuple):
    """Distinct labels `data[offset[i]:offset[i + 1]]`, their digests, and the slots that find them."""

    data: Array
    offset: Array
    digest: Array
    slots: Array


@subkernel
def _same(data, start, stop, other, other_start, other_stop):  # type: ignore[no-untyped-def]
    if stop - start != other_stop - other_start:
        return False
    for k in range(stop - start):
        if data[start + k] != other[other_start + k]:
            return False
    return True


@subkernel
def _find(queries, i, table):  # type: ignore[no-untyped-def]
    """Slot of query i: the one that holds it, or the free one where it would be."""
    mask = np.uint64(table.slots.shape[0] - 1)
    digest = queries.digest[i]
    at = digest & mask
    while table.slots[at] != EMPTY:
        row = np.int64(table.slots[at]) - 1
        if table.digest[row] == digest and _same(
            queries.data, queries.start[i], queries.stop[i], table.data, table.offset[row], table.offset[row + 1]
        ):
            break
        at = (at + np.uint64(1)) & mask
    return at


@subkernel
def _prefetch(queries, begin, end, table, row):  # type: ignore[no-untyped-def]
    """Load into the cache what looking up a block of queries will read: slots, then offsets, then labels.

    A look-up waits for each of these in turn; reads of one kind do not depend on each other, so doing them for a whole
    block hides most of the latency of a table that no cache holds. The result only keeps the compiler from removing
    the reads.
    """
    mask = np.uint64(table.slots.shape[0] - 1)
    for k in range(end - begin):
        row[k] = np.int64(table.slots[queries.digest[begin + k] & mask]) - 1
    seen = np.int64(0)
    for k in range(end - begin):
        if row[k] >= 0:
            seen += np.int64(table.digest[row[k]] & np.uint64(1))
            row[k] = table.offset[row[k]]
    for k in range(end - begin):
        if row[k] >= 0 and row[k] < table.data.shape[0]:
            seen += table.data[row[k]]
    return seen


@parallel_kernel
def _lookup(queries, table, first_row, out):  # type: ignore[no-untyped-def]
    blocks = (out.shape[0] + BLOCK - 1) // BLOCK
    seen = np.empty(blocks, np.int64)
    for block in prange(blocks):
        begin, end = block * BLOCK, min(out.shape[0], (block + 1) * BLOCK)
        seen[block] = _prefetch(queries, begin, end, table, np.empty(BLOCK, np.int64))
        for i in range(begin, end):
            if out[i] < 0:
                at = _find(queries, i, table)
                if table.slots[at] != EMPTY:
                    out[i] = first_row + np.int64(table.slots[at]) - 1


@kernel
def _insert(queries, table, count, first_row, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        at = _find(queries, i, table)
        if table.slots[at] == EMPTY:
            begin = table.offset[count]
            size = queries.stop[i] - queries.start[i]
            for k in range(size):
                table.data[begin + k] = queries.data[queries.start[i] + k]
            table.offset[count + 1] = begin + size
            table.digest[count] = queries.digest[i]
            count += 1
            table.slots[at] = count
        out[i] = first_row + np.int64(table.slots[at]) - 1
    return count


@kernel
def _fill_slots(row_digest, slots):  # type: ignore[no-untyped-def]
    mask = np.uint64(slots.shape[0] - 1)
    for row in range(row_digest.shape[0]):
        at = row_digest[row] & mask
        while slots[at] != EMPTY:
            at = (at + np.uint64(1)) & mask
        slots[at] = row + 1


def is_sound(table: LabelTable) -> bool:
    """Can it be searched? Kernels check no bounds, and a search ends at a free slot."""
    rows, offset = table.digest.shape[0], table.offset
    if offset.shape[0] != rows + 1 or rows >= table.slots.shape[0] or np.count_nonzero(table.slots) != rows:
        return False
    is_within = offset[0] >= 0 and offset[-1] <= table.data.shape[0]
    return bool(table.slots.max() <= rows and is_within and (offset[1:] >= offset[:-1]).all())


def _slot_count(rows: int) -> int:
    """A power of two that leaves at least half of the slots free."""
    return 1 << max(4, int(2 * rows - 1).bit_length())


def make_slots(row_digest: Array, room: int = 0) -> Array:
    """The slots of distinct labels with these digests, with room for `room` more."""
    slots = np.zeros(_slot_count(row_digest.shape[0] + room), np.uint32)
    _fill_slots(as_readonly(row_digest), slots)
    return slots


def lookup(queries: Queries, table: LabelTable, first_row: int, out: Array) -> None:
    """Fill `out` where it is negative and the label is in `table`; `first_row` is the row of the table's first."""
    _lookup(queries, LabelTable(*(as_readonly(column) for column in table)), first_row, out)


class GrowingTable:
    """A label table that grows by doubling; rows are given in order of insertion."""

    def __init__(self, first_row: int) -> None:
        self.first_row = first_row
        self.count = 0
        self._room = LabelTable(
            np.empty(256, np.uint8), np.zeros(17, OFFSET), np.empty(16, np.uint64), make_slots(np.empty(0, np.uint64))
        )

    @property
    def table(self) -> LabelTable:
        """What was inserted so far."""
        data, offset, digest, slots = self._room
        return LabelTable(data[: offset[self.count]], offset[: self.count + 1], digest[: self.count], slots)

    def insert(self, queries: Queries, out: Array) -> None:
        """Fill `out` where it is negative: with the row of a label that was inserted before, else with the next row."""
        # Most labels of a batch are known: look those up on all threads, then insert the few others in order.
        lookup(queries, self.table, self.first_row, out)
        missing = np.flatnonzero(out < 0)
        if missing.shape[0] == 0:
            return
        fresh = queries.take(missing)
        self._reserve(missing.shape[0], int((fresh.stop - fresh.start).sum()))
        rows = np.empty(missing.shape[0], ROW)
        self.count = _insert(fresh, self._room, self.count, self.first_row, rows)
        out[missing] = rows

    def _reserve(self, labels: int, size: int) -> None:
        data, offset, digest, slots = self._room
        needed = self.count + labels
        if _slot_count(needed) > slots.shape[0]:
            slots = make_slots(digest[: self.count], labels)
        self._room = LabelTable(
            _grown(data, int(offset[self.count]) + size), _grown(offset, needed + 1), _grown(digest, needed), slots
        )


def _grown(array: Array, size: int) -> Array:
    if size <= array.shape[0]:
        return array
    bigger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    bigger[: array.shape[0]] = array
    return bigger
