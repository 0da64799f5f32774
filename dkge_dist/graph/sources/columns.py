"""Which columns of a table are head, relation and tail. In: the first row, what the user says. Out: places. Pure.

A header is recognised by usual names, in any order and among further columns: the ends by one of `ENDS`, the relation
by the name that goes with them or, where that is absent, by another usual one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from dkge_dist.graph.sources.base import Columns, SourceError
from dkge_dist.types import UsageError

ROLES = ("head", "relation", "tail")
ENDS = {
    ("head", "tail"): "relation",
    ("h", "t"): "r",
    ("subject", "object"): "predicate",
    ("s", "o"): "p",
    ("source", "target"): "relation",
    ("from", "to"): "relation",
    ("node1", "node2"): "label",
}
"""Usual names of head and tail, with the relation's name that goes with them."""

RELATION_NAMES = ("relation", "predicate", "type", "label", "rel", "property", "r", "p")
USUAL = "h/r/t, head/relation/tail, subject/predicate/object, source/relation/target or from/relation/to"
DELIMITERS = (",", ";")

Places = tuple[int, int, int]
"""Head, relation and tail as positions from 0 on."""


class Layout(NamedTuple):
    """How the rows of a table are read: how many fields each has, which are the triple, the header if there is one."""

    width: int = 3
    places: Places = (0, 1, 2)
    header: tuple[str, ...] | None = None

    @property
    def notice(self) -> str:
        """What the report says of a header."""
        names = [(self.header or ROLES)[place] for place in self.places]
        return f"header lines (head = {names[0]!r}, relation = {names[1]!r}, tail = {names[2]!r})"


def parse_columns(said: str | Sequence[str | int] | None) -> Columns | None:
    """What a user says: `head,relation,tail` in one string, or three names or numbers."""
    if said is None:
        return None
    words = [word.strip() for word in said.split(",")] if isinstance(said, str) else list(said)
    parsed = [int(word) if isinstance(word, str) and word.isascii() and word.isdecimal() else word for word in words]
    if len(parsed) != 3 or len(set(parsed)) != 3 or any(column in ("", 0) for column in parsed):
        shown = said if isinstance(said, str) else ",".join(map(str, said))
        raise UsageError(f"--columns {shown}: three different names or numbers (from 1 on): head,relation,tail")
    head, relation, tail = parsed
    return head, relation, tail


def layout_of(first: Sequence[str] | None, said: Columns | None, where: str) -> Layout:
    """The layout of a file by its first row (None: not known). `where` opens an error."""
    is_usual = first is not None and usual_ends(first) is not None
    if first is None or (said is None and not is_usual):
        return Layout()
    has_header = is_usual or any(isinstance(column, str) for column in said or ())
    return Layout(len(first), columns_of(first, said, where), tuple(first) if has_header else None)


def columns_of(names: Sequence[str], said: Columns | None, where: str) -> Places:
    """The columns that a user says, or else those with usual names; an error if there are none."""
    if said is None:
        usual = usual_columns(names, where)
        if usual is None:
            problem = f"the columns are {_listed(names)}: none are usual ({USUAL}); name them (--columns)"
            raise SourceError(f"{where}: {problem}")
        return usual
    head, relation, tail = (_place(names, column, where) for column in said)
    if len({head, relation, tail}) != 3:
        raise SourceError(f"{where}: --columns names one column twice; the columns are {_listed(names)}")
    return head, relation, tail


def usual_ends(names: Sequence[str]) -> tuple[str, str] | None:
    """The usual names of head and tail that are among `names`, with some usual name of a relation."""
    plain = {_plain(name) for name in names}
    if not plain.intersection(RELATION_NAMES):
        return None
    return next((ends for ends in ENDS if plain.issuperset(ends)), None)


def usual_columns(names: Sequence[str], where: str) -> Places | None:
    """The columns by usual names; None if these are not among `names`."""
    ends = usual_ends(names)
    if ends is None:
        return None
    plain = [_plain(name) for name in names]
    own = ENDS[ends]
    relations = [own] if own in plain else [name for name in RELATION_NAMES if name in plain]
    wanted = (ends[0], *relations, ends[1])
    if len(relations) > 1 or any(plain.count(name) > 1 for name in wanted):
        raise SourceError(f"{where}: which of the columns {_listed(names)} is meant is not clear: say --columns")
    return plain.index(ends[0]), plain.index(relations[0]), plain.index(ends[1])


def _place(names: Sequence[str], column: str | int, where: str) -> int:
    if isinstance(column, int):
        if not 1 <= column <= len(names):
            raise SourceError(f"{where}: no column {column}, there are {len(names)}: {_listed(names)}")
        return column - 1
    found = [place for place, name in enumerate(names) if name == column]
    found = found or [place for place, name in enumerate(names) if _plain(name) == _plain(column)]
    if len(found) != 1:
        problem = "no column" if not found else f"{len(found)} columns named"
        raise SourceError(f"{where}: {problem} {column!r}; the columns are {_listed(names)}")
    return found[0]


def _plain(name: str) -> str:
    return name.strip().casefold()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name if len(name) <= 40 else name[:40] + "…") for name in names[:20])
    return (shown or "none") + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def first_record(start: bytes) -> tuple[str, list[str] | None]:
    """The delimiter of CSV that opens with the lines `start`, and the fields of its first record (None: too long).

    Commas, unless semicolons alone give a header or three fields.
    """
    comma, semicolon = ((delimiter, next(iter(csv_records(start, delimiter)), None)) for delimiter in DELIMITERS)
    for found in (comma, semicolon):
        if found[1] is not None and usual_ends(found[1]) is not None:
            return found
    return semicolon if len(semicolon[1] or ()) > 2 and len(comma[1] or ()) < 3 else comma


def csv_records(start: bytes, delimiter: str) -> list[list[str]]:
    """The records of some lines of CSV, without empty ones."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(start.decode("utf-8", "replace"), newline=""), delimiter=delimiter):
            if row:
                rows.append(row)
    except csv.Error:
        pass  # a very long field, or a NUL: the reader of the whole file says what is wrong
    return rows
