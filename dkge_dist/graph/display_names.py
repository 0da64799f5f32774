"""Display names: readable names of rows, shown beside labels and accepted in questions. Pure: no files, no store.

A label is the identity of an entity or a relation and never changes. A display name may change, several rows may have
the same, and most graphs have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch
from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.text import any_byte, copy_fields
from dkge_dist.types import OFFSET, ROW, Array

MAX_RANK = 255
FIRST_WIDE = 128
"""Bytes from here on belong to characters beyond ASCII."""


class NamedRow(NamedTuple):
    """A row and its display name."""

    row: int
    name: str


class DisplayNames(Protocol):
    """The display names of one kind of objects, wherever they are kept."""

    def of(self, rows: Sequence[int]) -> list[str | None]:
        """The name of each row, None for those without. Costs follow the number of rows asked for."""

    def find(self, name: str) -> list[NamedRow]:
        """All rows with this name, whatever the case of its letters."""

    def table(self) -> NameTable:
        """All names at once."""


@dataclass(frozen=True)
class NameTable:
    """Display names of some rows, which are ascending and distinct. An empty name: the row has none any more."""

    rows: Array
    names: Labels

    @property
    def count(self) -> int:
        """How many names."""
        return int(self.rows.shape[0])

    @staticmethod
    def of(rows: Array, names: Labels, rank: Array | None = None) -> NameTable:
        """Of several names of a row the one with the lowest rank counts; of several of these, the last."""
        key = rows.astype(np.int64)
        if rank is not None:
            key = (key << 8) | (MAX_RANK - rank.astype(np.int64))
        order = np.argsort(key, kind="stable")
        ordered = rows[order]
        is_last = np.ones(order.shape[0], bool)
        is_last[:-1] = ordered[1:] != ordered[:-1]
        order = order[is_last]
        return NameTable(rows[order].astype(ROW), names.take(order))

    @staticmethod
    def empty() -> NameTable:
        """No names."""
        return NameTable(np.empty(0, ROW), Labels.from_strings([]))

    def then(self, newer: NameTable) -> NameTable:
        """With newer names, which replace those of the same rows."""
        names = Labels.concat([self.names, newer.names])
        return NameTable.of(np.concatenate([self.rows, newer.rows]), names)

    @property
    def is_removal(self) -> Array:
        """Which rows are to have no name any more."""
        removed: Array = self.names.start == self.names.stop
        return removed

    def without_removals(self) -> NameTable:
        """The names alone, where there is nothing that could be removed."""
        return self.take(~self.is_removal)

    def take(self, where: Array) -> NameTable:
        """The names at `where` (a mask, or ascending places)."""
        return NameTable(self.rows[where], self.names.take(where))


def names_of_rows(batches: Sequence[NameBatch], rows: Array) -> NameTable:
    """The names that batches give, by the row of each of their labels; -1: the label has none."""
    names = Labels.concat([batch.name for batch in batches])
    rank = np.concatenate([np.empty(0, np.uint8), *(batch.ranks for batch in batches)])
    known = rows >= 0
    return NameTable.of(rows[known], names.take(known), rank[known])


def fold(name: str) -> str:
    """A name as it is compared without regard to case."""
    return name.replace("\0", " ").casefold()


def folded(names: Labels) -> Labels:
    """The same for many: bytes at once where all characters are ASCII, the others in one long string."""
    data = names.data.copy()
    data[data == 0] = ord(" ")
    data += ((data >= ord("A")) & (data <= ord("Z"))).astype(np.uint8) << 5
    wide = np.flatnonzero(any_byte(names.data, names.start, names.stop, FIRST_WIDE, 255))
    if not wide.shape[0]:
        return Labels(data, names.start, names.stop)
    lower = Labels(data, names.start, names.stop)
    return lower.replaced(wide, _folded_wide(lower.take(wide)))


def _folded_wide(names: Labels) -> Labels:
    """Folding changes lengths: names stand apart by zeros, which none of them holds, and are found again by these."""
    ends = np.cumsum(names.stop - names.start + 1)
    joined = np.empty(int(ends[-1]), np.uint8)
    padded = np.append(names.data, np.uint8(0))
    copy_fields(padded, names.start, names.stop + 1, joined)
    joined[ends - 1] = 0
    data = np.frombuffer(joined.tobytes().decode("utf-8").casefold().encode("utf-8"), np.uint8)
    stop = np.flatnonzero(data == 0).astype(OFFSET)
    return Labels(data, np.append(np.zeros(1, OFFSET), stop[:-1] + 1), stop)


def name_hashes(names: Labels) -> Array:
    """What names are looked up by: the same for names that differ in case only."""
    lower = folded(names)
    return digests(lower.data, lower.start, lower.stop)


def name_hash(name: str) -> int:
    """The same for one."""
    return int(name_hashes(Labels.from_strings([name]))[0])
