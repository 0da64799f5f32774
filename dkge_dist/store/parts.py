"""Parts as they are written and read: mapped, compared with their checksum before anybody sees a byte, as columns.

A part is named by its SHA-256, which takes a second a gigabyte or two. Beside it stands XXH3 (64 bits), which is as
fast as memory and finds what goes wrong by itself; it does not stop a forger.

A page that is never looked at costs nothing, and one that is only read is shared with the page cache: a table of
gigabytes is there at once, and an update pays for the rows that it touches. Files themselves never change. A file that
is truncated while it is mapped ends its reader by a signal; parts are immutable, and their sizes are checked before.

What every version has to know of the whole past are 64-bit hashes in *runs*: sorted, each a part at least four times as
long as the next one. So there are few of them to name and to search, what was written once is rarely written again, and
looking for a few hashes reads a few pages, however long the history is. Different things of the same hash are told
apart by whoever asks, or count as one where that does no harm.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pyarrow as pa
import xxhash

from dkge_dist.files import open_regular
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.storage import Blob, Staging, Storage, StoreError
from dkge_dist.types import Array, UsageError

When = Literal["mapped", "folded"]
SETTING = "DKGE_VERIFY"
MAP_FIXED = 0x10
MAP_FAILED = ctypes.c_void_p(-1).value
RUN_GROWTH = 4
"""A run is at least so many times as long as the next one."""
HASH_TYPES = {"hash": pa.uint64()}
VERSION_TYPES = {**HASH_TYPES, "version": pa.int64()}
"""Hashes with the version that each leads to."""


class DamagedPartError(StoreError):
    """The bytes of a part are not those that were written."""


def when_blocks() -> When:
    """When blocks of tables are verified: whenever they are `mapped`, or only when they are `folded` into new ones.

    All other parts are always verified. An environment variable says it, because every command reads stores, most of
    them without any settings, and shards do so on machines of their own.
    """
    chosen = os.environ.get(SETTING, "mapped")
    if chosen not in get_args(When):
        raise UsageError(f"{SETTING}={chosen}: blocks are verified when they are {' or '.join(get_args(When))}")
    return cast(When, chosen)


def open_part(storage: Storage, part: Blob) -> tuple[Path, Array]:
    """The verified bytes of a part, read-only, over its mapped file; and its path, for messages."""
    while True:
        path = storage.part_path(part)
        data = map_file(path, part.size) if part.size else np.empty(0, np.uint8)
        try:
            verify_bytes(path, part, data)
            return path, data
        except DamagedPartError:
            if not storage.drop_copy(part):
                raise


def verify_bytes(path: Path, part: Blob, data: Array) -> None:
    """DamagedPartError if these are not the bytes of the part."""
    if xxhash.xxh3_64_hexdigest(data.data) != part.checksum:
        raise DamagedPartError(
            f"part {path} is damaged: its bytes are not those that were written; `dkge check` names all such parts"
        )


@cache
def _libc() -> Any:
    """The system calls. Python's own `mmap` maps a file at any address, not at a given one."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return library


def map_file(path: Path, size: int) -> Array:
    """The first `size` bytes of a part, read-only."""
    try:
        with open_regular(path, follow_links=False) as file:
            return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError) as error:
        raise StoreError(f"part {path} cannot be mapped: {error}") from None


def map_files(files: Sequence[Path], size: int, total: int, ahead: bool = True) -> Array | None:
    """`total` bytes, writable, that begin with the files, of `size` bytes each; zeros follow.

    None where it cannot be done: not on Linux, or files that are no whole pages. `ahead`: most of it will be looked at.
    """
    if sys.platform != "linux" or not files or size % mmap.PAGESIZE:
        return None
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED
    try:
        # One object owns the whole range and unmaps all of it, whatever is mapped over it.
        whole = np.frombuffer(mmap.mmap(-1, total, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        for number, path in enumerate(files):
            with open_regular(path, follow_links=False) as file:
                if ahead:
                    # A slow disk is read ahead in one go, instead of page by page when the vectors are needed.
                    os.posix_fadvise(file.fileno(), 0, size, os.POSIX_FADV_WILLNEED)
                address = int(whole.ctypes.data) + number * size
                if _libc().mmap(address, size, protection, flags, file.fileno(), 0) == MAP_FAILED:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    except OSError:
        # Such as more files than a process may map. Reading them instead names what is wrong.
        return None
    return whole


def forget_pages(data: Array) -> None:
    """Let go of the pages of an array of `map_files` that nobody wrote to; looked at again, they come back."""
    # Best effort: it is about memory that the system can take back by itself.
    _libc().madvise(int(data.ctypes.data), data.nbytes, mmap.MADV_DONTNEED)


def save_bytes(staging: Staging, data: bytes, rows: int) -> PartEntry:
    """Write a small part that is in memory; `rows` is how many entries it holds."""
    return PartEntry.of(staging.add(lambda path: path.write_bytes(data)), rows)


def save_columns(staging: Staging, columns: Mapping[str, Array | pa.Array]) -> PartEntry:
    """Write equally long columns as an Arrow IPC file of one record batch."""

    def write(path: Path) -> None:
        arrays = [c if isinstance(c, pa.Array) else column_of(c) for c in columns.values()]
        batch = pa.record_batch(arrays, names=list(columns))
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    return PartEntry.of(staging.add(write), len(next(iter(columns.values()))))


def read_columns(storage: Storage, part: PartEntry, types: Mapping[str, pa.DataType]) -> list[pa.Array]:
    """The columns of a part, verified, over the mapped file."""
    path, data = open_part(storage, part.part)
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


def add_run(staging: Staging, runs: Sequence[PartEntry], columns: Mapping[str, Array]) -> list[PartEntry]:
    """The runs with more hashes, each with the values of the other columns. Equal entries become one."""
    types = VERSION_TYPES if "version" in columns else HASH_TYPES
    kept, added = list(runs), _distinct([[columns[name] for name in types]])
    if not added[0].shape[0]:
        return kept
    while kept and kept[-1].rows < RUN_GROWTH * added[0].shape[0]:
        added = _distinct([read_numbers(staging.storage, kept.pop(), types), added])
    return [*kept, save_columns(staging, dict(zip(types, added, strict=True)))]


def has_hashes(runs: Sequence[Array], hashes: Array) -> Array:
    """For each hash: is it in one of the runs?"""
    found = np.zeros(hashes.shape[0], bool)
    for known in runs:
        found |= known[np.minimum(np.searchsorted(known, hashes), known.shape[0] - 1)] == hashes
    return found


def versions_of(storage: Storage, runs: Sequence[PartEntry], wanted: int) -> list[int]:
    """The versions that a hash leads to: of what is looked for, or of something else with that hash."""
    found: list[int] = []
    for run in runs:
        known, version = read_numbers(storage, run, VERSION_TYPES)
        begin, end = (int(np.searchsorted(known, np.uint64(wanted), side)) for side in ("left", "right"))
        found += version[begin:end].tolist()
    return found


def _distinct(groups: list[list[Array]]) -> list[Array]:
    """All columns sorted, by the first one first, without repetitions."""
    columns = [np.concatenate(some) for some in zip(*groups, strict=True)]
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    is_new = np.ones(order.shape[0], bool)
    is_new[1:] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
    return [column[is_new] for column in ordered]
