"""Search by the beginning of a label or a display name, whatever the case of its letters.

Every run of labels or names has its order: the places of its texts, sorted by their folded bytes, in a mapped file that
all processes share. Texts stay where the store has them mapped: a search looks at some twenty of them to find where the
prefix begins and ends. Runs are immutable and named by digest, and so are their orders: a night sorts what it brought.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dkge_dist.graph.dictionary import Dictionary, NameTable, fold, folded
from dkge_dist.graph.labels import Labels
from dkge_dist.store.display_names import load_run
from dkge_dist.store.manifest import PartEntry, SegmentEntry
from dkge_dist.store.storage import Storage
from dkge_dist.surfaces.http.mmap_cache import mmap_cached
from dkge_dist.types import ROW, Array

RANKED = 100_000
"""Of more texts with a prefix, those that come first in the alphabet are ranked: one letter may begin millions."""
PLACE_BITS = 20
"""Of a number below RANKED."""
AFTER = b"\xff"
"""Sorts after every text: no UTF-8 has this byte."""


def load_order(folder: Path, digest: str, texts: Labels) -> Array:
    """The places of some texts by their folded bytes: mapped if somebody sorted them before, else sorted and kept."""
    count = len(texts)

    def read(data: Array) -> Array | None:
        order = data.view(ROW) if data.shape[0] == count * np.dtype(ROW).itemsize else None
        # Places that are none would end the process.
        is_sound = order is not None and (not count or (int(order.min()) == 0 and int(order.max()) == count - 1))
        return order if is_sound else None

    return mmap_cached(folder / f"{digest}.order", read, lambda: _sorted(texts), lambda order: [order])


def _sorted(texts: Labels) -> Array:
    import pyarrow.compute as pc

    if not len(texts):
        return np.empty(0, ROW)
    order: Array = pc.sort_indices(folded(texts).to_arrow()).to_numpy().astype(ROW)
    return order


@dataclass(frozen=True)
class _Run:
    """Texts with their order; `rows` are those that they name, in place order."""

    texts: Labels
    order: Array
    rows: Array | int
    """The first row, where rows follow each other."""

    def find(self, prefix: bytes) -> tuple[Array, Array]:
        """Rows with exactly this text, and rows whose text begins with it, in the order of the alphabet."""

        def text(place: int) -> bytes:
            return fold(self.texts[place]).encode("utf-8")

        first = bisect_left(self.order, prefix, key=text)
        # No folded text has a zero byte.
        exact = bisect_left(self.order, prefix + b"\0", lo=first, key=text)
        last = bisect_left(self.order, prefix + AFTER, lo=exact, key=text)
        return self._rows(first, min(exact, first + RANKED)), self._rows(exact, min(last, exact + RANKED))

    def _rows(self, first: int, last: int) -> Array:
        places = self.order[first:last]
        rows: Array = self.rows + places if isinstance(self.rows, int) else self.rows[places]
        return rows


class Completion:
    """Search among the objects of one kind that a snapshot has."""

    def __init__(
        self, names: Dictionary, alive: Array, facts: Array, runs: Sequence[_Run], named: Sequence[_Run]
    ) -> None:
        """`facts` are the numbers of facts by row, to rank by; `named` are runs of display names, the newest first."""
        self.names, self._alive, self._facts = names, alive, facts
        self._runs, self._named = list(runs), list(named)

    @staticmethod
    def of(
        storage: Storage,
        names: Dictionary,
        segments: Sequence[SegmentEntry],
        name_runs: Sequence[PartEntry],
        alive: Array,
        facts: Array,
        folder: Path,
    ) -> Completion:
        """With the orders of all runs, sorted now where nobody did before."""
        runs = [
            _Run(segment.labels, load_order(folder, entry.labels.digest, segment.labels), segment.first_row)
            for segment, entry in zip(names.segments, segments, strict=True)
        ]
        named = []
        for entry in reversed(name_runs):
            table: NameTable = load_run(storage, entry)
            named.append(_Run(table.names, load_order(folder, entry.digest, table.names), table.rows))
        return Completion(names, alive, facts, runs, named)

    def search(self, text: str, limit: int) -> list[int]:
        """Rows whose label or display name begins with a text: exact ones first, then those with most facts."""
        prefix = fold(text).encode("utf-8", "replace")
        exact: list[int] = []
        begun: list[int] = []
        newer: list[Array] = []
        for run in self._runs:
            self._collect(run.find(prefix), limit, exact, begun)
        for run in self._named:
            assert not isinstance(run.rows, int), "names are of chosen rows"
            # A row that a newer run names is not called so any more.
            found = run.find(prefix)
            self._collect((_without(found[0], newer), _without(found[1], newer)), limit, exact, begun)
            newer.append(run.rows)
        return [*self._ranked(set(exact)), *self._ranked(set(begun) - set(exact))][:limit]

    def _ranked(self, rows: set[int]) -> list[int]:
        return sorted(rows, key=lambda row: (-self._count(row), self.names.label(row)))

    def _collect(self, found: tuple[Array, Array], limit: int, exact: list[int], begun: list[int]) -> None:
        for rows, into in zip(found, (exact, begun), strict=True):
            known = rows[rows < self._alive.shape[0]]
            known = known[self._alive[known]]
            if known.shape[0] > limit:
                # Few of many, the rest is not sorted; of those with as many facts, the first in the alphabet.
                order = (self._counts(known) << PLACE_BITS) - np.arange(known.shape[0])
                known = known[np.argpartition(-order, limit - 1)[:limit]]
            into += known.tolist()

    def _counts(self, rows: Array) -> Array:
        counts = np.zeros(rows.shape[0], np.int64)
        is_counted = rows < self._facts.shape[0]
        counts[is_counted] = self._facts[rows[is_counted]]
        return counts

    def _count(self, row: int) -> int:
        return int(self._facts[row]) if row < self._facts.shape[0] else 0


def _without(rows: Array, others: Sequence[Array]) -> Array:
    """Rows that are in none of some ascending lists."""
    for other in others:
        place = np.minimum(np.searchsorted(other, rows), other.shape[0] - 1)
        rows = rows[other[place] != rows] if other.shape[0] else rows
    return rows
