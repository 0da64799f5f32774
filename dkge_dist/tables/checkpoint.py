"""The files of a table in a training checkpoint: one `.npy` a trained field and one for its optimizer state.

The files hold the whole table, whoever writes it: a shard writes its blocks, so that a training that stopped on 16
shards goes on on 3, or in one process. In a storage that is no file system an object holds some rows of all of them.
Space is reserved before anything is written and rows are written, not mapped:
a full disk is an error with a file name, never a signal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dkge_dist.store.remote_trainings import RemoteFolder
from dkge_dist.store.storage import MissingError
from dkge_dist.tables.shard import Shard
from dkge_dist.types import TRAINED, Array, DkgeError

VALUE = np.dtype("<f4")


CheckpointFolder = Path | RemoteFolder
AT_ONCE = 8
"""Objects that are read or written at the same time."""


class DamagedCheckpointError(DkgeError):
    """A file of a checkpoint is missing, truncated, or holds something else."""


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


def create_files(folder: CheckpointFolder, rows: int, dim: int) -> None:
    """Make the files of a table, with their space reserved."""
    if isinstance(folder, RemoteFolder):
        return
    folder.mkdir(exist_ok=True)
    for name, is_vector in _names():
        shape = (rows, dim) if is_vector else (rows,)
        header = {"descr": VALUE.str, "fortran_order": False, "shape": shape}
        size = int(np.prod(shape)) * VALUE.itemsize
        with _named_errors(folder / name, size), (folder / name).open("xb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            file.flush()
            os.posix_fallocate(file.fileno(), 0, file.tell() + size)


def write_rows(folder: CheckpointFolder, shard: Shard, spans: Sequence[Span]) -> None:
    """Write the rows and the optimizer state of a shard into the files, and make them durable."""
    if isinstance(folder, RemoteFolder):
        _write_objects(folder, shard, spans)
        return
    for name, values in _arrays(shard):
        row_bytes = VALUE.itemsize * (values.shape[1] if values.ndim == 2 else 1)
        # Without a buffer: it would write back what it read around these rows, over the rows of other shards.
        with _named_errors(folder / name, values.nbytes), (folder / name).open("r+b", buffering=0) as file:
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            begin = file.tell()
            for local, first, size in spans:
                rows = np.ascontiguousarray(values[local : local + size], VALUE)
                _write_at(file.fileno(), begin + first * row_bytes, rows.reshape(-1).view(np.uint8).data)
            os.fsync(file.fileno())


def _write_at(descriptor: int, position: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(descriptor, data, position)
        data, position = data[written:], position + written


@contextmanager
def _named_errors(path: Path, size: int) -> Iterator[None]:
    """What the system refuses is an error that names the file and how much was to be written."""
    try:
        yield
    except OSError as error:
        raise DkgeError(f"{path}: {error.strerror} ({size:,} bytes are needed)") from None


def read_rows(folder: CheckpointFolder, shard: Shard, spans: Sequence[Span], rows: int) -> None:
    """Load the rows and the optimizer state of a shard of a table of `rows` rows."""
    if isinstance(folder, RemoteFolder):
        _read_objects(folder, shard, spans, rows)
        return
    for name, values in _arrays(shard):
        stored = _mapped(folder / name, (rows, *values.shape[1:]))
        for local, first, size in spans:
            values[local : local + size] = stored[first : first + size]


def _pieces(spans: Sequence[Span], block: int) -> list[Span]:
    """The same rows in spans of one block, as any shard would write them."""
    return [
        Span(local + at, first + at, min(block, size - at))
        for local, first, size in spans
        for at in range(0, size, block)
    ]


def _object(folder: RemoteFolder, first: int) -> RemoteFolder:
    return folder / f"{first:012d}.safetensors"


def _write_objects(folder: RemoteFolder, shard: Shard, spans: Sequence[Span]) -> None:
    def write(piece: Span) -> None:
        rows = slice(piece.local, piece.local + piece.size)
        arrays = {name: np.ascontiguousarray(values[rows], VALUE) for name, values in _arrays(shard)}
        _object(folder, piece.first).write_bytes(safetensors.numpy.save(arrays))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(write, _pieces(spans, folder.block_rows)))


def _read_objects(folder: RemoteFolder, shard: Shard, spans: Sequence[Span], rows: int) -> None:
    def read(piece: Span) -> None:
        path = _object(folder, piece.first)
        try:
            stored = safetensors.numpy.load(path.read_bytes())
        except (MissingError, SafetensorError) as error:
            raise DamagedCheckpointError(f"{path}: {error}") from None
        for name, values in _arrays(shard):
            part = values[piece.local : piece.local + piece.size]
            found = stored.get(name, np.empty(0))
            if (found.shape, found.dtype) != (part.shape, VALUE):
                raise DamagedCheckpointError(
                    f"{path}: {name} holds {found.shape} instead of {part.shape} of a table of {rows} rows"
                )
            part[:] = found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(read, _pieces(spans, folder.block_rows)))


def _mapped(path: Path, shape: tuple[int, ...]) -> Array:
    """A file as an array, after checking that it holds what it is to hold."""
    try:
        stored = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise DamagedCheckpointError(f"{path}: {error}") from None
    for found, expected in ((stored.shape, shape), (stored.dtype, VALUE)):
        if found != expected:
            raise DamagedCheckpointError(f"{path}: holds {found} instead of {expected}")
    return stored
