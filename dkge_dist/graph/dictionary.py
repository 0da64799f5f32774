"""Labels and their permanent rows, and the display names of rows. Append-only: a row never gets another label.

Rows are kept in immutable segments: a large one, and smaller ones for labels of later snapshots, so that the cost of a
night's new labels does not follow the size of the graph. Small segments are merged into larger ones, which keeps their
number logarithmic.

A label is the identity of an entity or a relation and never changes. A display name may change, several rows may have
the same, and most graphs have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch
from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.labels import GrowingTable, LabelTable, Queries, lookup, make_slots
from dkge_dist.kernels.text import copy_fields, last_byte
from dkge_dist.types import MAX_ROWS, OFFSET, ROW, Array, DkgeError

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
    wide = np.flatnonzero(last_byte(names.data, names.start, names.stop, FIRST_WIDE, 255) >= 0)
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


def _queries(labels: Labels) -> Queries:
    return Queries.of(labels.data, labels.start, labels.stop)


class Segment:
    """An immutable run of rows, from `first_row` on."""

    def __init__(self, first_row: int, table: LabelTable) -> None:
        self.first_row = first_row
        self.table = table

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.table.digest.shape[0])

    @property
    def labels(self) -> Labels:
        """The labels in row order."""
        return Labels(self.table.data, self.table.offset[:-1], self.table.offset[1:])


def merge(segments: Sequence[Segment]) -> Segment:
    """Consecutive segments as one."""
    tables = [segment.table for segment in segments]
    digest = np.concatenate([table.digest for table in tables])
    data = np.concatenate([table.data[int(table.offset[0]) : int(table.offset[-1])] for table in tables])
    sizes = np.concatenate([np.diff(table.offset) for table in tables])
    offset = np.concatenate([np.zeros(1, OFFSET), np.cumsum(sizes)])
    return Segment(segments[0].first_row, LabelTable(data, offset, digest, make_slots(digest)))


def merge_small(segments: Sequence[Segment]) -> list[Segment]:
    """Merge segments until each is at least twice as long as the next: few to search, rarely rewritten."""
    out: list[Segment] = []
    for segment in segments:
        out.append(segment)
        while len(out) > 1 and out[-2].count < 2 * out[-1].count:
            out[-2:] = [merge(out[-2:])]
    return out


class Named(NamedTuple):
    """A label with its display name, if it has one."""

    label: str
    name: str | None = None

    def __str__(self) -> str:
        return self.label if self.name is None else f"{self.name} ({self.label})"


class Dictionary:
    """Maps labels to rows and rows to labels; `encode` adds new labels.

    `display_names` are the readable names of rows, None where there are none.
    """

    def __init__(
        self, segments: Sequence[Segment] = (), noun: str = "entity", display_names: DisplayNames | None = None
    ) -> None:
        self.noun = noun
        self.display_names = display_names
        self.segments = list(segments)
        self._known = segments[-1].first_row + segments[-1].count if segments else 0
        self._new = GrowingTable(self._known)

    def __len__(self) -> int:
        return self._known + self._new.count

    def lookup(self, labels: Labels) -> Array:
        """The row of each label, -1 for unknown labels."""
        return self._lookup(_queries(labels))

    def encode(self, labels: Labels) -> Array:
        """The row of each label; unknown labels get the next free rows, in order of appearance."""
        queries = _queries(labels)
        rows = self._lookup(queries, new=False)
        if len(self) + len(labels) > MAX_ROWS:
            raise DkgeError(f"over {MAX_ROWS:,} different {self.noun} labels")
        self._new.insert(queries, rows)
        return rows

    def _lookup(self, queries: Queries, new: bool = True) -> Array:
        rows = np.full(queries.start.shape[0], -1, ROW)
        for segment in self.segments:
            lookup(queries, segment.table, segment.first_row, rows)
        if new and self._new.count:
            lookup(queries, self._new.table, self._new.first_row, rows)
        return rows

    @property
    def grown(self) -> list[Segment]:
        """All segments, with the labels that `encode` added, to be stored."""
        if not self._new.count:
            return merge_small(self.segments)
        # The growing table has slots for its largest batch; what is stored has as many as its labels need.
        table = self._new.table
        table = table._replace(slots=make_slots(table.digest))
        return merge_small([*self.segments, Segment(self._known, table)])

    def label(self, row: int) -> str:
        """The label of one row."""
        for segment in (*self.segments, Segment(self._known, self._new.table)):
            if segment.first_row <= row < segment.first_row + segment.count:
                return segment.labels[row - segment.first_row]
        raise IndexError(f"{self.noun} row {row} of {len(self)}")

    def labels(self, rows: Array) -> list[str]:
        """The labels of `rows`, as strings."""
        return [self.label(int(row)) for row in rows]

    def names(self, rows: Array) -> list[str | None]:
        """The display names of `rows`, None for those without."""
        return [None] * len(rows) if self.display_names is None else self.display_names.of(rows.tolist())

    def named(self, row: int) -> Named:
        """A row as people are shown it."""
        return Named(self.label(row), *self.names(np.array([row])))

    def called(self, row: int) -> str:
        """What a sentence calls a row: its display name, with the label if others have it too; or the label alone."""
        named = self.named(row)
        if named.name is None or self.display_names is None:
            return named.label
        return named.name if len(self.display_names.find(named.name)) == 1 else str(named)

    @cached_property
    def digests(self) -> Array:
        """The digest of every stored row; consistent samples are drawn by digests, never by row numbers."""
        return np.concatenate([np.empty(0, np.uint64), *(s.table.digest for s in self.segments)])

    def digests_of(self, rows: Array) -> Array:
        """The digests of `rows`, new ones included, at a cost that follows their number."""
        out = np.empty(rows.shape[0], np.uint64)
        for segment in (*self.segments, Segment(self._known, self._new.table)):
            here = (rows >= segment.first_row) & (rows < segment.first_row + segment.count)
            out[here] = segment.table.digest[rows[here] - segment.first_row]
        return out
