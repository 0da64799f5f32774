"""Triples as Python values: mappings with the names of columns as keys, or sequences. For JSON lines and iterables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import SourceError, TripleBatch
from dkge_dist.graph.sources.columns import ROLES, Columns, columns_of
from dkge_dist.types import Array

SHOWN = 80


class RowError(Exception):
    """A row that is no triple; the message says why."""


class RowReader:
    """Makes labels of rows. The keys of mappings are chosen by the first of them."""

    def __init__(self, columns: Columns | None) -> None:
        self.columns = columns
        self._keys: list[Any] | None = None
        self._places: tuple[int, int, int] = (0, 1, 2)
        self._width = 3
        if columns is not None and all(isinstance(column, int) for column in columns):
            head, relation, tail = (int(column) - 1 for column in columns)
            self._places, self._width = (head, relation, tail), 0

    def read(self, row: Any) -> list[str]:
        """Head, relation and tail; a `RowError` if the row is something else."""
        if isinstance(row, Mapping):
            values = self._by_key(row)
        elif isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes):
            values = self._by_place(row)
        else:
            raise RowError(f"expected (head, relation, tail), found {_shown(row)}")
        return [_label(value, role) for value, role in zip(values, ROLES, strict=True)]

    def _by_key(self, row: Mapping[Any, Any]) -> list[Any]:
        if self._keys is None:
            names = [name for name in row if isinstance(name, str)]
            try:
                self._keys = [names[place] for place in columns_of(names, self.columns, "")]
            except SourceError as error:
                raise RowError(str(error).removeprefix(": ")) from None
        try:
            return [row[key] for key in self._keys]
        except KeyError as error:
            raise RowError(f"no key {error.args[0]!r}") from None

    def _by_place(self, row: Sequence[Any] | Array) -> list[Any]:
        if self._width and len(row) != self._width:
            raise RowError(f"{len(row)} values instead of 3")
        try:
            return [row[place] for place in self._places]
        except IndexError:
            raise RowError(f"{len(row)} values, --columns names {max(self._places) + 1}") from None


def batch_of(rows: list[list[str]]) -> TripleBatch:
    """Some triples as a batch."""
    head, relation, tail = (
        Labels.from_arrow(pa.array([row[place] for row in rows], pa.large_string())) for place in range(3)
    )
    return TripleBatch(head, relation, tail)


def _label(value: Any, role: str) -> str:
    """A string as it is, an integer as decimal digits."""
    if isinstance(value, str):
        if not value:
            raise RowError(f"empty {role}")
        if not value.isascii():
            _check_utf8(value, role)
        # numpy has strings of its own
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        try:
            return str(int(value))
        except ValueError:
            raise RowError(f"the {role} is a number of very many digits") from None
    if value is None or value != value:
        raise RowError(f"null in place of the {role}")
    raise RowError(f"the {role} is {_shown(value)}; labels are strings or integers")


def _check_utf8(value: str, role: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError(f"the {role} holds half a character (a lone surrogate)") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= SHOWN else text[:SHOWN] + '…'}"
