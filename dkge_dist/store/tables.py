"""Tables of vectors on disk: blocks of rows that are the chunks of a Zarr v3 array, each a part of its own.

Uncompressed, so that a block is mapped as it lies. The array's `zarr.json` is a part too; it names the chunks, so that
versions share a table by naming one part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dkge_dist.store.columns import read_columns, write_columns
from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.mapping import map_files
from dkge_dist.store.storage import Blob, LocalStorage, Staging, StoreError
from dkge_dist.types import ROW, Array

MIN_BLOCK_ROWS, MAX_BLOCK_ROWS, BLOCKS = 64, 16_384, 256
VALUE = np.dtype("<f4")
MAX_DIM = 1 << 16


def block_rows(rows: int) -> int:
    """Rows of a table block: a power of two near rows / 256, so that shards map whole blocks of a useful size."""
    wanted = max(1, rows // BLOCKS)
    return min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, 1 << (wanted - 1).bit_length()))


def zarr_metadata(rows: int, dim: int, block: int, attributes: dict[str, Any]) -> bytes:
    """`zarr.json` of an uncompressed array with one chunk a block."""
    content = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [rows, dim],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [block, dim]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": attributes,
    }
    return json.dumps(content).encode()


class BlockIndex:
    """The chunks of a table's base. Checked when read: what is mapped by it has the size it needs."""

    def __init__(self, storage: LocalStorage, entry: TableEntry) -> None:
        self.storage = storage
        path = storage.part_path(entry.base.part)
        try:
            content = json.loads(path.read_bytes())
            self.rows, self.dim = content["shape"]
            self.block = content["chunk_grid"]["configuration"]["chunk_shape"][0]
            self.parts = [Blob(str(digest), int(size)) for digest, size in content["attributes"]["parts"]]
            numbers = (self.rows, self.dim, self.block)
            sound = all(isinstance(number, int) and number >= 0 for number in numbers) and self.block * self.dim > 0
        except (ValueError, KeyError, TypeError, IndexError, OverflowError):
            sound = False
        if not sound or len(self.parts) != -(-self.rows // self.block) or self.dim != entry.dim or entry.dim > MAX_DIM:
            raise StoreError(f"part {path} is no index of a table of {entry.dim} columns")
        if self.rows > entry.rows or (self.rows < entry.rows and not entry.deltas):
            raise StoreError(f"part {path} has {self.rows} rows, its table {entry.rows}")
        wrong = next((part for part in self.parts if part.size != self.block * self.dim * VALUE.itemsize), None)
        if wrong is not None:
            raise StoreError(f"part {path}: block {wrong.digest} has {wrong.size} bytes, not those of a block")

    def read(self, number: int) -> Array:
        """The real rows of one block."""
        values = np.empty((min(self.block, self.rows - number * self.block), self.dim), VALUE)
        self.read_into(number, values)
        return values

    def read_into(self, number: int, out: Array) -> None:
        """Put the real rows of one block where they are wanted."""
        path = self.storage.part_path(self.parts[number])
        with path.open("rb", buffering=0) as file:
            whole = memoryview(out.reshape(-1).view(np.uint8).data)
            at = 0
            while at < len(whole):
                got = file.readinto(whole[at:])
                if not got:
                    raise StoreError(f"part {path} is truncated")
                at += got


def save_table(staging: Staging, values: Array, block: int) -> TableEntry:
    """Write all rows of a table."""
    rows, dim = values.shape
    parts = [save_block(staging, values[first : first + block], block) for first in range(0, rows, block)]
    return save_index(staging, parts, rows, dim, block)


def save_index(staging: Staging, parts: list[Blob], rows: int, dim: int, block: int) -> TableEntry:
    """Make a table of blocks that are written, whoever wrote them."""
    metadata = zarr_metadata(rows, dim, block, {"parts": [list(part) for part in parts]})
    return TableEntry(rows=rows, dim=dim, base=save_bytes(staging, metadata, len(parts)), deltas=[])


def save_block(staging: Staging, values: Array, block: int) -> Blob:
    """Write one block; the last one is filled up with zeros, as Zarr does."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            file.write(np.ascontiguousarray(values, VALUE).data)
            file.write(bytes((block - values.shape[0]) * values.shape[1] * VALUE.itemsize))

    return staging.add(write)


def save_bytes(staging: Staging, data: bytes, rows: int) -> PartEntry:
    """Write a small part that is in memory; `rows` is how many things it holds."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    part = staging.add(write)
    return PartEntry(digest=part.digest, size=part.size, rows=rows)


def save_delta(staging: Staging, rows: Array, values: Array) -> PartEntry:
    """Write some rows of a table: distinct and sorted."""
    dim = values.shape[1]
    flat = pa.array(np.ascontiguousarray(values, VALUE).reshape(-1))
    columns = {"row": rows.astype(ROW), "value": pa.FixedSizeListArray.from_arrays(flat, dim)}
    part = staging.add(lambda path: write_columns(path, columns))
    return PartEntry(digest=part.digest, size=part.size, rows=rows.shape[0])


def load_delta(storage: LocalStorage, entry: TableEntry, part: PartEntry) -> tuple[Array, Array]:
    """The rows of a delta and their values, over the mapped file. Checked: what they are written to has their rows."""
    path = storage.part_path(part.part)
    types = {"row": pa.int32(), "value": pa.list_(pa.float32(), entry.dim)}
    rows_column, value_column = read_columns(path, types, part.rows)
    rows = rows_column.to_numpy(zero_copy_only=True)
    if rows.shape[0] and (rows[0] < 0 or rows[-1] >= entry.rows or (np.diff(rows) <= 0).any()):
        raise StoreError(f"part {path} is damaged: its rows are not those of a table of {entry.rows}")
    values = value_column.flatten().to_numpy(zero_copy_only=True).reshape(-1, entry.dim)
    return rows, values


def blocks(
    storage: LocalStorage, entry: TableEntry, numbers: Iterable[int] | None = None
) -> Iterator[tuple[int, Array]]:
    """A table (or only the blocks `numbers`) as (first row, vectors), without ever holding all of it."""
    index = BlockIndex(storage, entry)
    deltas = [load_delta(storage, entry, part) for part in entry.deltas]
    for number in range(-(-entry.rows // index.block)) if numbers is None else numbers:
        first = number * index.block
        count = min(index.block, entry.rows - first)
        values = index.read(number) if number < len(index.parts) else np.empty((0, entry.dim), VALUE)
        spans = [np.searchsorted(rows, (first, first + count)) for rows, _ in deltas]
        if values.shape[0] < count or any(begin < end for begin, end in spans):
            whole = np.zeros((count, entry.dim), np.float32)
            whole[: values.shape[0]] = values
            for (rows, written), (begin, end) in zip(deltas, spans, strict=True):
                whole[rows[begin:end] - first] = written[begin:end]
            values = whole
        yield first, values


def load_table(storage: LocalStorage, entry: TableEntry, rows: int | None = None) -> Array:
    """All rows of a table, to do with as the caller likes; with room for more if `rows` says so.

    Mapped where blocks are whole pages: what is never looked at is never read, and what is written stays here.
    """
    index = BlockIndex(storage, entry)  # Before anything is allocated: it refuses shapes that cannot be.
    shape = (max(rows or 0, entry.rows), entry.dim)
    # The last block has fewer rows than its file has room for, and what is behind them is nobody's.
    full = index.rows // index.block
    files = [storage.part_path(part) for part in index.parts[:full]]
    mapped = map_files(files, index.block * entry.dim * VALUE.itemsize, shape[0] * shape[1] * VALUE.itemsize)
    values = np.zeros(shape, VALUE) if mapped is None else mapped.view(VALUE).reshape(shape)
    for number in range(0 if mapped is None else full, len(index.parts)):
        index.read_into(number, values[number * index.block : min((number + 1) * index.block, index.rows)])
    for part in entry.deltas:
        written, their = load_delta(storage, entry, part)
        values[written] = their
    return values


def table_parts(storage: LocalStorage, entry: TableEntry) -> Iterator[PartEntry]:
    """The blocks that a table's index names."""
    for part in BlockIndex(storage, entry).parts:
        yield PartEntry(digest=part.digest, size=part.size, rows=0)
