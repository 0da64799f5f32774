"""Triples as Parquet columns h, r and t, in one file or in a folder with train, valid and test files.

In: files with at least these columns, of strings in any Arrow form or of integers; other columns are ignored. Out:
triples, integers as decimal labels. Rows are counted from 1 over the whole file, row groups do not matter.
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
from dkge_dist.graph.sources.base import Rejects, SourceError, SplitFilesSource, TripleBatch
from dkge_dist.types import Array

COLUMNS = ("h", "r", "t")
MAX_BATCH_ROWS = 1 << 17
READ_BUFFER_BYTES = 1 << 20
SHORT_LABEL = 1 << 10
UNPACKED_BYTES, UNPACKED_TIMES = 1 << 30, 1000
"""Labels may take so many bytes in any case, and so many times those of the file."""


class ParquetSource(SplitFilesSource):
    """A row with a null, an empty label or broken UTF-8 in one of the three columns is a bad line."""

    format = "parquet"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for split, path in self.files.items():
            before, first_row = self.bytes_read, 1
            rows_total, record_batches = _open(path)
            size = path.stat().st_size
            unpacked, limit = 0, max(UNPACKED_BYTES, UNPACKED_TIMES * size)
            for batch in record_batches:
                head, relation, tail = _labels(batch, path, first_row, rejects)
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


def _open(path: Path) -> tuple[int, Iterator[pa.RecordBatch]]:
    """How many rows `path` has, and the three columns of them in batches of bounded size."""
    source_files.open_raw(path).close()
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: not a Parquet file, or a truncated one: {_first_line(error)}") from None
    try:
        # Buffered reading keeps one page of a column in memory, not its whole row group.
        repeating = _repeating_columns(path)
        reader = pq.ParquetFile(path, buffer_size=READ_BUFFER_BYTES, read_dictionary=repeating)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path}: damaged Parquet file: {_first_line(error)}") from None
    groups = range(reader.metadata.num_row_groups)
    size = sum(reader.metadata.row_group(group).total_byte_size for group in groups)
    rows = reader.metadata.num_rows
    batch_rows = max(1, min(MAX_BATCH_ROWS, source_files.CHUNK_BYTES * rows // max(size, 1)))
    return rows, _record_batches(path, reader, batch_rows)


def _repeating_columns(path: Path) -> list[str]:
    """Columns to be read as dictionaries, so that a label which the file repeats is not repeated in memory.

    A thousand bytes could be gigabytes of labels. But building dictionaries takes time, so only columns whose own
    dictionaries hold long labels are read so; or ones that are not known: of those the first row shows one label.
    """
    found: set[str] = set()
    with pq.ParquetFile(path, buffer_size=READ_BUFFER_BYTES, read_dictionary=list(COLUMNS)) as reader:
        for group in range(reader.metadata.num_row_groups):
            rows = reader.iter_batches(batch_size=1, row_groups=[group], columns=list(COLUMNS))
            found |= {name for row in itertools.islice(rows, 1) for name in COLUMNS if _may_repeat(row.column(name))}
    return sorted(found)


def _may_repeat(first: pa.Array) -> bool:
    """Judged by the first row of a row group: its dictionary has long labels, or only this one."""
    if not pa.types.is_dictionary(first.type):
        return False
    longest = pc.max(pc.binary_length(first.dictionary.cast(pa.large_string()))).as_py() or 0
    return len(first.dictionary) < 2 or longest > SHORT_LABEL


def _record_batches(path: Path, reader: pq.ParquetFile, batch_rows: int) -> Iterator[pa.RecordBatch]:
    batches = reader.iter_batches(batch_size=batch_rows, columns=list(COLUMNS))
    with reader:
        while True:
            try:
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise SourceError(f"{path}: damaged Parquet file: {_first_line(error)}") from None
            if batch is None:
                return
            yield batch


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _check_columns(path: Path, schema: pa.Schema) -> None:
    for name in COLUMNS:
        found = schema.names.count(name)
        if found != 1:
            problem = "no column" if found == 0 else f"{found} columns named"
            raise SourceError(f"{path}: {problem} {name!r}; the columns are: {', '.join(schema.names) or 'none'}")
        kind = schema.field(name).type
        if not _is_label_type(kind):
            raise SourceError(f"{path}: column {name!r} is of type {kind}; labels are strings or integers")


def _is_label_type(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_integer(kind)
    )


def _labels(batch: pa.RecordBatch, path: Path, first_row: int, rejects: Rejects) -> list[Labels]:
    """Heads, relations and tails of the rows that can be used; the others go to `rejects`."""
    columns = [_column(batch.column(name)) for name in COLUMNS]
    problems: dict[int, str] = {}
    for name, column in zip(COLUMNS, columns, strict=True):
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
    for row in np.flatnonzero(places < 0).tolist():
        yield row, "null"
    for place, problem in _bad_values(values):
        for row in np.flatnonzero(places == place).tolist():
            yield row, problem


def _bad_values(values: pa.LargeStringArray) -> Iterator[tuple[int, str]]:
    """Places of what is no label, and what is wrong with it."""
    for place in _where(values.is_null()):
        yield int(place), "null"
    size = pc.binary_length(values)
    for place in _where(pc.equal(size, 0)):
        yield int(place), "empty label"
    for place in _where(pc.greater(size, source_files.MAX_LINE_BYTES)):
        yield int(place), f"a label of over {source_files.MAX_LINE_BYTES >> 20} MiB"
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for place, value in enumerate(values.cast(pa.large_binary())):
            text = value.as_py()
            if text is not None and text.decode("utf-8", "ignore").encode("utf-8") != text:
                yield place, "broken UTF-8"


def _where(mask: pa.BooleanArray) -> Array:
    return np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
