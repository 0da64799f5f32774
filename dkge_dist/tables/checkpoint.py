"""The files of a table in a training checkpoint: one `.npy` a trained field and one for its optimizer state.

The files hold the whole table, whoever writes it: a shard writes its blocks, so that a training that stopped on 16
shards goes on on 3, or in one process. Space is reserved before anything is written and rows are written, not mapped:
a full disk is an error with a file name, never a signal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.tables.shard import Shard
from dkge_dist.types import TRAINED, Array, DkgeError

VALUE = np.dtype("<f4")


class Span(NamedTuple):
    """`size` rows of a table from `first` on, which lie in a shard from `local` on."""

    local: int
    first: int
    size: int


def _names() -> Iterator[tuple[str, bool]]:
    """(file name, does a row hold a vector)."""
    for field in TRAINED:
        yield f"{field}.npy", True
        yield f"{field}-state.npy", False


def _arrays(shard: Shard) -> Iterator[tuple[str, Array]]:
    arrays = [array for field in TRAINED for array in (shard.values[field], shard.state[field])]
    return zip((name for name, _ in _names()), arrays, strict=True)


def create_files(folder: Path, rows: int, dim: int) -> None:
    """Make the files of a table, with their space reserved."""
    for name, is_vector in _names():
        shape = (rows, dim) if is_vector else (rows,)
        header = {"descr": VALUE.str, "fortran_order": False, "shape": shape}
        with (folder / name).open("xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.flush()
            size = file.tell() + int(np.prod(shape)) * VALUE.itemsize
            try:
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise DkgeError(f"{folder / name}: {error.strerror} ({size:,} bytes are needed)") from None


def write_rows(folder: Path, shard: Shard, spans: Sequence[Span]) -> None:
    """Write the rows and the optimizer state of a shard into the files, and make them durable."""
    for name, values in _arrays(shard):
        row_bytes = VALUE.itemsize * (values.shape[1] if values.ndim == 2 else 1)
        with (folder / name).open("r+b") as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            begin = file.tell()
            for local, first, size in spans:
                file.seek(begin + first * row_bytes)
                file.write(np.ascontiguousarray(values[local : local + size], VALUE).data)
            file.flush()
            os.fsync(file.fileno())


def read_rows(folder: Path, shard: Shard, spans: Sequence[Span], rows: int) -> None:
    """Load the rows and the optimizer state of a shard of a table of `rows` rows."""
    for name, values in _arrays(shard):
        stored = np.load(folder / name, mmap_mode="r", allow_pickle=False)
        if stored.shape != (rows, *values.shape[1:]):
            raise DkgeError(f"{folder / name}: holds {stored.shape} instead of {(rows, *values.shape[1:])}")
        for local, first, size in spans:
            values[local : local + size] = stored[first : first + size]
