"""Files one behind the other in memory, as one array. It may be written to; the files stay as they are.

A page of a file that nobody looks at costs nothing, and one that is only read is the system's own copy of it: a table
of gigabytes is there at once, and an update pays for the rows that it touches. Only Linux is asked to do it.
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

from dkge_dist.types import Array

MAP_FIXED = 0x10
MAP_FAILED = ctypes.c_void_p(-1).value


@cache
def _mmap() -> Any:
    """The system call. Python's own maps a file wherever there is room, not at a given place."""
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    return call


def map_files(files: Sequence[Path], size: int, total: int) -> Array | None:
    """`total` bytes that begin with the files, of `size` bytes each; zeros follow. None where that cannot be done.

    The files must not change any more: whoever cuts one short while it is mapped ends the reader by a signal.
    """
    if sys.platform != "linux" or not files or size % mmap.PAGESIZE:
        return None
    try:
        # One object owns all of it and gives all of it back, whatever is laid over it.
        whole = np.frombuffer(mmap.mmap(-1, total, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        for number, path in enumerate(files):
            _lay(path, int(whole.ctypes.data) + number * size, size)
    except OSError:
        # Such as more files than a process may map. Whoever reads them instead finds out what is wrong with them.
        return None
    return whole


def _lay(path: Path, place: int, size: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Fetched from a slow disk in one go and meanwhile, instead of page by page when somebody waits for it.
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_WILLNEED)
        protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED
        if _mmap()(place, size, protection, flags, descriptor, 0) == MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    finally:
        os.close(descriptor)
