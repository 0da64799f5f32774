"""Questions by labels, one or a batch of them. In: arguments, a file or tuples. Out: lines by rows, or why not.

A line of a batch that is wrong becomes a `Failure` in its place, and the others are answered. A batch that is wrong as
a whole (no file, no text, nothing in it) is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dkge_dist.ask.lookup import find_alive
from dkge_dist.ask.results import Failure
from dkge_dist.files import read_regular
from dkge_dist.types import ROW, Array, DkgeError, PathLike, UsageError

if TYPE_CHECKING:
    from dkge_dist.ask.model import Model

ANY = "?"
"""Stands for what is asked, as None does."""
AT_ONCE = 1024
"""Questions that are answered together; bounds memory."""

LabelledTriple = tuple[str | None, str | None, str | None]
Triplets = PathLike | Iterable[Sequence[str | None]]
"""A file of lines with tabs between three labels, or as many tuples."""


class Line(NamedTuple):
    """One question: its number from 1, and its labels."""

    number: int
    fields: Sequence[str | None]


class Resolved(NamedTuple):
    """Lines by rows: -1 for what is asked. `failures` are those that cannot be, by their index among the lines."""

    rows_N3: Array
    failures: dict[int, Failure]

    @property
    def good(self) -> Array:
        """The indices of all other lines."""
        every = np.arange(self.rows_N3.shape[0])
        return every[~np.isin(every, list(self.failures))]


def lines_in(batch: PathLike | Iterable[str | Sequence[str | None]], what: str) -> list[Line]:
    """The lines of a batch; `what` they are called where there are none."""
    if isinstance(batch, str | os.PathLike):
        lines = [Line(number, text.split("\t")) for number, text in lines_of(Path(batch))]
        name = str(batch)
    else:
        lines = [Line(n, [one] if isinstance(one, str) else list(one)) for n, one in enumerate(batch, 1)]
        name = "batch"
    if not lines:
        raise UsageError(f"{name}: holds no {what}")
    return lines


def resolve(model: Model, lines: Sequence[Line], expected: str, asked: int) -> Resolved:
    """Lines of three labels, of which `asked` are `?` or None."""
    rows = np.full((len(lines), 3), -1, ROW)
    failures: dict[int, str] = {}
    triples: list[LabelledTriple] = []
    for number, line in enumerate(lines):
        fields = [None if field == ANY else field for field in line.fields]
        sound = len(fields) == 3 and fields.count(None) == asked
        sound = sound and all(field is None or isinstance(field, str) for field in fields)
        if not sound:
            failures[number] = f"expected {expected}"
        triples.append((fields[0], fields[1], fields[2]) if sound else (None, None, None))
    for column in range(3):
        given = [(number, label) for number, triple in enumerate(triples) if (label := triple[column]) is not None]
        found = find_alive(model, "relations" if column == 1 else "entities", [label for _, label in given])
        rows[[number for number, _ in given], column] = found.rows
        for at, problem in found.problems.items():
            failures.setdefault(given[at][0], problem)
    return Resolved(rows, {at: Failure(lines[at].number, failures[at]) for at in sorted(failures)})


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, numbered from 1."""
    try:
        # Lines end as in sources: labels may hold other characters that Python takes for line ends.
        lines = [line.removesuffix("\r") for line in read_regular(path).decode("utf-8").split("\n")]
    except OSError as error:
        raise DkgeError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error}") from None
    return ((number, line) for number, line in enumerate(lines, 1) if line)
