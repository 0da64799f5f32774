"""Checkpoints of a training: whole folders that appear at once, so that a kill at any moment leaves the one before.

Two lines are kept, `last` (to go on from) and `best` (to end with). A lock keeps out a second trainer of the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from dkge_dist.types import DkgeError

Line = Literal["last", "best"]
PROGRESS = "progress.json"
NAME = re.compile(r"(last|best)-([0-9]{9})")


class Checkpoints:
    """The folder of one training, named by what is trained."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; the lock is gone with the process, however it ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise DkgeError(f"{self.folder}: process {file.read() or '?'} is training just this already") from None
            if os.fstat(file.fileno()).st_nlink == 0:
                raise DkgeError(
                    f"{self.folder}: another process has just finished training this; run it again to repeat"
                )
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            self._sweep()
            yield

    def save(self, line: Line, write: Callable[[Path], None], progress: dict[str, Any]) -> None:
        """Let `write` fill a folder and make it the newest of its line; the one before goes once this is durable."""
        before = self._numbers(line)
        temporary = self.folder / f".{secrets.token_hex(8)}"
        temporary.mkdir()
        try:
            write(temporary)
            content = {"sha256": _checksum(progress), "progress": progress}
            (temporary / PROGRESS).write_text(json.dumps(content), encoding="utf-8")
            for path in [*temporary.rglob("*"), temporary]:
                _sync(path)
            temporary.rename(self.folder / f"{line}-{max(before, default=0) + 1:09d}")
            _sync(self.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for number in before:
            shutil.rmtree(self.folder / f"{line}-{number:09d}", ignore_errors=True)

    def load(self, line: Line) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint of a line: (its folder, its progress)."""
        numbers = self._numbers(line)
        if not numbers:
            return None
        folder = self.folder / f"{line}-{max(numbers):09d}"
        try:
            content = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
            progress: dict[str, Any] = content["progress"]
            if content["sha256"] != _checksum(progress):
                raise ValueError(f"{PROGRESS} does not have the checksum that it names")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.damaged(folder, error) from None
        return folder, progress

    def damaged(self, folder: Path, why: object) -> DkgeError:
        """What to tell of a checkpoint that cannot be used."""
        return DkgeError(f"{folder}: damaged checkpoint ({why}); remove {self.folder} to start afresh")

    def forget(self) -> None:
        """Start afresh."""
        for path in self.folder.iterdir():
            if NAME.fullmatch(path.name):
                shutil.rmtree(path)

    def remove(self) -> None:
        """Remove the folder: the training is done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _numbers(self, line: Line) -> list[int]:
        names = (NAME.fullmatch(path.name) for path in self.folder.iterdir()) if self.folder.exists() else ()
        return sorted(int(name[2]) for name in names if name and name[1] == line)

    def _sweep(self) -> None:
        """Remove what a killed trainer left unfinished."""
        for path in self.folder.glob(".*"):
            shutil.rmtree(path, ignore_errors=True)


def _checksum(progress: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(progress, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
