"""Arrow columns as labels: Parquet files (alone, or train, valid and test in a folder) and tables in memory.

Columns have usual names (`h`, `r` and `t`, for example) or those that the user says; others are ignored. Labels are
strings in any Arrow form, or integers, which become decimals. A row that has no label in one of the three columns goes
to `Rejects`. Rows are counted from 1 over the whole file, row groups do not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources import files as source_files
from dkge_dist.graph.sources.base import Columns, Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.columns import columns_of
from dkge_dist.types import Array

Names = tuple[str, str, str]

MAX_BATCH_ROWS = 1 << 17
READ_BUFFER_BYTES = 1 << 20
SHORT_LABEL = 1 << 10
UNPACKED_BYTES, UNPACKED_TIMES = 1 << 30, 1000
"""Labels may take so many bytes in any case, and so many times those of the file."""


def columns_of_schema(schema: pa.Schema, said: Columns | None, where: str) -> Names:
    """The names of the columns that hold heads, relations and tails; an error if one is of another type."""
    head, relation, tail = (schema.names[place] for place in columns_of(schema.names, said, where))
    for name in (head, relation, tail):
        found = schema.names.count(name)
        if found != 1:
            raise SourceError(f"{where}: {found} columns named {name!r}; the columns are {', '.join(schema.names)}")
        kind = schema.field(name).type
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        if value not in (pa.string(), pa.large_string(), pa.string_view()) and not pa.types.is_integer(value):
            hint = " (a column of integers with gaps?)" if pa.types.is_floating(kind) else ""
            raise SourceError(f"{where}: column {name!r} is of type {kind}{hint}; labels are strings or integers")
    return head, relation, tail


def labels_of(batch: pa.RecordBatch, names: Names, path: Path, first_row: int, rejects: Rejects) -> list[Labels]:
    """Heads, relations and tails of the rows that can be used; the others go to `rejects`."""
    columns = [_column(batch.column(name)) for name in names]
    problems: dict[int, str] = {}
    for name, column in zip(names, columns, strict=True):
        for row, problem in _bad_rows(column):
            problems.setdefault(row, f"{problem} in column {name!r} of this row")
    for row in sorted(problems):
        rejects.add(path, first_row + row, problems[row])
    good = np.ones(batch.num_rows, np.bool_)
    good[list(problems)] = False
    return [Labels.from_arrow(column.values.fill_null("")).take(column.places[good]) for column in columns]


class _Column(NamedTuple):
    """A column as its different labels, and the place of each row's among them; -1 for null."""

    values: pa.LargeStringArray
    places: Array


def _column(column: pa.Array) -> _Column:
    if pa.types.is_dictionary(column.type):
        places = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return _Column(column.dictionary.cast(pa.large_string()), places)
    return _Column(column.cast(pa.large_string()), np.arange(len(column)))


def _bad_rows(column: _Column) -> Iterator[tuple[int, str]]:
    """Rows that hold no label, and what is wrong with them."""
    values, places = column
    # A damaged file may refer to what its dictionary does not have.
    outside = {"null": places < 0, "a value that is not in its dictionary": places >= len(values)}
    bad_values = ((places == place, problem) for place, problem in _bad_values(values))
    for where, problem in itertools.chain(((where, problem) for problem, where in outside.items()), bad_values):
        for row in np.flatnonzero(where).tolist():
            yield row, problem


def _bad_values(values: pa.LargeStringArray) -> Iterator[tuple[int, str]]:
    """Places of what is no label, and what is wrong with it."""
    size, limit = pc.binary_length(values), source_files.MAX_LINE_BYTES
    for problem, mask in (
        ("null", values.is_null()),
        ("empty label", pc.equal(size, 0)),
        (f"a label of over {limit >> 20} MiB", pc.greater(size, limit)),
    ):
        for place in np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False)).tolist():
            yield place, problem
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for place, value in enumerate(values.cast(pa.large_binary())):
            text = value.as_py()
            if text is not None and text.decode("utf-8", "ignore").encode("utf-8") != text:
                yield place, "broken UTF-8"


class TableSource(Source):
    """Columns of a table in memory that speaks Arrow; read once if it is a stream. Errors name the `kind` of table."""

    format = "table"

    def __init__(self, kind: str, reader: pa.RecordBatchReader, columns: Columns | None) -> None:
        super().__init__(Path(kind))
        self.reader = reader
        self.columns = columns_of_schema(reader.schema, columns, kind)

    @property
    def name(self) -> str:
        """There is no file to be named after."""
        return "snapshot"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        first_row = 1
        for batch in self.reader:
            for start in range(0, batch.num_rows, MAX_BATCH_ROWS):
                part = batch.slice(start, MAX_BATCH_ROWS)
                head, relation, tail = labels_of(part, self.columns, self.path, first_row, rejects)
                yield TripleBatch(head, relation, tail)
                first_row += part.num_rows


class ParquetSource(Source):
    """Parquet columns. What they unpack to is bounded."""

    format = "parquet"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for split, path in self.files.items():
            before, first_row = self.bytes_read, 1
            names, rows_total, record_batches = _open(path, self.options.columns)
            size = path.stat().st_size
            unpacked, limit = 0, max(UNPACKED_BYTES, UNPACKED_TIMES * size)
            for batch in record_batches:
                head, relation, tail = labels_of(batch, names, path, first_row, rejects)
                unpacked += sum(int((labels.stop - labels.start).sum()) for labels in (head, relation, tail))
                if unpacked > limit:
                    raise SourceError(
                        f"{path}: {size:,} bytes that unpack to over {limit >> 20:,} MiB of labels: no real graph does"
                    )
                first_row += batch.num_rows
                self.bytes_read = before + size * (first_row - 1) // rows_total
                if len(head):
                    yield TripleBatch(head, relation, tail, split)
            self.bytes_read = before + size


def _open(path: Path, columns: Columns | None) -> tuple[Names, int, Iterator[pa.RecordBatch]]:
    """The names of the three columns, how many rows there are, and the columns in batches of bounded size."""
    if path == source_files.STDIN:
        raise SourceError("-: Parquet is not read from a pipe; give the file")
    source_files.open_raw(path).close()
    try:
        with pq.ParquetFile(path) as file:
            names = columns_of_schema(file.schema_arrow, columns, str(path))
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: not a Parquet file, or a truncated one: {_first_line(error)}") from None
    try:
        # Buffered reading keeps one page of a column in memory, not its whole row group.
        repeating = _repeating_columns(path, names)
        reader = pq.ParquetFile(path, buffer_size=READ_BUFFER_BYTES, read_dictionary=repeating)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None
    groups = range(reader.metadata.num_row_groups)
    size = sum(reader.metadata.row_group(group).total_byte_size for group in groups)
    rows = reader.metadata.num_rows
    batch_rows = max(1, min(MAX_BATCH_ROWS, source_files.CHUNK_BYTES * rows // max(size, 1)))
    return names, rows, _record_batches(path, reader, batch_rows, names)


def _repeating_columns(path: Path, names: Names) -> list[str]:
    """Columns to be read as dictionaries, so that a label which the file repeats is not repeated in memory.

    A thousand bytes could be gigabytes of labels. But building dictionaries takes time, so only columns whose own
    dictionaries hold long labels are read so; or ones that are not known: of those the first row shows one label.
    """
    found: set[str] = set()
    with pq.ParquetFile(path, buffer_size=READ_BUFFER_BYTES, read_dictionary=list(names)) as reader:
        for group in range(reader.metadata.num_row_groups):
            rows = reader.iter_batches(batch_size=1, row_groups=[group], columns=list(names))
            found |= {name for row in itertools.islice(rows, 1) for name in names if _may_repeat(row.column(name))}
    return sorted(found)


def _may_repeat(first: pa.Array) -> bool:
    """Judged by the first row of a row group: its dictionary has long labels, or only this one."""
    if not pa.types.is_dictionary(first.type):
        return False
    longest = pc.max(pc.binary_length(first.dictionary.cast(pa.large_string()))).as_py() or 0
    return len(first.dictionary) < 2 or longest > SHORT_LABEL


def _record_batches(path: Path, reader: pq.ParquetFile, batch_rows: int, names: Names) -> Iterator[pa.RecordBatch]:
    with reader:
        try:
            yield from reader.iter_batches(batch_size=batch_rows, columns=list(names))
        except (pa.ArrowException, OSError) as error:
            raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> SourceError:
    return SourceError(f"{path}: damaged Parquet file: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
