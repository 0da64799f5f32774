"""What a store needs of the place it is kept in. A backend is one class that implements `Storage`.

There are two kinds of objects. *Names* (`versions/00000001.json`) are small and are created once. *Parts* are files of
any size, named by the SHA-256 of their bytes. Nothing here knows what names and parts mean. Parts are read as local
files, which can be mapped; a bucket gives those of its cache. `tests/store/storage/contract.py` has
the tests that every backend has to pass.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import xxhash

from dkge_dist.files import open_regular
from dkge_dist.types import DkgeError

PART_NAME = re.compile(r"[0-9a-f]{64}")
HASH_BLOCK = 1 << 22


class StoreError(DkgeError):
    """The store is missing, damaged, newer than this program, or was changed by another writer meanwhile."""


class MissingError(StoreError):
    """There is no object of that name."""


class Blob(NamedTuple):
    """An immutable file, named by the SHA-256 of its bytes. A storage goes by that; readers verify by `checksum`."""

    digest: str
    size: int
    checksum: str


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

    def add(self, write: Callable[[Path], object]) -> Blob:
        """Let `write` fill a file and make it a durable part.

        A part that exists already is not written again, but its age starts anew, so that no cleaning removes it before
        this writer publishes. A damaged one is replaced.
        """

    def add_all(self, writes: Iterable[Callable[[Path], object]]) -> list[Blob]:
        """Add several parts, at once where that is faster."""


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
        Answers get lost: a request that was carried out may fail, and its repetition finds the name taken, by itself.
        So a backend finds out whose object it is before it says False or raises an error. One that can only compare
        the bytes may do that: every manifest carries a token of its writer, so that no two have the same bytes.
        """

    def replace(self, name: str, data: bytes) -> str:
        """Write an object that is no part of any version, over the one of that name; where it is, for messages.

        Of several writers at once, any may be the last. It keeps rejected lines, and a hint of the newest version.
        """

    def names(self, folder: str) -> list[str]:
        """The names below `folder/`, sorted, without unfinished ones."""

    def part_path(self, part: Blob) -> Path:
        """A local file with the part, to be read or mapped. Checks that it is there and has its size, no more."""

    def drop_copy(self, part: Blob) -> bool:
        """The file that `part_path` gave is damaged. True if it was a copy, and the next one will be another."""

    def fetch(self, parts: Iterable[Blob]) -> None:
        """Parts that will be read soon: a backend whose parts are far away brings them, several at once."""

    def require(self, parts: Iterable[Blob]) -> None:
        """StoreError if one of these is not stored, or not with its size. None of them is read or fetched.

        Asked of all new parts of a version right before it is published.
        """

    def verify(self, part: Blob) -> None:
        """Read all of a part where it is stored. StoreError if these are not the bytes that it is named by."""

    def staging(self) -> AbstractContextManager[Staging]:
        """A place for parts on their way; it is gone afterwards, whatever happens."""

    def lease(self, name: str) -> AbstractContextManager[None]:
        """Keep other processes out of the work `name`. StoreError if one is at it; gone with the process."""

    def is_leased(self, name: str) -> bool:
        """Is a process at the work `name`? Looking leaves no trace."""

    def staging_since(self) -> float | None:
        """When the oldest staging began that a process, on whatever machine, is at work in; None if there is none.

        That of a process that died may count for a few minutes more, where there is no way to tell at once.
        """

    def older_than(self, before: float) -> Iterator[Removable]:
        """All parts, and what killed writers left, last written before this time (seconds since 1970)."""

    def remove(self, item: Removable, before: float) -> bool:
        """Remove it, unless it is gone or was written again since. True if it was removed.

        A writer may add the same part at any moment of this: what `add` gave it stays, though it was old when this
        looked first. (Hence: take it out of sight, look again, and only then remove it or put it back.) If this process
        is killed halfway, the part is removed or it can still be read, and no reader has to know.
        """

    def workspace(self, name: str) -> Path | None:
        """An absolute folder, made or not, for files that change in place and belong to no version.

        None where there is none that every machine sees that reaches the store.
        """

    def discard(self, name: str) -> None:
        """Remove the object of that name and all below `name/`: no part of any version. Nothing, if there is none."""


def blob_of(path: Path) -> Blob:
    """A file as it is named and verified."""
    digest, checksum, size = hashlib.sha256(), xxhash.xxh3_64(), 0
    with open_regular(path, follow_links=False) as file:
        while block := file.read(HASH_BLOCK):
            digest.update(block)
            checksum.update(block)
            size += len(block)
    return Blob(digest.hexdigest(), size, checksum.hexdigest())
