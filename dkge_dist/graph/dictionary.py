"""Labels and their permanent rows. Append-only: a row is never given to another label.

Rows are kept in immutable segments: a large one, and smaller ones for labels of later snapshots, so that the cost of a
night's new labels does not follow the size of the graph. Small segments are merged into larger ones, which keeps their
number logarithmic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.display_names import DisplayNames
from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.labels import GrowingTable, LabelTable, Queries, lookup, make_slots
from dkge_dist.types import MAX_ROWS, OFFSET, ROW, Array, DkgeError


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
    digest = np.concatenate([segment.table.digest for segment in segments])
    data = np.concatenate([segment.table.data[_used(segment.table)] for segment in segments])
    sizes = np.concatenate([np.diff(segment.table.offset) for segment in segments])
    offset = np.zeros(sizes.shape[0] + 1, OFFSET)
    np.cumsum(sizes, out=offset[1:])
    return Segment(segments[0].first_row, LabelTable(data, offset, digest, make_slots(digest)))


def _used(table: LabelTable) -> slice:
    return slice(int(table.offset[0]), int(table.offset[-1]))


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
        return Named(self.label(row), self.display_names.of([row])[0] if self.display_names is not None else None)

    def called(self, row: int) -> str:
        """What a sentence calls a row: its display name, with the label if others have it too; or the label alone."""
        name = self.display_names.of([row])[0] if self.display_names is not None else None
        if name is None or self.display_names is None:
            return self.label(row)
        return name if len(self.display_names.find(name)) == 1 else f"{name} ({self.label(row)})"

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
