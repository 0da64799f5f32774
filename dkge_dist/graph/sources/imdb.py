"""The daily dumps of IMDB. In: the folder with their `.tsv` or `.tsv.gz` files. Out: who did what in which title.

| file | triples | |
|---|---|---|
| title.basics | none: says which titles there are | required |
| name.basics | person -knownFor-> title; says which people there are | required |
| title.principals | title -category-> person, whatever the categories are | required |
| title.crew | title -director-> person, title -writer-> person | optional |
| title.episode | episode -parent-> series | optional |

Both ends of a triple have to be known; the others are counted and dropped, for dumps do hold dangling keys. What is
kept in memory is one byte per possible key, and in the mode that labels by name the names themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.delimited import Table, read_table
from dkge_dist.graph.sources.files import UTF8_MARK, read_blocks
from dkge_dist.kernels.text import MAX_KEY_SLOTS, copy_fields, decimals, equal_to, key_slots, split_lists
from dkge_dist.types import OFFSET, Array, UsageError

REQUIRED = ("title.basics", "name.basics", "title.principals")
OPTIONAL = ("title.crew", "title.episode")
NULL = "\\N"

UNKNOWN, LEFT_OUT, KEPT = 0, 1, 2


class ImdbSource(Source):
    """Entities are tconst and nconst keys, or with `key="name"` titles and names, where namesakes become one.

    `released_after` keeps the titles that have a startYear greater than that.
    """

    format = "imdb"

    def __init__(self, path: Path, released_after: int | None = None, key: Literal["id", "name"] = "id") -> None:
        super().__init__(path)
        if key not in ("id", "name"):
            raise UsageError(f"key {key!r} is neither 'id' nor 'name'")
        self.released_after = released_after
        self.key = key
        self.files = _dump_files(path)
        self.bytes_total = sum(file.stat().st_size for file in self.files.values())

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        missing = [dump for dump in REQUIRED if dump not in self.files]
        if missing:
            raise SourceError(f"{self.path}: no {' and no '.join(missing)} (.tsv or .tsv.gz) in this folder")
        by_name = self.key == "name"
        reading = _Reading(self, rejects, titles=_Keys("tt", by_name), people=_Keys("nm", by_name))
        reading.read_titles(self.released_after)
        yield from reading.read_people()
        yield from reading.read_principals()
        if "title.crew" in self.files:
            yield from reading.read_crew()
        if "title.episode" in self.files:
            yield from reading.read_episodes()


def _dump_files(path: Path) -> dict[str, Path]:
    """The dumps that `path` holds, by their name without ending."""
    if not path.is_dir():
        raise SourceError(f"{path}: not a folder; the IMDB dumps are several files in one folder")
    found: dict[str, Path] = {}
    for dump in REQUIRED + OPTIONAL:
        present = [file for file in (path / f"{dump}.tsv", path / f"{dump}.tsv.gz") if file.is_file()]
        if len(present) > 1:
            raise SourceError(f"{present[0]}: is there as {present[1].name} too; keep the one that is meant")
        if present:
            found[dump] = present[0]
    return found


class _Keys:
    """The titles, or the people, by the slot of their key: is it known, is it kept, what is it called."""

    def __init__(self, prefix: str, named: bool) -> None:
        self.prefix = prefix
        self.state = np.zeros(0, np.uint8)
        self.names = _Names() if named else None

    def slots(self, keys: Labels) -> Array:
        """The slot of each key, -1 where it is malformed."""
        return key_slots(keys.data, keys.start, keys.stop, self.prefix)

    def add(self, slots: Array, state: Array | int, names: Labels) -> None:
        """Remember keys; of a key that comes twice, what was said last."""
        if slots.shape[0]:
            self.state = _grown(self.state, int(slots.max()) + 1, MAX_KEY_SLOTS)
            self.state[slots] = state
            if self.names is not None:
                self.names.add(slots, names)

    def states(self, slots: Array) -> Array:
        """UNKNOWN, LEFT_OUT or KEPT for each slot."""
        states = np.zeros(slots.shape[0], np.uint8)
        inside = slots < self.state.shape[0]
        states[inside] = self.state[slots[inside]]
        return states

    def labels(self, keys: Labels, slots: Array) -> Labels:
        """What keys that were added are called in triples; `slots` are those of `keys`."""
        return keys if self.names is None else self.names.labels(slots)


class _Names:
    """Names by slot. The slots point into a dense list, because only one possible key in four or so is in use."""

    def __init__(self) -> None:
        self.count = 0
        self.number_of_slot = np.zeros(0, np.int32)
        self.offsets = np.zeros(1, OFFSET)
        self.data = np.zeros(0, np.uint8)

    def add(self, slots: Array, names: Labels) -> None:
        count = self.count + len(names)
        self.number_of_slot = _grown(self.number_of_slot, int(slots.max()) + 1, MAX_KEY_SLOTS)
        self.number_of_slot[slots] = np.arange(self.count, count, dtype=np.int32)
        self.offsets = _grown(self.offsets, count + 1)
        first = int(self.offsets[self.count])
        self.offsets[self.count + 1 : count + 1] = first + np.cumsum(names.stop - names.start)
        # Labels handed out before look at the old bytes; these never change, whether they moved or not.
        self.data = _grown(self.data, int(self.offsets[count]))
        copy_fields(names.data, names.start, names.stop, self.data[first:])
        self.count = count

    def labels(self, slots: Array) -> Labels:
        numbers = self.number_of_slot[slots]
        return Labels(self.data, self.offsets[numbers], self.offsets[numbers + 1])


def _grown(array: Array, size: int, limit: int | None = None) -> Array:
    """`array` with room for `size` elements, new ones 0; at least doubled, so that copying stays cheap."""
    if size <= array.shape[0]:
        return array
    room = max(size, 2 * array.shape[0])
    # Memory of zeros is not occupied before it is written, so a stray high key costs addresses only.
    larger = np.zeros(room if limit is None else min(room, limit), array.dtype)
    larger[: array.shape[0]] = array
    return larger


class _Reading:
    """One pass over the dumps; titles and people first, because all the rest refers to them."""

    def __init__(self, source: ImdbSource, rejects: Rejects, titles: _Keys, people: _Keys) -> None:
        self.source = source
        self.counts = source.counts
        self.rejects = rejects
        self.titles = titles
        self.people = people

    def read_titles(self, released_after: int | None) -> None:
        columns = ["tconst", "primaryTitle"] + ([] if released_after is None else ["startYear"])
        for path, table in self._tables("title.basics", columns):
            if released_after is not None:
                table, state = self._released(path, table, released_after)
            else:
                state = np.full(len(table.lines), KEPT, np.uint8)
            table, slots, good = self._well_formed(path, table, {0: self.titles})
            self.titles.add(slots[0], state[good], self._named(table.columns[0], table.columns[1]))

    def read_people(self) -> Iterator[TripleBatch]:
        for path, table in self._tables("name.basics", ["nconst", "primaryName", "knownForTitles"]):
            table, slots, _ = self._well_formed(path, table, {0: self.people})
            self.people.add(slots[0], KEPT, self._named(table.columns[0], table.columns[1]))
            items, people = self._list_items(path, table, 2, self.titles)
            heads = table.columns[0].take(people)
            yield from self._triples((self.people, heads), "knownFor", (self.titles, items))

    def read_principals(self) -> Iterator[TripleBatch]:
        for path, table in self._tables("title.principals", ["tconst", "nconst", "category"]):
            category = table.columns[2]
            table = self._without(path, table, _is_missing(category), category, "no category")
            table, _, _ = self._well_formed(path, table, {0: self.titles, 1: self.people})
            titles, people, category = table.columns
            yield from self._triples((self.titles, titles), category, (self.people, people))

    def read_crew(self) -> Iterator[TripleBatch]:
        for path, table in self._tables("title.crew", ["tconst", "directors", "writers"]):
            table, _, _ = self._well_formed(path, table, {0: self.titles})
            for column, relation in ((1, "director"), (2, "writer")):
                items, titles = self._list_items(path, table, column, self.people)
                heads = table.columns[0].take(titles)
                yield from self._triples((self.titles, heads), relation, (self.people, items))

    def read_episodes(self) -> Iterator[TripleBatch]:
        for path, table in self._tables("title.episode", ["tconst", "parentTconst"]):
            orphan = _is_missing(table.columns[1])
            self.counts["episodes without a series skipped"] += int(orphan.sum())
            table, _, _ = self._well_formed(path, _take(table, ~orphan), {0: self.titles, 1: self.titles})
            episodes, series = table.columns
            yield from self._triples((self.titles, episodes), "parent", (self.titles, series))
