"""What a store needs of the place it is kept in. A backend is one class that implements `Storage`.

There are two kinds of objects. *Names* (`versions/00000001.json`) are small and are created once. *Parts* are files of
any size, named by the SHA-256 of their bytes. Nothing here knows what names and parts mean. Parts are read as local
files, which can be mapped; a backend for a bucket would give those of its cache. `tests/store/storage/contract.py` has
the tests that every backend has to pass.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from dkge_dist.types import DkgeError

PART_NAME = re.compile(r"[0-9a-f]{64}")
HASH_BLOCK = 1 << 22


class StoreError(DkgeError):
    """The store is missing, damaged, newer than this program, or was changed by another writer meanwhile."""


class MissingError(StoreError):
    """There is no object of that name."""


class Blob(NamedTuple):
    """An immutable file, named by the SHA-256 of its bytes.

    A storage goes by the name alone. `checksum` is what readers verify by (`store.verify`), None if nobody noted it.
    """

    digest: str
    size: int
    checksum: str | None = None


class Removable(NamedTuple):
    """Something that cleaning may remove: a part, named by its digest, or what a killed writer left.

    `unfinished` is an object that did not get its name yet, `staging` the parts that were on their way.
    """

    kind: Literal["part", "unfinished", "staging"]
    name: str
    size: int


class Staging(Protocol):
    """Parts that one process is writing. `written` counts the bytes that were not there before."""

    written: int

    @property
    def storage(self) -> Storage:
        """Where the parts go."""

    def add(self, write: Callable[[Path], None]) -> Blob:
        """Let `write` fill a file and make it a durable part.

        A part that exists already is not written again, but its age starts anew, so that no cleaning removes it before
        this writer publishes. A damaged one is replaced.
        """


class Storage(Protocol):
    """One place that holds one store. `str()` of it names it in messages, as the user did."""

    @property
    def location(self) -> str:
        """What `open_storage` opens it by, in any process of this user."""

    def is_empty(self) -> bool:
        """Is nothing here that belongs to another program? Only then may a store be made here."""

    def read(self, name: str) -> bytes:
        """The bytes of a small object. MissingError if there is none."""

    def create(self, name: str, data: bytes) -> bool:
        """Create a durable object, all of it or nothing. False if the name is taken: nothing is ever overwritten.

        Of several writers, in whatever process, exactly one gets True. Versions are published by this alone.
        """

    def replace(self, name: str, data: bytes) -> str:
        """Write an object that is no part of any version, over the one of that name; where it is, for messages."""

    def names(self, folder: str) -> list[str]:
        """The names below `folder/`, sorted, without unfinished ones."""

    def part_path(self, part: Blob) -> Path:
        """A local file with the part, to be read or mapped. Checks that it is there and has its size, no more."""

    def verify(self, part: Blob) -> None:
        """Read all of a part where it is stored. StoreError if these are not the bytes that it is named by."""

    def staging(self) -> AbstractContextManager[Staging]:
        """A place for parts on their way; it is gone afterwards, whatever happens."""

    def lease(self, name: str) -> AbstractContextManager[None]:
        """Keep other processes out of the work `name`. StoreError if one is at it; gone with the process."""

    def older_than(self, before: float) -> Iterator[Removable]:
        """All parts, and what killed writers left, last written before this time (seconds since 1970)."""

    def remove(self, item: Removable, before: float) -> bool:
        """Remove it, unless it is gone or was written again since. True if it was removed."""

    def workspace(self, name: str) -> Path:
        """An absolute local folder, made or not, for files that change in place and belong to no version."""


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()
