"""Parts that are columns of numbers or labels: Arrow IPC files, one batch each, memory-mapped when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.storage import Storage, StoreError
from dkge_dist.store.verify import open_part
from dkge_dist.types import Array


def write_columns(path: Path, columns: Mapping[str, Array | pa.Array]) -> None:
    """Write equally long columns as one record batch."""
    arrays = [c if isinstance(c, pa.Array) else column_of(c) for c in columns.values()]
    batch = pa.record_batch(arrays, names=list(columns))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_columns(storage: Storage, part: PartEntry, types: Mapping[str, pa.DataType]) -> list[pa.Array]:
    """The columns of a part, verified, without copying."""
    return columns_of(*open_part(storage, part.part), part, types)


def columns_of(path: Path, data: Array, part: PartEntry, types: Mapping[str, pa.DataType]) -> list[pa.Array]:
    """The columns in the bytes of a part, without copying."""
    try:
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(data)))
        batch = reader.get_batch(0)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"part {path} is damaged: {error}") from None
    found = {field.name: field.type for field in batch.schema}
    if found != dict(types) or reader.num_record_batches != 1:
        raise StoreError(f"part {path} holds columns {found} instead of {dict(types)}")
    if batch.num_rows != part.rows:
        raise StoreError(f"part {path} has {batch.num_rows} rows instead of {part.rows}")
    return [batch.column(name) for name in types]


def read_numbers(storage: Storage, part: PartEntry, types: Mapping[str, pa.DataType]) -> list[Array]:
    """Numeric columns of a part as read-only arrays over the mapped file."""
    return [numbers_of(column) for column in read_columns(storage, part, types)]


# Arrow's own `array` and `to_numpy` first import pandas where that is installed, which takes as long as answering a
# question.


def column_of(numbers: Array) -> pa.Array:
    """An array of numbers as a column, without copying."""
    flat = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), flat.shape[0], [None, pa.py_buffer(flat)])


def numbers_of(column: pa.Array) -> Array:
    """A numeric column without nulls as a read-only array, without copying."""
    if column.null_count:
        raise StoreError(f"{column.null_count} nulls in a column of numbers")
    dtype = np.dtype(column.type.to_pandas_dtype())
    # An empty column may have no buffer at all.
    buffer = column.buffers()[1] if len(column) else bytes(dtype.itemsize)
    numbers = np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize if len(column) else 0)
    numbers.flags.writeable = False
    return numbers
