"""Checkpoints of a training: whole folders that appear at once, so that a kill at any moment leaves the one before.

Two lines are kept, `last` (to resume from) and `best` (to end with). `store.trainings` gives the folder they are in to
one process at a time, and removes what a killed one left unfinished: what has a hidden name.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from dkge_dist import files
from dkge_dist.store.remote_trainings import RemoteFolder
from dkge_dist.store.storage import MissingError
from dkge_dist.tables.checkpoint import CheckpointFolder
from dkge_dist.types import DkgeError

Line = Literal["last", "best"]
PROGRESS = "progress.json"
NAME = re.compile(r"(last|best)-([0-9]{9})")


class Checkpoints:
    """The checkpoints in the folder of one training: of a file system, or of objects in a storage."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self._home = _Objects(folder) if isinstance(folder, RemoteFolder) else _Folders(folder)

    def save(self, line: Line, write: Callable[[Any], None], progress: dict[str, Any]) -> None:
        """Let `write` fill a folder and make it the newest of its line; the one before goes once this is durable."""
        before = self._numbers(line)
        content = {"sha256": _checksum(progress), "progress": progress}
        try:
            self._home.add(_name(line, max(before, default=0) + 1), write, json.dumps(content).encode())
        except OSError as error:
            # Another attempt would meet the same: the user has to make room.
            kept = f"{_name(line, max(before))} is kept" if before else "there was none before"
            raise DkgeError(f"{self.folder}: checkpoint not saved: {error.strerror}; {kept}") from error
        for number in before:
            self._home.remove(_name(line, number))

    def load(self, line: Line) -> tuple[Any, dict[str, Any]] | None:
        """The newest checkpoint of a line: (its folder, its progress)."""
        numbers = self._numbers(line)
        if not numbers:
            return None
        name = _name(line, max(numbers))
        folder = self.folder / name
        try:
            content = json.loads(self._home.progress(name))
            progress: dict[str, Any] = content["progress"]
            if content["sha256"] != _checksum(progress):
                raise ValueError(f"{PROGRESS} does not have the checksum that it names")
        except (OSError, MissingError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.damaged(folder, error) from None
        return folder, progress

    def damaged(self, folder: CheckpointFolder, why: object) -> DkgeError:
        """What to tell of a checkpoint that cannot be used."""
        return DkgeError(f"{folder}: damaged checkpoint ({why}); remove {self.folder} to start afresh")

    def forget(self) -> None:
        """Start afresh."""
        for name in self._home.names():
            if NAME.fullmatch(name):
                self._home.remove(name)

    def _numbers(self, line: Line) -> list[int]:
        names = (NAME.fullmatch(name) for name in self._home.names())
        return sorted(int(name[2]) for name in names if name and name[1] == line)


class _Folders:
    """A checkpoint is a folder that gets its name when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()] if self.folder.exists() else []

    def add(self, name: str, write: Callable[[Path], None], progress: bytes) -> None:
        temporary = self.folder / f".{secrets.token_hex(8)}"
        try:
            temporary.mkdir(parents=True)
            write(temporary)
            (temporary / PROGRESS).write_bytes(progress)
            files.sync_tree(temporary)
            temporary.rename(self.folder / name)
            files.sync(self.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def progress(self, name: str) -> bytes:
        for path in (self.folder / name).iterdir():
            # A pipe would be waited for when it is read, and a link may lead anywhere.
            files.open_regular(path, follow_links=False).close()
        return files.read_regular(self.folder / name / PROGRESS, follow_links=False)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)


class _Objects:
    """A checkpoint is there when its progress is, which is written last and removed first.

    What a killed process left without a progress is written over by the next one of that number.
    """

    def __init__(self, folder: RemoteFolder) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        return [name.removesuffix(".json") for name in self.folder.names() if name.endswith(".json")]

    def add(self, name: str, write: Callable[[RemoteFolder], None], progress: bytes) -> None:
        write(self.folder / name)
        (self.folder / f"{name}.json").write_bytes(progress)

    def progress(self, name: str) -> bytes:
        return (self.folder / f"{name}.json").read_bytes()

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.json").remove()
        (self.folder / name).remove()


def _name(line: Line, number: int) -> str:
    return f"{line}-{number:09d}"


def _checksum(progress: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(progress, sort_keys=True).encode()).hexdigest()
