"""Triples as Parquet columns, in one file or in a folder with train, valid and test files.

In: files with columns of usual names (`h`, `r` and `t`, for example), or of those that the user says; others are
ignored. Out: triples. Rows are counted from 1 over the whole file, row groups do not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dkge_dist.graph.sources import files as source_files
from dkge_dist.graph.sources.arrow import columns_of_schema, labels_of
from dkge_dist.graph.sources.base import Rejects, SourceError, SplitFilesSource, TripleBatch
from dkge_dist.graph.sources.columns import Columns
from dkge_dist.types import Split

Names = tuple[str, str, str]

MAX_BATCH_ROWS = 1 << 17
READ_BUFFER_BYTES = 1 << 20
SHORT_LABEL = 1 << 10
UNPACKED_BYTES, UNPACKED_TIMES = 1 << 30, 1000
"""Labels may take so many bytes in any case, and so many times those of the file."""


class ParquetSource(SplitFilesSource):
    """A row with a null, an empty label or broken UTF-8 in one of the three columns is a bad line."""

    format = "parquet"

    def __init__(self, path: Path, files: dict[Split, Path] | None = None, columns: Columns | None = None) -> None:
        super().__init__(path, files)
        self.columns = columns

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for split, path in self.files.items():
            before, first_row = self.bytes_read, 1
            names, rows_total, record_batches = _open(path, self.columns)
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
        raise SourceError(f"{path}: damaged Parquet file: {_first_line(error)}") from None
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
    batches = reader.iter_batches(batch_size=batch_rows, columns=list(names))
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
