"""The daily dumps of IMDB. In: the folder with their `.tsv` or `.tsv.gz` files. Out: credits of people in titles.

| file | triples | |
|---|---|---|
| title.basics | none: says which titles there are | required |
| name.basics | person -knownFor-> title; says which people there are | required |
| title.principals | title -category-> person, whatever the categories are | required |
| title.crew | title -director-> person, title -writer-> person | optional |
| title.episode | episode -parent-> series | optional |

primaryTitle and primaryName are display names, unless `key="name"` makes them the labels.

Triples with an unknown end are counted and dropped, because dumps have dangling keys. Memory holds one byte per
possible key, and with `key="name"` the names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.delimited import read_table
from dkge_dist.graph.sources.files import only_file, read_start
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

    def prepare(self) -> None:
        path = self.path
        if not path.is_dir():
            raise SourceError(f"{path}: not a folder; the IMDB dumps are several files in one folder")
        found = {dump: only_file([path / f"{dump}.tsv", path / f"{dump}.tsv.gz"]) for dump in REQUIRED + OPTIONAL}
        self.dumps = {dump: file for dump, file in found.items() if file is not None}
        if self.options.key not in ("id", "name"):
            raise UsageError(f"key {self.options.key!r} is neither 'id' nor 'name'")

    def used_files(self) -> list[Path]:
        return list(self.dumps.values())

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        missing = [dump for dump in REQUIRED if dump not in self.dumps]
        if missing:
            raise SourceError(f"{self.path}: no {' and no '.join(missing)} (.tsv or .tsv.gz) in this folder")
        reading = _Reading(self, rejects)
        yield from reading.read_titles(self.options.released_after)
        yield from reading.read_people()
        yield from reading.read_principals()
        if "title.crew" in self.dumps:
            yield from reading.read_crew()
        if "title.episode" in self.dumps:
            yield from reading.read_episodes()


class _Keys:
    """All titles, or all people, by the slot of their key: known or not, kept or not, and the name if `named`.

    Slots index a dense list of names, because only about one possible key in four is in use.
    """

    def __init__(self, noun: str, prefix: str, named: bool) -> None:
        self.noun, self.prefix, self.named = noun, prefix, named
        self.state = np.zeros(0, np.uint8)
        self.count = 0
        self.number_of_slot = np.zeros(0, np.int32)
        self.offsets = np.zeros(1, OFFSET)
        self.data = np.zeros(0, np.uint8)

    def column(self, keys: Labels) -> _KeyColumn:
        """`keys` with their slots."""
        return _KeyColumn(self, keys, key_slots(keys.data, keys.start, keys.stop, self.prefix))

    def add(self, slots: Array, state: Array | int, names: Labels) -> None:
        """Add keys; the last line about a key counts."""
        if not slots.shape[0]:
            return
        slot_count = int(slots.max()) + 1
        self.state = _grown(self.state, slot_count, MAX_KEY_SLOTS)
        self.state[slots] = state
        if self.named:
            count = self.count + len(names)
            self.number_of_slot = _grown(self.number_of_slot, slot_count, MAX_KEY_SLOTS)
            self.number_of_slot[slots] = np.arange(self.count, count, dtype=np.int32)
            self.offsets = _grown(self.offsets, count + 1)
            first = int(self.offsets[self.count])
            self.offsets[self.count + 1 : count + 1] = first + np.cumsum(names.stop - names.start)
            # Labels returned before refer to the old array, which is never changed.
            self.data = _grown(self.data, int(self.offsets[count]))
            copy_fields(names.data, names.start, names.stop, self.data[first:])
            self.count = count


class _KeyColumn(NamedTuple):
    """A column of keys of titles, or of people. Slot -1: malformed."""

    known: _Keys
    keys: Labels
    slots: Array

    def take(self, where: Array) -> _KeyColumn:
        return _KeyColumn(self.known, self.keys.take(where), self.slots[where])

    def states(self) -> Array:
        """UNKNOWN, LEFT_OUT or KEPT for each key."""
        inside = self.slots < self.known.state.shape[0]
        states = np.full(self.slots.shape[0], UNKNOWN, np.uint8)
        states[inside] = self.known.state[self.slots[inside]]
        return states

    def labels(self) -> Labels:
        """The labels of the keys, all of them added before."""
        if not self.known.named:
            return self.keys
        numbers = self.known.number_of_slot[self.slots]
        return Labels(self.known.data, self.known.offsets[numbers], self.known.offsets[numbers + 1])


def _grown(array: Array, size: int, limit: int | None = None) -> Array:
    """`array` with room for `size` elements, new ones 0; at least doubled, so that copying stays cheap."""
    if size <= array.shape[0]:
        return array
    room = max(size, 2 * array.shape[0])
    # Pages of zeros take no memory until they are written, so a single high key costs address space only.
    larger = np.zeros(room if limit is None else min(room, limit), array.dtype)
    larger[: array.shape[0]] = array
    return larger


class _Rows(NamedTuple):
    """Some lines of a dump, with the columns that were asked for."""

    path: Path
    columns: dict[str, Labels]
    lines: Array

    def take(self, where: Array) -> _Rows:
        columns = {name: column.take(where) for name, column in self.columns.items()}
        return _Rows(self.path, columns, self.lines[where])


class _Reading:
    """One pass over the dumps: titles and people first, because all others refer to them."""

    def __init__(self, source: ImdbSource, rejects: Rejects) -> None:
        self.source = source
        self.rejects = rejects
        self.by_name = source.options.key == "name"
        self.titles = _Keys("title", "tt", self.by_name)
        self.people = _Keys("person", "nm", self.by_name)

    def read_titles(self, released_after: int | None) -> Iterator[TripleBatch]:
        wanted = ["tconst"] + ["primaryTitle"] * self.by_name + ["startYear"] * (released_after is not None)
        for rows in self._rows("title.basics", wanted, "primaryTitle"):
            rows, (titles,) = self._well_formed(rows, {"tconst": self.titles})
            state: Array | int = KEPT if released_after is None else self._release_states(rows, released_after)
            self.titles.add(titles.slots, state, self._names(rows, "tconst", "primaryTitle"))
            yield from self._display_names(rows, "tconst", "primaryTitle", np.broadcast_to(state, len(rows.lines)))

    def read_people(self) -> Iterator[TripleBatch]:
        wanted = ["nconst"] + ["primaryName"] * self.by_name + ["knownForTitles"]
        for rows in self._rows("name.basics", wanted, "primaryName"):
            rows, (people,) = self._well_formed(rows, {"nconst": self.people})
            self.people.add(people.slots, KEPT, self._names(rows, "nconst", "primaryName"))
            yield from self._display_names(rows, "nconst", "primaryName", np.full(len(rows.lines), KEPT))
            titles, owner = self._list_items(rows, "knownForTitles", self.titles)
            yield from self._triples(people.take(owner), "knownFor", titles)

    def read_principals(self) -> Iterator[TripleBatch]:
        for rows in self._rows("title.principals", ["tconst", "nconst", "category"]):
            no_category = _is_missing(rows.columns["category"])
            rows = self._without(rows, no_category, "category", "no category")
            rows, (titles, people) = self._well_formed(rows, {"tconst": self.titles, "nconst": self.people})
            yield from self._triples(titles, rows.columns["category"], people)

    def read_crew(self) -> Iterator[TripleBatch]:
        for rows in self._rows("title.crew", ["tconst", "directors", "writers"]):
            rows, (titles,) = self._well_formed(rows, {"tconst": self.titles})
            for column, relation in (("directors", "director"), ("writers", "writer")):
                people, owner = self._list_items(rows, column, self.people)
                yield from self._triples(titles.take(owner), relation, people)

    def read_episodes(self) -> Iterator[TripleBatch]:
        for rows in self._rows("title.episode", ["tconst", "parentTconst"]):
            orphan = _is_missing(rows.columns["parentTconst"])
            self._count("episodes without a series skipped", orphan)
            keys = {"tconst": self.titles, "parentTconst": self.titles}
            _, (episodes, series) = self._well_formed(rows.take(~orphan), keys)
            yield from self._triples(episodes, "parent", series)

    def _rows(self, dump: str, wanted: list[str], optional: str | None = None) -> Iterator[_Rows]:
        """The lines of a dump below its header, by which the wanted columns are found, and the optional one."""
        path = self.source.dumps[dump]
        header = _header(path)
        if optional in header and optional not in wanted:
            wanted = [*wanted, optional]
        for name in wanted:
            if name not in header:
                raise SourceError(f"{path}:1: no column {name!r}; the columns are: {', '.join(header) or 'none'}")
        for table in read_table(path, len(header), self.source, self.rejects):
            below = table.lines > 1
            columns = {name: table.columns[header.index(name)].take(below) for name in wanted}
            yield _Rows(path, columns, table.lines[below])

    def _well_formed(self, rows: _Rows, keys: dict[str, _Keys]) -> tuple[_Rows, list[_KeyColumn]]:
        """The rows whose keys look like keys, and these columns; the other rows go to the rejects."""
        for name, known in keys.items():
            malformed = known.column(rows.columns[name]).slots < 0
            rows = self._without(rows, malformed, name, f"{name} is no key like {known.prefix}0000001")
        return rows, [known.column(rows.columns[name]) for name, known in keys.items()]

    def _without(self, rows: _Rows, bad: Array, column: str, reason: str) -> _Rows:
        """The other rows; the bad ones go to the rejects, with what they have in `column`."""
        if not bad.any():
            return rows
        for i in np.flatnonzero(bad).tolist():
            self.rejects.add(rows.path, int(rows.lines[i]), reason, rows.columns[column][i])
        return rows.take(~bad)

    def _list_items(self, rows: _Rows, column: str, known: _Keys) -> tuple[_KeyColumn, Array]:
        """The keys of a column of comma lists, and the row that each is from.

        A list with a malformed key goes to the rejects as a whole.
        """
        lists = rows.columns[column]
        stop = np.where(_is_missing(lists), lists.start, lists.stop)
        item_start, item_stop, owner = split_lists(lists.data, lists.start, stop)
        items = known.column(Labels(lists.data, item_start, item_stop))
        malformed = items.slots < 0
        if malformed.any():
            bad_row = np.zeros(len(lists), np.bool_)
            bad_row[owner[malformed]] = True
            self._without(rows, bad_row, column, f"{column} is no list of keys like {known.prefix}0000001")
            good = ~bad_row[owner]
            items, owner = items.take(good), owner[good]
        return items, owner

    def _release_states(self, rows: _Rows, released_after: int) -> Array:
        """KEPT for the titles that are recent enough. A year that is no number goes to the rejects: UNKNOWN."""
        year = rows.columns["startYear"]
        no_year = _is_missing(year)
        number = decimals(year.data, year.start, year.stop)
        malformed = (number < 0) & ~no_year
        self._without(rows, malformed, "startYear", "startYear is no year")
        recent = number > released_after
        self._count("titles without a year left out", no_year)
        self._count("titles released too early left out", ~(recent | no_year | malformed))
        state = np.where(recent & ~no_year, KEPT, LEFT_OUT).astype(np.uint8)
        state[malformed] = UNKNOWN
        return state

    def _names(self, rows: _Rows, key: str, name: str) -> Labels:
        """The names of the rows if entities are labelled by name; the key where a name is missing."""
        keys = rows.columns[key]
        if not self.by_name:
            return keys
        names = rows.columns[name]
        nameless = _is_missing(names)
        self._count(f"entities without a {name} called by their key", nameless)
        start = np.where(nameless, keys.start, names.start)
        return Labels(names.data, start, np.where(nameless, keys.stop, names.stop))

    def _display_names(self, rows: _Rows, key: str, name: str, state: Array) -> Iterator[TripleBatch]:
        """A batch of the display names of what is kept, if entities are labelled by key and the dump has names."""
        if self.by_name or name not in rows.columns:
            return
        named = (state == KEPT) & ~_is_missing(rows.columns[name])
        if named.any():
            yield TripleBatch.of_names(NameBatch(rows.columns[key].take(named), rows.columns[name].take(named)))

    def _triples(self, head: _KeyColumn, relation: Labels | str, tail: _KeyColumn) -> Iterator[TripleBatch]:
        """A batch of the triples whose ends are both kept."""
        states = [head.states(), tail.states()]
        known = np.ones(len(head.keys), np.bool_)
        for end, state in zip((head, tail), states, strict=True):
            unknown = known & (state == UNKNOWN)
            self._count(f"triples with an unknown {end.known.noun} dropped", unknown)
            known &= ~unknown
        kept = (states[0] == KEPT) & (states[1] == KEPT)
        self._count("triples of titles left out", known & ~kept)
        if kept.any():
            head, tail = head.take(kept), tail.take(kept)
            if isinstance(relation, str):
                relation = Labels.constant(relation, len(kept))
            yield TripleBatch(head.labels(), relation.take(kept), tail.labels())

    def _count(self, what: str, where: Array) -> None:
        if count := int(np.count_nonzero(where)):
            self.source.counts[what] += count


def _header(path: Path) -> list[str]:
    """The names of the columns: the fields of the first line."""
    line = read_start(path).partition(b"\n")[0].decode("utf-8", "backslashreplace")
    return line.removesuffix("\r").split("\t")


def _is_missing(fields: Labels) -> Array:
    """Which fields are null or empty."""
    return np.asarray(equal_to(fields.data, fields.start, fields.stop, NULL) | (fields.start == fields.stop))
