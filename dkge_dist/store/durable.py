"""File operations that survive a power failure: what has returned is on disk, names included.

A file appears under its name all at once, or not at all. Used by every layer that keeps files.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}")
"""The names of files that a killed process had not given their own name yet, or had given both."""


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
