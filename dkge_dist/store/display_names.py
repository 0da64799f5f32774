"""Display names in a store: runs of names by row, with an index by hash. Mapped, so that a few are soon found.

Runs as in `store.parts`, of which the newest that names a row counts: a night writes what it names. A name that was
taken away is an empty one in a newer run, until that is merged into the oldest. A run is one part:

| column | |
|---|---|
| row, name | ascending by row |
| hash, place | the hash of every folded name, ascending, and which of the names it is of |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce

import numpy as np
import pyarrow as pa

from dkge_dist.graph.dictionary import NamedRow, NameTable, fold, name_hash, name_hashes
from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.text import same_fields
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import RUN_GROWTH, numbers_of, read_columns, save_columns
from dkge_dist.store.storage import Staging, Storage, StoreError

NAME_TYPES = {"row": pa.int32(), "name": pa.large_string(), "hash": pa.uint64(), "place": pa.int32()}
FEW = 1000
"""Names are few if the store has so many times as many."""
CACHED = 1 << 16
"""Names that are remembered."""


def add_names(staging: Staging, runs: Sequence[PartEntry], names: NameTable) -> list[PartEntry]:
    """The runs with more names, which replace earlier ones of the same rows."""
    kept = list(runs)
    if not names.count:
        return kept
    while kept and kept[-1].rows < RUN_GROWTH * names.count:
        names = load_run(staging.storage, kept.pop()).then(names)
    if not kept:
        names = names.without_removals()
    return [*kept, _save_run(staging, names)] if names.count else kept


def _save_run(staging: Staging, names: NameTable) -> PartEntry:
    hashes = name_hashes(names.names)
    order = np.argsort(hashes)
    columns = {
        "row": names.rows,
        "name": names.names.to_arrow(),
        "hash": hashes[order],
        "place": order.astype(np.int32),
    }
    return save_columns(staging, columns)


def load_run(storage: Storage, entry: PartEntry) -> NameTable:
    """All names of a run, verified and checked: kernels take their places on trust."""
    row, name, _, _ = read_columns(storage, entry, NAME_TYPES)
    rows = numbers_of(row)
    try:
        name.validate(full=True)
    except pa.ArrowInvalid as error:
        raise StoreError(f"{storage}: part {entry.digest} is damaged: {error}") from None
    if (rows[1:] <= rows[:-1]).any() or (rows[:1] < 0).any():
        raise StoreError(f"{storage}: part {entry.digest} is damaged: its rows are not ascending")
    return NameTable(rows, Labels.from_arrow(name))


def check_run(storage: Storage, entry: PartEntry, rows: int) -> Iterator[str]:
    """What checksums of files cannot tell: that names and their index fit together."""
    names = load_run(storage, entry)
    _, _, hash_column, place_column = read_columns(storage, entry, NAME_TYPES)
    found, place = numbers_of(hash_column), numbers_of(place_column)
    if names.count and int(names.rows[-1]) >= rows:
        yield f"part {entry.digest} names rows that no label has"
    if not np.array_equal(np.sort(place), np.arange(names.count)):
        yield f"part {entry.digest}: the index of its names is none"
    elif not np.array_equal(name_hashes(names.names)[place], found) or (found[1:] < found[:-1]).any():
        yield f"part {entry.digest}: names are not found by their hashes"


class _Run:
    """One run, mapped. Its numbers are checked as they are used: a file may be whole and make no sense."""

    def __init__(self, storage: Storage, entry: PartEntry) -> None:
        row, name, hashes, place = read_columns(storage, entry, NAME_TYPES)
        self.digest = entry.digest
        self.row, self.hash, self.place = numbers_of(row), numbers_of(hashes), numbers_of(place)
        self.text = Labels.from_arrow(name)

    def place_of(self, row: int) -> int | None:
        """Where a row is, None if this run does not name it."""
        place = int(np.searchsorted(self.row, row))
        return place if place < self.row.shape[0] and self.row[place] == row else None

    def name(self, place: int) -> str:
        """The name at a place."""
        if not 0 <= place < self.row.shape[0]:
            raise StoreError(f"part {self.digest} is damaged: it has no name {place}")
        start, stop = int(self.text.start[place]), int(self.text.stop[place])
        if not 0 <= start <= stop <= self.text.data.shape[0]:
            raise StoreError(f"part {self.digest} is damaged: name {place} lies outside of it")
        try:
            return self.text.data[start:stop].tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise StoreError(f"part {self.digest} is damaged: name {place}: {error}") from None

    def hashed(self, wanted: int) -> Iterator[NamedRow]:
        """The rows whose names have a hash."""
        at = int(np.searchsorted(self.hash, np.uint64(wanted)))
        while at < self.hash.shape[0] and self.hash[at] == wanted:
            place = int(self.place[at])
            name = self.name(place)
            yield NamedRow(int(self.row[place]), name)
            at += 1


class StoredNames:
    """The display names of one kind of objects (`graph.display_names.DisplayNames`). Opened when first asked."""

    def __init__(self, storage: Storage, entries: Sequence[PartEntry]) -> None:
        self._storage, self._entries = storage, list(entries)
        self._runs: list[_Run] | None = None
        # Sentences about evidence name the same rows again and again.
        self._name_of, self._rows_of = lru_cache(CACHED)(self._read_name), lru_cache(CACHED)(self._read_rows)

    def of(self, rows: Sequence[int]) -> list[str | None]:
        """The name of each row, None for those without."""
        return [self._name_of(row) for row in rows]

    def find(self, name: str) -> list[NamedRow]:
        """All rows with this name, whatever the case of its letters."""
        return list(self._rows_of(name))

    def _read_name(self, row: int) -> str | None:
        for run in self._opened():
            place = run.place_of(row)
            if place is not None:
                return run.name(place) or None
        return None

    def _read_rows(self, name: str) -> tuple[NamedRow, ...]:
        if not name:
            return ()
        runs, wanted, folded = self._opened(), name_hash(name), fold(name)
        return tuple(
            found
            for number, run in enumerate(runs)
            for found in run.hashed(wanted)
            if fold(found.name) == folded and all(newer.place_of(found.row) is None for newer in runs[:number])
        )

    def table(self) -> NameTable:
        """All names at once."""
        runs = [load_run(self._storage, entry) for entry in self._entries]
        return reduce(NameTable.then, runs or [NameTable.empty()]).without_removals()

    def changed(self, given: NameTable) -> NameTable:
        """Those of the given names that are not so already. Few are looked up one by one, many compared at once."""
        if given.count * FEW < sum(entry.rows for entry in self._entries):
            known_names = self.of(given.rows.tolist())
            return given.take(
                np.array([(one or "") != other for one, other in zip(known_names, given.names, strict=True)], bool)
            )
        is_same = given.is_removal
        for entry in self._entries:
            # A later run overrules what an earlier one said.
            known = load_run(self._storage, entry)
            place = np.minimum(np.searchsorted(known.rows, given.rows), known.count - 1)
            here = np.flatnonzero(known.rows[place] == given.rows)
            one, other = given.names.take(here), known.names.take(place[here])
            is_same[here] = same_fields(one.data, one.start, one.stop, other.data, other.start, other.stop)
        return given.take(~is_same)

    def _opened(self) -> list[_Run]:
        """The runs, newest first."""
        if self._runs is None:
            self._runs = [_Run(self._storage, entry) for entry in reversed(self._entries)]
        return self._runs
