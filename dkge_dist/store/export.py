"""Vectors for other programs: Parquet, NumPy, safetensors or Zarr, in a folder that appears at once.

Vectors are read and written some thousand rows at a time, so that a table never has to fit into memory (safetensors is
the exception: its files are written in one go).
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy

from dkge_dist.kernels.sets import distinct
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage
from dkge_dist.store.tables import VALUE, StoredTable, block_rows
from dkge_dist.types import Array, UsageError

Format = Literal["parquet", "npy", "safetensors", "zarr"]
RUN_ROWS = 16_384


class Rows(Protocol):
    """Vectors that are read by slices: an array, or a table that is not in memory."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(Rows, dimension)."""

    def __getitem__(self, rows: slice, /) -> Array:
        """A run of vectors."""


class TableRows:
    """Some rows (ascending) of a stored table. Only the blocks of the slice that is asked for are read."""

    def __init__(self, storage: Storage, entry: TableEntry, rows: Array) -> None:
        self._table = StoredTable(storage, entry)
        self._rows = rows
        self.shape = (rows.shape[0], entry.dim)

    def __getitem__(self, wanted: slice, /) -> Array:
        rows = self._rows[wanted]
        block = self._table.index.block
        out = np.empty((rows.shape[0], self.shape[1]), VALUE)
        for number in distinct(rows // block):
            begin, end = np.searchsorted(rows, (number * block, (number + 1) * block))
            out[begin:end] = self._table.rows(int(number))[rows[begin:end] - number * block]
        return out


class Vectors(NamedTuple):
    """Vectors of one kind of objects, with their permanent rows, their labels, and display names if there are any."""

    noun: str
    rows: Array
    labels: Sequence[str]
    values: Rows
    names: Sequence[str | None] | None = None

    def runs(self, length: int = RUN_ROWS) -> Iterator[slice]:
        """Where one run of rows after the other is."""
        return (slice(first, first + length) for first in range(0, len(self.rows), length))


def write_vectors(out: Path, format: Format, vectors: Sequence[Vectors]) -> list[str]:
    """Write to the folder `out`, which must be new or empty; the names of the files."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: exists already; name a new or empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.parent / f".{out.name}.{secrets.token_hex(8)}"
    temporary.mkdir()
    try:
        WRITERS[format](temporary, vectors)
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(path.name for path in out.iterdir())


def _parquet(folder: Path, vectors: Sequence[Vectors]) -> None:
    for some in vectors:
        dim = some.values.shape[1]
        types = {"label": pa.large_string(), "row": pa.int32(), "vector": pa.list_(pa.float32(), dim)}
        if some.names is not None:
            types["name"] = pa.large_string()
        schema = pa.schema(types.items())
        with pq.ParquetWriter(folder / f"{some.noun}.parquet", schema) as writer:
            for run in some.runs():
                flat = pa.array(np.ascontiguousarray(some.values[run], np.float32).reshape(-1))
                columns = {
                    "label": pa.array(some.labels[run], pa.large_string()),
                    "row": pa.array(some.rows[run].astype(np.int32)),
                    "vector": pa.FixedSizeListArray.from_arrays(flat, dim),
                }
                if some.names is not None:
                    columns["name"] = pa.array(some.names[run], pa.large_string())
                writer.write_table(pa.table(columns, schema))


def _npy(folder: Path, vectors: Sequence[Vectors]) -> None:
    for some in vectors:
        into = np.lib.format.open_memmap(folder / f"{some.noun}.npy", "w+", VALUE, some.values.shape)
        for run in some.runs():
            into[run] = some.values[run]
        into.flush()
        _labels(folder, some)


def _safetensors(folder: Path, vectors: Sequence[Vectors]) -> None:
    tensors = {some.noun: np.ascontiguousarray(some.values[:], np.float32) for some in vectors}
    safetensors.numpy.save_file(tensors, folder / "vectors.safetensors")
    for some in vectors:
        _labels(folder, some)


def _zarr(folder: Path, vectors: Sequence[Vectors]) -> None:
    """A group with an array for each kind, uncompressed: random bits of vectors do not get smaller."""
    import zarr  # Here, because it takes most of a second that other formats need not wait for.

    group = zarr.create_group(folder, zarr_format=3)
    for some in vectors:
        rows, dim = some.values.shape
        block = block_rows(rows)
        array = group.create_array(
            some.noun, shape=(rows, dim), chunks=(block, dim), dtype=VALUE, compressors=None, fill_value=0.0
        )
        for run in some.runs(block):
            array[run] = some.values[run]
        _labels(folder, some)


def _labels(folder: Path, vectors: Vectors) -> None:
    """As a JSON list, since labels may hold tabs and line ends; display names as another, null for none."""
    for name, values in ((vectors.noun, vectors.labels), (f"{vectors.noun}-names", vectors.names)):
        if values is not None:
            text = json.dumps(list(values), ensure_ascii=False, indent=0)
            (folder / f"{name}.json").write_text(text, encoding="utf-8")


WRITERS = {"parquet": _parquet, "npy": _npy, "safetensors": _safetensors, "zarr": _zarr}
