"""Trainings of a store that is in no file system: like `trainings`, with checkpoints as objects and leases for locks.

A training is a note (`training/<key>.json`: the version of the snapshot that is learnt, and when it was last taken up)
and the objects below `training/<key>/`. Every machine that reaches the store can go on with it.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dkge_dist.store.storage import MissingError, Storage, StoreError, open_storage
from dkge_dist.store.trainings import KEY
from dkge_dist.types import DkgeError

FOLDER = "training"


@dataclass(frozen=True)
class RemoteFolder:
    """A folder of objects in a storage. What is written in it has a checksum, which is verified when it is read.

    Tables are written to it in pieces of `block_rows` rows, so that any number of shards can read them.
    """

    location: str
    name: str
    block_rows: int

    def __truediv__(self, name: str) -> RemoteFolder:
        return RemoteFolder(self.location, f"{self.name}/{name}", self.block_rows)

    def __str__(self) -> str:
        return f"{self.location}/{self.name}"

    @property
    def _storage(self) -> Storage:
        return _opened(self.location)

    def write_bytes(self, data: bytes) -> None:
        """Write the object of this name."""
        self._storage.replace(self.name, data)

    def read_bytes(self) -> bytes:
        """The object of this name. MissingError if there is none."""
        return self._storage.read(self.name)

    def names(self) -> list[str]:
        """The objects directly in the folder."""
        return self._storage.names(self.name)

    def remove(self) -> None:
        """Remove the object of this name, and everything in the folder of this name."""
        self._storage.discard(self.name)


@lru_cache(maxsize=4)
def _opened(location: str) -> Storage:
    """Connections are kept: a checkpoint has hundreds of objects."""
    return open_storage(location)


class RemoteTraining:
    """One training; `folder` is a local one for notes of the process that works on it."""

    def __init__(self, storage: Storage, key: str, folder: Path | None = None) -> None:
        self._storage, self._key = storage, key
        self._folder = folder
        self._name, self._lease = f"{FOLDER}/{key}", f"{FOLDER}-{key}"

    @property
    def folder(self) -> Path:
        """Gone when the training is closed."""
        assert self._folder is not None, "only an open training has one"
        return self._folder

    def checkpoints(self, block_rows: int) -> RemoteFolder:
        """Where its checkpoints are."""
        return RemoteFolder(self._storage.location, self._name, block_rows)

    def _note(self) -> tuple[int | None, float]:
        """(The version of its snapshot, when it was taken up); a damaged note is old and says nothing."""
        with suppress(StoreError, ValueError, KeyError, TypeError):
            note = json.loads(self._storage.read(f"{self._name}.json"))
            return int(note["snapshot"]), float(note["at"])
        return None, 0.0

    def take_up(self, snapshot: int) -> None:
        """Say what is learnt."""
        note = json.dumps({"snapshot": snapshot, "at": time.time()})
        self._storage.replace(f"{self._name}.json", note.encode())

    @property
    def snapshot(self) -> int | None:
        """The version of the snapshot that is learnt here, if the training came to say so."""
        return self._note()[0]

    def is_abandoned(self, before: float) -> bool:
        """Does no process work on it, and has none begun to since `before` (seconds since 1970)?"""
        return self._note()[1] < before and not self._storage.is_leased(self._lease)

    def remove_abandoned(self, before: float) -> bool:
        """Remove it if it is abandoned; no process can take it up meanwhile."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._storage.lease(self._lease))
            except StoreError:
                return False
            if self._note()[1] >= before:
                return False
            self.remove()
            return True

    def remove(self) -> None:
        """Remove everything: the training is done."""
        with suppress(MissingError):
            self._storage.discard(self._name)
        self._storage.discard(f"{self._name}.json")


class RemoteTrainings:
    """All trainings of a store that are not published yet."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __iter__(self) -> Iterator[RemoteTraining]:
        names = [name.removesuffix(".json") for name in self._storage.names(FOLDER)]
        return (RemoteTraining(self._storage, name) for name in names if KEY.fullmatch(name))

    @contextmanager
    def open(self, key: str, snapshot: int) -> Iterator[RemoteTraining]:
        """Begin or resume the training named `key`, of a version of a snapshot. Other processes are kept out of it."""
        assert KEY.fullmatch(key), key
        with tempfile.TemporaryDirectory(prefix="dkge-training-") as folder, ExitStack() as stack:
            training = RemoteTraining(self._storage, key, Path(folder))
            try:
                stack.enter_context(self._storage.lease(training._lease))
            except StoreError as error:
                raise DkgeError(f"{training.checkpoints(0)}: is being trained already: {error}") from None
            training.take_up(snapshot)
            yield training
