"""Display names in a store: runs of names by row, with an index by hash. Mapped, so that a few are soon found.

A run is at least four times as long as the next one, and the newest that names a row counts: a night writes what it
names, and what was written once is rarely written again. A name that was taken away is an empty one in a newer run,
until that is merged into the oldest. A run is one part:

| column | |
|---|---|
| row, name | ascending by row |
| hash, place | the hash of every folded name, ascending, and which of the names it is of |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, reduce
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from dkge_dist.graph.display_names import NamedRow, NameTable, fold, name_hash, name_hashes
from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.text import same_fields
from dkge_dist.store import verify
from dkge_dist.store.chunks import CHUNK_BYTES, SMALL_BYTES, ChunkedColumn, ChunkedPart, chunk_sums
from dkge_dist.store.columns import columns_of, numbers_of, read_columns, write_columns
from dkge_dist.store.manifest import NameRunEntry, PartEntry
from dkge_dist.store.mapping import map_file
from dkge_dist.store.parts import add_part
from dkge_dist.store.runs import TIMES
from dkge_dist.store.storage import Staging, Storage, StoreError
from dkge_dist.store.verify import DamagedPartError
from dkge_dist.types import Array

NAME_TYPES = {"row": pa.int32(), "name": pa.large_string(), "hash": pa.uint64(), "place": pa.int32()}
FEW = 1000
"""Names are few if the store has so many times as many."""
CACHED = 1 << 16
"""Names that are remembered."""
Found = TypeVar("Found")


def add_names(staging: Staging, runs: Sequence[NameRunEntry], names: NameTable) -> list[NameRunEntry]:
    """The runs with more names, which replace earlier ones of the same rows."""
    kept = list(runs)
    if not names.count:
        return kept
    while kept and kept[-1].names.rows < TIMES * names.count:
        names = load_run(staging.storage, kept.pop()).then(names)
    if not kept:
        names = names.without_removals()
    return [*kept, _save_run(staging, names)] if names.count else kept


def _save_run(staging: Staging, names: NameTable) -> NameRunEntry:
    hashes = name_hashes(names.names)
    order = np.argsort(hashes)
    columns = {
        "row": names.rows,
        "name": names.names.to_arrow(),
        "hash": hashes[order],
        "place": order.astype(np.int32),
    }
    sums: list[Array] = []

    def write(path: Path) -> None:
        write_columns(path, columns)
        size = path.stat().st_size
        if size > SMALL_BYTES:
            sums.append(chunk_sums(map_file(path, size)))

    part = PartEntry.of(verify.add_part(staging, write), names.count)
    return NameRunEntry(names=part, sums=add_part(staging, {"sum": sums[0]}) if sums else None)


def load_run(storage: Storage, entry: NameRunEntry) -> NameTable:
    """All names of a run, verified and checked: kernels take their places on trust."""
    row, name, _, _ = read_columns(storage, entry.names, NAME_TYPES)
    rows = numbers_of(row)
    try:
        name.validate(full=True)
    except pa.ArrowInvalid as error:
        raise StoreError(f"{storage}: part {entry.names.digest} is damaged: {error}") from None
    if (rows[1:] <= rows[:-1]).any() or (rows[:1] < 0).any():
        raise StoreError(f"{storage}: part {entry.names.digest} is damaged: its rows are not ascending")
    return NameTable(rows, Labels.from_arrow(name))


def check_run(storage: Storage, entry: NameRunEntry, rows: int) -> Iterator[str]:
    """What checksums of files cannot tell: that names, their index and the checksums of chunks fit together."""
    names = load_run(storage, entry)
    _, _, hash_column, place_column = read_columns(storage, entry.names, NAME_TYPES)
    found, place = numbers_of(hash_column), numbers_of(place_column)
    if names.count and int(names.rows[-1]) >= rows:
        yield f"part {entry.names.digest} names rows that no label has"
    if not np.array_equal(np.sort(place), np.arange(names.count)):
        yield f"part {entry.names.digest}: the index of its names is none"
    elif not np.array_equal(name_hashes(names.names)[place], found) or (found[1:] < found[:-1]).any():
        yield f"part {entry.names.digest}: names are not found by their hashes"
    ChunkedPart(storage, entry.names, entry.sums).require_all()


class _Run:
    """One run, mapped."""

    def __init__(self, storage: Storage, entry: NameRunEntry) -> None:
        self.part = ChunkedPart(storage, entry.names, entry.sums)
        # What Arrow reads to find the columns: the schema in front, the footer at the end.
        self.part.require(0, CHUNK_BYTES)
        self.part.require(max(0, entry.names.size - CHUNK_BYTES), entry.names.size)
        row, name, hashes, place = columns_of(self.part.path, self.part.data, entry.names, NAME_TYPES)
        self.row, self.hash, self.place = (
            ChunkedColumn(self.part, numbers_of(column)) for column in (row, hashes, place)
        )
        text = Labels.from_arrow(name)
        self.start, self.stop = ChunkedColumn(self.part, text.start), ChunkedColumn(self.part, text.stop)
        self.text, self.text_begin = text.data, self.part.position(text.data)

    def place_of(self, row: int) -> int | None:
        """Where a row is, None if this run does not name it."""
        place = self.row.search(row)
        return place if place < len(self.row) and self.row[place] == row else None

    def name(self, place: int) -> str:
        """The name at a place."""
        if not 0 <= place < len(self.row):
            raise StoreError(f"part {self.part.path} is damaged: it has no name {place}")
        start, stop = self.start[place], self.stop[place]
        if not 0 <= start <= stop <= self.text.shape[0]:
            raise StoreError(f"part {self.part.path} is damaged: name {place} lies outside of it")
        self.part.require(self.text_begin + start, self.text_begin + stop)
        try:
            return self.text[start:stop].tobytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise StoreError(f"part {self.part.path} is damaged: name {place}: {error}") from None

    def hashed(self, wanted: int) -> Iterator[NamedRow]:
        """The rows whose names have a hash."""
        at = self.hash.search(wanted)
        while at < len(self.hash) and self.hash[at] == wanted:
            place = self.place[at]
            name = self.name(place)
            yield NamedRow(self.row[place], name)
            at += 1


class StoredNames:
    """The display names of one kind of objects (`graph.display_names.DisplayNames`). Opened when first asked."""

    def __init__(self, storage: Storage, entries: Sequence[NameRunEntry]) -> None:
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
        return self._reading(lambda runs: _name_in(runs, row))

    def _read_rows(self, name: str) -> tuple[NamedRow, ...]:
        return self._reading(lambda runs: tuple(_found_in(runs, name)))

    def table(self) -> NameTable:
        """All names at once."""
        runs = [load_run(self._storage, entry) for entry in self._entries]
        return reduce(NameTable.then, runs or [NameTable.empty()]).without_removals()

    def changed(self, given: NameTable) -> NameTable:
        """Those of the given names that are not so already. Few are looked up one by one, many compared at once."""
        if given.count * FEW < sum(entry.names.rows for entry in self._entries):
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

    def _reading(self, look: Callable[[list[_Run]], Found]) -> Found:
        """Look at the runs, newest first. A damaged copy of a part that is far away is fetched anew."""
        while True:
            try:
                if self._runs is None:
                    self._runs = [_Run(self._storage, entry) for entry in reversed(self._entries)]
                return look(self._runs)
            except DamagedPartError:
                self._runs = None
                if not any([self._storage.drop_copy(entry.names.part) for entry in self._entries]):
                    raise


def _name_in(runs: Sequence[_Run], row: int) -> str | None:
    for run in runs:
        place = run.place_of(row)
        if place is not None:
            return run.name(place) or None
    return None


def _found_in(runs: Sequence[_Run], name: str) -> Iterator[NamedRow]:
    if not name:
        return
    wanted, folded = name_hash(name), fold(name)
    for number, run in enumerate(runs):
        for found in run.hashed(wanted):
            is_current = all(newer.place_of(found.row) is None for newer in runs[:number])
            if is_current and fold(found.name) == folded:
                yield found
