"""Files of users and of stores: opened only if they are regular ones, written durably and all at once, and locked."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO

UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}")
"""The names of files that a killed process had not given their own name yet, or had given both."""


class LockHeldError(Exception):
    """Another process holds the lock; `holder` is its process id, empty if unknown."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by process {holder or '?'}")
        self.holder = holder


class LockRemovedError(Exception):
    """The lock file was removed between opening and locking it: a lock on it would exclude no other process."""


def open_regular(path: Path, follow_links: bool = True) -> BufferedReader:
    """Open a regular file to read it. OSError, with its path, if it is something else.

    Whatever it is, nothing is waited for: pipes block, and devices may have no end. Below a store no links are
    followed: they could lead out of it.
    """
    return os.fdopen(_regular(path, os.O_RDONLY, follow_links), "rb")


def write_regular(path: Path) -> IO[bytes]:
    """Open a regular file to write it anew, made if there is none. What is no regular file is left as it is."""
    file = os.fdopen(_regular(path, os.O_WRONLY | os.O_CREAT, follow_links=False), "wb")
    file.truncate(0)
    return file


def _regular(path: Path, flags: int, follow_links: bool) -> int:
    links = 0 if follow_links else os.O_NOFOLLOW
    descriptor = os.open(path, flags | links | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = "pipe" if stat.S_ISFIFO(mode) else "device"
    raise OSError(errno.EINVAL, f"a {kind} cannot be read, give a file", str(path))


def read_regular(path: Path, limit: int | None = None, follow_links: bool = True) -> bytes:
    """All bytes of a regular file. OSError if it is none, or has more than `limit` bytes."""
    with open_regular(path, follow_links) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"has {size:,} bytes, more than {limit:,}", str(path))
        return file.read()


def sync(path: Path) -> None:
    """Write a file to disk, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Write a folder to disk with everything below it."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, as durable as the files that will be in it."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def create(path: Path, data: bytes, unfinished: Path | None = None) -> bool:
    """Make a file with this content. False if the name is taken: no file is ever replaced.

    Until it has its name it is in the folder `unfinished`, on the same file system; by default beside its name.
    """
    make_directory(path.parent)
    while True:
        with _unnamed(path, data, unfinished or path.parent) as temporary:
            try:
                os.link(temporary, path)
            except OSError as error:
                # On NFS the answer to a request gets lost, and its repetition finds the name taken: by this very file.
                if not _is_same_file(temporary, path):
                    if isinstance(error, FileExistsError):
                        return False
                    if isinstance(error, FileNotFoundError) and path.parent.is_dir() and not temporary.exists():
                        continue  # It was cleaned away: cleaning took this process for a dead one.
                    raise
            sync(path.parent)
            return True


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except FileNotFoundError:
        return False


def replace(path: Path, data: bytes | Sequence[bytes | memoryview], unfinished: Path | None = None) -> None:
    """Make a file with this content (pieces follow each other), instead of the one of that name if there is one."""
    make_directory(path.parent)
    with _unnamed(path, data, unfinished or path.parent) as temporary:
        os.replace(temporary, path)
        sync(path.parent)


@contextmanager
def _unnamed(path: Path, data: bytes | Sequence[bytes | memoryview], folder: Path) -> Iterator[Path]:
    """A durable file in a folder under a hidden name, which is gone afterwards."""
    temporary = folder / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with temporary.open("xb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with suppress(OSError):  # What was done is done. Cleaning removes what is left.
            temporary.unlink()


@contextmanager
def hold_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock file at `path`, in a folder that exists, until this process ends. Writes its id into the file."""
    try:
        descriptor = _regular(path, os.O_RDWR | os.O_CREAT, follow_links=False)
    except FileNotFoundError:
        raise LockRemovedError(str(path)) from None
    with os.fdopen(descriptor, "r+b") as file:
        _lock(file, path, fcntl.LOCK_EX, wait)
        file.truncate(0)
        file.write(b"%d" % os.getpid())
        file.flush()
        yield


@contextmanager
def hold_existing_lock(path: Path) -> Iterator[None]:
    """Hold the lock file at `path` if there is one, without writing: neither file nor folder looks any younger."""
    with open_regular(path, follow_links=False) as file:
        _lock(file, path, fcntl.LOCK_SH)
        yield


@contextmanager
def lock_is_free(path: Path) -> Iterator[bool]:
    """Does no process hold the lock file at `path`? Then none begins to meanwhile, unless there is no file yet."""
    with ExitStack() as stack:
        is_held = False
        try:
            stack.enter_context(hold_existing_lock(path))
        except FileNotFoundError:
            pass  # No process came to hold it. Making a lock would make its folder a young one.
        except (LockHeldError, LockRemovedError):
            is_held = True
        yield not is_held


def _lock(file: IO[bytes], path: Path, operation: int, wait: bool = False) -> None:
    try:
        fcntl.flock(file, operation if wait else operation | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockHeldError(file.read(32).decode("ascii", "replace")) from None
    if os.fstat(file.fileno()).st_nlink == 0:
        raise LockRemovedError(str(path))
