"""Locks between processes: a lock file that one process holds. The lock ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO


class LockHeldError(Exception):
    """Another process holds the lock; `holder` is its process id, empty if unknown."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by process {holder or '?'}")
        self.holder = holder


class LockRemovedError(Exception):
    """The lock file was removed between opening and locking it: a lock on it would exclude no other process."""


@contextmanager
def hold(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold the lock file at `path`, in a folder that exists. Writes the process id into the file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except FileNotFoundError:
        raise LockRemovedError(str(path)) from None
    with os.fdopen(descriptor, "r+") as file:
        _lock(file, fcntl.LOCK_EX, wait)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def hold_existing(path: Path) -> Iterator[None]:
    """Hold the lock file at `path` if there is one, without writing: neither file nor folder looks any younger."""
    with path.open("r") as file:
        _lock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def unheld(path: Path) -> Iterator[bool]:
    """Does no process hold the lock file at `path`? Then none begins to meanwhile, unless there is no file yet."""
    with ExitStack() as stack:
        is_held = False
        try:
            stack.enter_context(hold_existing(path))
        except FileNotFoundError:
            pass  # No process came to hold it. Making a lock would make its folder a young one.
        except (LockHeldError, LockRemovedError):
            is_held = True
        yield not is_held


def _lock(file: IO[str], operation: int, wait: bool = False) -> None:
    try:
        fcntl.flock(file, operation if wait else operation | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise LockHeldError(file.read()) from None
    if os.fstat(file.fileno()).st_nlink == 0:
        raise LockRemovedError(file.name)
