"""The one primitive the store needs of a file system: durable immutable parts, and names that are taken only once.

Everything else (what parts mean, which version is the head) stands above. A backend for an object store implements the
same five operations with a conditional put.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from dkge_dist.types import DkgeError

PART_NAME = re.compile(r"[0-9a-f]{64}")
HASH_BLOCK = 1 << 22


class StoreError(DkgeError):
    """The store is missing, damaged, newer than this program, or was changed by somebody else meanwhile."""


class Blob(NamedTuple):
    """An immutable file, named by the SHA-256 of its bytes."""

    digest: str
    size: int


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


class LocalStorage:
    """A directory on a file system with atomic `link` and `rename`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.location = str(root.resolve())

    def _below(self, *names: str) -> Path:
        """A path in the store. A folder on the way that is a link may lead out of it, to read and to write."""
        folder = self.root
        for name in names[:-1]:
            folder /= name
            if folder.is_symlink():
                raise StoreError(f"{folder} is a link; links are not followed in a store")
        return folder / names[-1]

    def create(self, name: str, data: bytes) -> bool:
        """Make `name` exist with `data`, all of it or nothing. False if the name is taken: it is never replaced."""
        target = self._below(*name.split("/"))
        _make_directory(target.parent)
        temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            _sync_directory(target.parent)
            return True
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """The bytes of a small named object; links are not followed."""
        path = self._below(*name.split("/"))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def names(self, folder: str) -> list[str]:
        """The names in a folder, hidden (unfinished) ones left out."""
        with suppress(FileNotFoundError):
            return sorted(n for n in os.listdir(self.folder(folder)) if not n.startswith("."))
        return []

    def folder(self, name: str) -> Path:
        """A folder of the store, whether it is there or not."""
        return self._below(*name.split("/"), "")

    def part_path(self, part: Blob) -> Path:
        """Where a part lies, after checking that it can be what it says: a plain file of the right size."""
        if not PART_NAME.fullmatch(part.digest):
            raise StoreError(f"{self.root}: {part.digest!r} is no part name")
        path = self.place(part)
        try:
            state = path.lstat()
        except FileNotFoundError:
            raise StoreError(f"part {path} is missing") from None
        if not stat.S_ISREG(state.st_mode):  # A link to one is none.
            raise StoreError(f"part {path} is not a plain file")
        if state.st_size != part.size:
            raise StoreError(f"part {path} has {state.st_size} bytes instead of {part.size}: truncated or replaced")
        return path

    def place(self, part: Blob) -> Path:
        """Where a part belongs, whether it is there or not."""
        return self._below("parts", part.digest[:2], part.digest)

    def is_sound(self, part: Blob) -> bool:
        """Is the part there, with the very bytes that it is named after?"""
        try:
            return sha256_file(self.part_path(part)) == part.digest
        except (StoreError, OSError):
            return False

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """A private folder for parts on their way; it is gone afterwards, whatever happens."""
        folder = self._below("staging", secrets.token_hex(8))
        folder.mkdir(parents=True)
        try:
            yield Staging(self, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class Staging:
    """Parts being written by one process."""

    def __init__(self, storage: LocalStorage, folder: Path) -> None:
        self.storage = storage
        self.folder = folder
        self.written = 0

    def add(self, write: Callable[[Path], None]) -> Blob:
        """Let `write` fill a file and make it a durable part."""
        temporary = self.folder / secrets.token_hex(8)
        write(temporary)
        part = Blob(sha256_file(temporary), temporary.stat().st_size)
        target = self.storage.place(part)
        if self.storage.is_sound(part):
            # Counts as new again: whoever clears old parts away must not take it from under this writer.
            os.utime(target)
        else:
            _make_directory(target.parent)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
            self.written += part.size
        # Also when another writer brought it: that one may die before it comes to this.
        _sync_directory(target.parent)
        return part


def _make_directory(path: Path) -> None:
    """Make a directory and those above it, as durable as the files that will be in it."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    """Make the names in a directory as durable as the files they name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Storage = LocalStorage


def open_storage(location: str) -> LocalStorage:
    """The storage at a location."""
    return LocalStorage(Path(location))
