"""Files in memory without reading them: one file, read-only, or many as one array that may be written to.

A page that is never looked at costs nothing, and one that is only read is shared with the page cache: a table of
gigabytes is there at once, and an update pays for the rows that it touches. Files themselves never change. A file that
is truncated while it is mapped ends its reader by a signal; parts are immutable, and their sizes are checked before.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dkge_dist.store.storage import StoreError
from dkge_dist.types import Array

MAP_FIXED = 0x10
MAP_FAILED = ctypes.c_void_p(-1).value


@cache
def _mmap() -> Any:
    """The system call. Python's own maps a file at any address, not at a given one."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return call


@cache
def _madvise() -> Any:
    call = ctypes.CDLL(None, use_errno=True).madvise
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


def map_file(path: Path, size: int) -> Array:
    """The first `size` bytes of a part, read-only."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise StoreError(f"part {path} cannot be mapped: {error}") from None


def map_files(files: Sequence[Path], size: int, total: int, ahead: bool = True) -> Array | None:
    """`total` bytes, writable, that begin with the files, of `size` bytes each; zeros follow.

    None where it cannot be done: not on Linux, or files that are no whole pages. `ahead`: most of it will be looked at.
    """
    if sys.platform != "linux" or not files or size % mmap.PAGESIZE:
        return None
    try:
        # One object owns the whole range and unmaps all of it, whatever is mapped over it.
        whole = np.frombuffer(mmap.mmap(-1, total, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        for number, path in enumerate(files):
            _map_at(path, int(whole.ctypes.data) + number * size, size, ahead)
    except OSError:
        # Such as more files than a process may map. Reading them instead names what is wrong.
        return None
    return whole


def forget_pages(data: Array) -> None:
    """Let go of the pages of an array of `map_files` that nobody wrote to; looked at again, they come back."""
    # Best effort: it is about memory that the system can take back by itself.
    _madvise()(int(data.ctypes.data), data.nbytes, mmap.MADV_DONTNEED)


def _map_at(path: Path, address: int, size: int, ahead: bool) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if ahead:
            # A slow disk is read ahead in one go, instead of page by page when the vectors are needed.
            os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_WILLNEED)
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED
        if _mmap()(address, size, protection, flags, descriptor, 0) == MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)
