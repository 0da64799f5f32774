"""Sources that are Python objects: tables, iterables of triples, networkx graphs, sparse matrices.

None of their libraries is imported here: an object brings its own, and is recognised by what it can do or by the name
of its module. Rows are counted from 1, as in files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.arrow import columns_of_schema, labels_of
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.columns import Columns, columns_of
from dkge_dist.graph.sources.rows import RowError, RowReader, batch_of
from dkge_dist.types import UsageError

BATCH_ROWS = 1 << 16
LINKED = "linked to"
"""The relation of edges that have no name."""

EDGE_KEYS = ("relation", "label", "key")


class MemorySource(Source):
    """What is in memory has no path; errors name its kind."""

    def __init__(self, kind: str) -> None:
        super().__init__(Path(kind))

    @property
    def name(self) -> str:
        """There is no file to be named after."""
        return "snapshot"


def open_object(
    given: Any, columns: Columns | None = None, nodelist: Sequence[Any] | None = None, relation: str | None = None
) -> MemorySource:
    """The reader for an object. `nodelist` names the rows of a matrix, `relation` edges without a name."""
    package = type(given).__module__.partition(".")[0]
    is_matrix = package == "scipy" and hasattr(given, "tocoo")
    is_graph = package == "networkx" and hasattr(given, "edges")
    for option, value, fits in (
        ("nodelist", nodelist, is_matrix),
        ("relation", relation, is_matrix or is_graph),
        ("columns", columns, not is_matrix and not is_graph),
    ):
        if value is not None and not fits:
            raise UsageError(f"{option} does not go with a {type(given).__name__}")
    if relation == "":
        raise UsageError("relation is empty: a relation has a label")
    if is_matrix:
        return MatrixSource(given, nodelist, relation or LINKED)
    if is_graph:
        return RowsSource(type(given).__name__, _edges(given, relation or LINKED), None)
    if package == "pandas" and hasattr(given, "columns"):
        return TableSource(type(given).__name__, _pandas_table(given, columns), (1, 2, 3))
    if hasattr(given, "__arrow_c_stream__"):
        return TableSource(type(given).__name__, pa.RecordBatchReader.from_stream(given), columns)
    if isinstance(given, pa.RecordBatch):
        return TableSource("RecordBatch", pa.Table.from_batches([given]).to_reader(), columns)
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        return RowsSource(type(given).__name__, given, columns)
    raise UsageError(
        f"a {type(given).__name__} cannot be read: give a path, a table (pandas, polars, pyarrow), an iterable of "
        "(head, relation, tail), a networkx graph or a scipy sparse matrix"
    )


class TableSource(MemorySource):
    """Columns of a table that speaks Arrow; read once if it is a stream."""

    format = "table"

    def __init__(self, kind: str, reader: pa.RecordBatchReader, columns: Columns | None) -> None:
        super().__init__(kind)
        self.reader = reader
        self.names = columns_of_schema(reader.schema, columns, kind)

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        first_row = 1
        for batch in self.reader:
            for start in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(start, BATCH_ROWS)
                head, relation, tail = labels_of(part, self.names, self.path, first_row, rejects)
                first_row += part.num_rows
                yield TripleBatch(head, relation, tail)


class RowsSource(MemorySource):
    """Triples one by one: sequences of three, or mappings."""

    format = "triples"

    def __init__(self, kind: str, rows: Iterable[Any], columns: Columns | None) -> None:
        super().__init__(kind)
        self.rows = rows
        self.columns = columns

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        reader = RowReader(self.columns)
        numbered = enumerate(self.rows, 1)
        while some := list(islice(numbered, BATCH_ROWS)):
            good = []
            for number, row in some:
                try:
                    good.append(reader.read(row))
                except RowError as error:
                    rejects.add(self.path, number, str(error))
            yield batch_of(good)


class MatrixSource(MemorySource):
    """An adjacency matrix: entry (i, j) that is not zero links the i-th node to the j-th."""

    format = "matrix"

    def __init__(self, matrix: Any, nodelist: Sequence[Any] | None, relation: str) -> None:
        super().__init__(type(matrix).__name__)
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise SourceError(f"{self.path}: has shape {matrix.shape}; an adjacency matrix is square")
        if nodelist is not None and len(nodelist) != matrix.shape[0]:
            raise SourceError(f"{self.path}: nodelist has {len(nodelist)} labels for {matrix.shape[0]} rows")
        self.matrix, self.nodelist, self.relation = matrix, nodelist, relation

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        nodes = self._nodes()
        entries = self.matrix.tocoo()
        linked = np.asarray(entries.data) != 0
        rows, columns = np.asarray(entries.row)[linked], np.asarray(entries.col)[linked]
        for start in range(0, rows.shape[0], BATCH_ROWS):
            part = slice(start, start + BATCH_ROWS)
            relations = Labels.constant(self.relation, rows[part].shape[0])
            yield TripleBatch(nodes.take(rows[part]), relations, nodes.take(columns[part]))

    def _nodes(self) -> Labels:
        if self.nodelist is None:
            return Labels.from_arrow(pa.array(np.arange(self.matrix.shape[0])).cast(pa.large_string()))
        reader = RowReader(None)
        labels = []
        for number, node in enumerate(self.nodelist, 1):
            try:
                labels.append(reader.read((node, LINKED, node))[0])
            except RowError as error:
                raise SourceError(f"{self.path}: nodelist, label {number}: {error}") from None
        return Labels.from_arrow(pa.array(labels, pa.large_string()))


def _edges(graph: Any, relation: str) -> Iterator[tuple[Any, Any, Any]]:
    """Edges of a networkx graph. An undirected one goes from the smaller label: not from whichever was named first."""
    keyed = graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True)
    for head, tail, *key, attributes in keyed:
        # Keys that nobody gave are numbers.
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
