"""Files that a user names, opened for reading. Pipes, which block, and devices, which may have no end, are refused."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path, follow_links: bool = True) -> BufferedReader:
    """Open a regular file. OSError, with its path, if it is none; whatever it is, nothing is waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            kind = "pipe" if stat.S_ISFIFO(mode) else "device"
            raise OSError(errno.EINVAL, f"a {kind} cannot be read, give a file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, limit: int | None = None) -> bytes:
    """All bytes of a regular file. OSError if it is none, or has more than `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"has {size:,} bytes, more than {limit:,}", str(path))
        return file.read()
