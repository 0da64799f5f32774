"""What is made once of immutable parts of a store, and kept as a file that all processes of a user map and share.

A file is named by the digests of what it was made of, so that it is made once, and ends with a checksum: what is not
as it was written counts as not there. A folder that cannot be used is done without. Files that nobody opened for a week
are removed when another one is made.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import xxhash

from dkge_dist import files
from dkge_dist.store.parts import map_file
from dkge_dist.store.storage import StoreError
from dkge_dist.types import Array

CACHE = "DKGE_CACHE"
SUM_BYTES = 8
UNUSED_SECONDS = 7 * 86400.0
LOCK = ".lock"
WAIT_SECONDS = 60.0
"""For another process that makes something."""

Made = TypeVar("Made")


def cache_folder() -> Path:
    """Where such files are: with the parts of buckets, as `DKGE_CACHE` says, or in the user's cache."""
    if given := os.environ.get(CACHE):
        return Path(given).absolute()
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "dkge_dist"


def mmap_cached(
    path: Path,
    read: Callable[[Array], Made | None],
    make: Callable[[], Made],
    arrays: Callable[[Made], Sequence[Array]],
) -> Made:
    """What `read` finds in the bytes of a file; where it is not there it is made, and its arrays are written.

    Of several processes, one makes it and the others wait. Arrays are read-only and over the pages of the file.
    """
    if (found := _found(path, read)) is not None:
        return found
    with _alone(path.parent) as is_ours:
        if (found := _found(path, read)) is not None:
            return found
        made = make()
        if is_ours:
            # A disk that is full is no reason not to answer.
            with suppress(StoreError, OSError):
                _remove_unused(path.parent)
                files.replace(path, [*map(_bytes, arrays(made)), _sum(arrays(made))])
            # Of several processes the same pages: those of the file.
            found = _found(path, read)
    return made if found is None else found


def _found(path: Path, read: Callable[[Array], Made | None]) -> Made | None:
    with suppress(StoreError, OSError):
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size < SUM_BYTES or not _is_own(path.parent):
            return None
        data = map_file(path, state.st_size)
        body = data[:-SUM_BYTES]
        if data[-SUM_BYTES:].tobytes() == _sum([body]) and (found := read(body)) is not None:
            with suppress(OSError):  # A folder that can only be read is as good.
                os.utime(path)
            return found
    return None


def _sum(arrays: Sequence[Array]) -> bytes:
    total = xxhash.xxh3_64()
    for array in arrays:
        total.update(_bytes(array))
    return total.digest()


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).view(np.uint8).data


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """While no other process makes anything in a folder. False if the folder is not ours to write to."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = (folder / LOCK).open("ab") if _is_own(folder) else None
    except OSError:
        file = None
    if file is None:
        yield False
        return
    with file:
        _lock(file)
        yield True


def _lock(file: IO[bytes]) -> None:
    """Wait for a lock, but not for ever: if several make the same, that costs time and memory, and nothing else."""
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return  # A file system without locks.


def _is_own(folder: Path) -> bool:
    return folder.stat().st_uid == os.geteuid()


def _remove_unused(folder: Path) -> None:
    before = time.time() - UNUSED_SECONDS
    for path in folder.iterdir():
        with suppress(OSError):
            # Whoever has it mapped keeps its pages.
            if path.name != LOCK and path.lstat().st_mtime < before:
                path.unlink()
