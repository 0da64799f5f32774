"""Triples as Python values: JSON lines, iterables of rows, networkx graphs and sparse matrices.

A row is a mapping with names of columns as keys, or a sequence. Labels are strings, or integers, which become decimals.
Libraries of objects are not imported here: an object brings its own, and is recognised by what it can do or by the name
of its module. Rows are counted from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Columns, Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.columns import ROLES, columns_of
from dkge_dist.graph.sources.files import read_line_chunks
from dkge_dist.types import Array, Split, UsageError

BATCH_ROWS = 1 << 16
SHOWN = 80
DEFAULT_EDGE = "linked to"
"""The relation of edges that have no name."""

EDGE_KEYS = ("relation", "label", "key")


class RowError(Exception):
    """A row that is no triple; the message says why."""


class RowReader:
    """Makes labels of rows. The keys of mappings are chosen by the first of them."""

    def __init__(self, columns: Columns | None) -> None:
        self.columns = columns
        self._keys: list[Any] | None = None
        self._places: tuple[int, ...] = (0, 1, 2)
        self._width = 3
        if columns is not None and all(isinstance(column, int) for column in columns):
            self._places, self._width = tuple(int(column) - 1 for column in columns), 0

    def batch(self, rows: Iterable[tuple[int, Any]], path: Path, rejects: Rejects, split: Split) -> TripleBatch:
        """Numbered rows as a batch; what is no triple goes to `rejects`."""
        good = []
        for number, row in rows:
            try:
                good.append(self.read(row))
            except RowError as error:
                rejects.add(path, number, str(error), self.shown(row))
        head, relation, tail = (
            Labels.from_arrow(pa.array([row[place] for row in good], pa.large_string())) for place in range(3)
        )
        return TripleBatch(head, relation, tail, split)

    def shown(self, row: Any) -> str:
        """The text of a bad row."""
        return ""

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


def _label(value: Any, role: str) -> str:
    """A string as it is, an integer as decimal digits."""
    if isinstance(value, str):
        if not value:
            raise RowError(f"empty {role}")
        try:
            if not value.isascii():
                value.encode("utf-8")
        except UnicodeEncodeError:
            raise RowError(f"the {role} holds half a character (a lone surrogate)") from None
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


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= SHOWN else text[:SHOWN] + '…'}"


class JsonReader(RowReader):
    """The same for rows that are JSON."""

    def read(self, row: str) -> list[str]:
        """Head, relation and tail of a line."""
        try:
            return super().read(_DECODER.decode(row))
        except json.JSONDecodeError as error:
            raise RowError(f"column {error.colno}: not JSON: {error.msg}") from None
        except (ValueError, RecursionError) as error:
            raise RowError(f"not JSON that can be read: {str(error).partition(';')[0]}") from None

    def shown(self, row: str) -> str:
        """The line."""
        return row.rstrip("\r")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one that has a key twice would silently lose a value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RowError("an object has a key twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


class JsonLinesSource(Source):
    """An object or an array of three a line, each read by itself, so that a bad one is named."""

    format = "jsonl"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for split, path in self.files.items():
            reader = JsonReader(self.options.columns)
            for chunk in read_line_chunks(path, self, rejects):
                lines = [(number, line) for number, line in chunk.numbered() if number not in chunk.emptied]
                filled = [(number, line) for number, line in lines if line and not line.isspace()]
                if len(filled) < len(lines):
                    self.counts["empty lines skipped"] += len(lines) - len(filled)
                yield reader.batch(filled, path, rejects, split)


class RowsSource(Source):
    """Triples in memory, one by one: sequences of three, or mappings. Errors name the `kind` of object."""

    format = "triples"

    def __init__(self, kind: str, rows: Iterable[Any], columns: Columns | None = None) -> None:
        super().__init__(Path(kind))
        self.rows = rows
        self.columns = columns

    @property
    def name(self) -> str:
        """There is no file to be named after."""
        return "snapshot"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        reader = RowReader(self.columns)
        numbered = enumerate(self.rows, 1)
        while some := list(islice(numbered, BATCH_ROWS)):
            yield reader.batch(some, self.path, rejects, Split.TRAIN)


def open_object(
    given: Any, columns: Columns | None = None, nodelist: Sequence[Any] | None = None, relation: str | None = None
) -> Source:
    """The reader for an object. `nodelist` names the rows of a matrix, `relation` edges without a name."""
    kind = type(given).__name__
    package = type(given).__module__.partition(".")[0]
    is_matrix = package == "scipy" and hasattr(given, "tocoo")
    is_graph = package == "networkx" and hasattr(given, "edges")
    for option, value, fits in (
        ("nodelist", nodelist, is_matrix),
        ("relation", relation, is_matrix or is_graph),
        ("columns", columns, not is_matrix and not is_graph),
    ):
        if value is not None and not fits:
            raise UsageError(f"{option} does not go with a {kind}")
    if relation == "":
        raise UsageError("relation is empty: a relation has a label")
    from dkge_dist.graph.sources.arrow import TableSource

    if is_matrix:
        return TableSource(kind, _matrix_table(given, nodelist, relation or DEFAULT_EDGE), (1, 2, 3))
    if is_graph:
        return RowsSource(kind, _edges(given, relation or DEFAULT_EDGE))
    if package == "pandas" and hasattr(given, "columns"):
        return TableSource(kind, _pandas_table(given, columns), (1, 2, 3))
    if hasattr(given, "__arrow_c_stream__"):
        return TableSource(kind, pa.RecordBatchReader.from_stream(given), columns)
    if isinstance(given, pa.RecordBatch):
        return TableSource(kind, pa.Table.from_batches([given]).to_reader(), columns)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return RowsSource(kind, given, columns)
    raise UsageError(
        f"a {kind} cannot be read: give a path, a table (pandas, polars, pyarrow), an iterable of "
        "(head, relation, tail), a networkx graph or a scipy sparse matrix"
    )


def _matrix_table(matrix: Any, nodelist: Sequence[Any] | None, relation: str) -> pa.RecordBatchReader:
    """An adjacency matrix: entry (i, j) that is not zero links the i-th node to the j-th."""
    kind = type(matrix).__name__
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise SourceError(f"{kind}: has shape {matrix.shape}; an adjacency matrix is square")
    nodes: Iterable[Any] = range(matrix.shape[0]) if nodelist is None else nodelist
    labels = []
    for number, node in enumerate(nodes, 1):
        try:
            labels.append(_label(node, "label"))
        except RowError as error:
            raise SourceError(f"{kind}: nodelist, label {number}: {error}") from None
    if len(labels) != matrix.shape[0]:
        raise SourceError(f"{kind}: nodelist has {len(labels)} labels for {matrix.shape[0]} rows")
    entries = matrix.tocoo()
    linked = np.asarray(entries.data) != 0
    head, tail = (np.asarray(ends)[linked].astype(np.int64) for ends in (entries.row, entries.col))
    columns = ((head, labels), (np.zeros_like(head), [relation]), (tail, labels))
    arrays = [pa.DictionaryArray.from_arrays(at, pa.array(some, pa.large_string())) for at, some in columns]
    return pa.table(arrays, names=list(ROLES)).to_reader()


def _edges(graph: Any, relation: str) -> Iterator[tuple[Any, Any, Any]]:
    """Edges of a networkx graph. An undirected one goes from the smaller label: not from whichever was named first."""
    keyed = graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True)
    for head, tail, *key, attributes in keyed:
        # networkx numbers keys that were not given.
        given = {**attributes, **({"key": key[0]} if key and isinstance(key[0], str) else {})}
        named = next((given[name] for name in EDGE_KEYS if name in given), relation)
        if not graph.is_directed() and str(tail) < str(head):
            head, tail = tail, head
        yield head, named, tail


def _pandas_table(frame: Any, columns: Columns | None) -> pa.RecordBatchReader:
    """The three columns of a data frame alone: what is in the others does not matter. NaN is null."""
    kind = type(frame).__name__
    names = [str(name) for name in frame.columns]
    arrays = {}
    for place in columns_of(names, columns, kind):
        try:
            arrays[names[place]] = pa.Array.from_pandas(frame.iloc[:, place])
        except pa.ArrowException as error:
            reason = str(error).partition("\n")[0]
            raise SourceError(f"{kind}: column {names[place]!r}: {reason}; labels are strings or integers") from None
    return pa.table(arrays).to_reader()
