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

from dkge_dist.files import read_regular
from dkge_dist.store import durable
from dkge_dist.types import DkgeError

Line = Literal["last", "best"]
PROGRESS = "progress.json"
NAME = re.compile(r"(last|best)-([0-9]{9})")


class Checkpoints:
    """The checkpoints in the folder of one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, line: Line, write: Callable[[Path], None], progress: dict[str, Any]) -> None:
        """Let `write` fill a folder and make it the newest of its line; the one before goes once this is durable."""
        before = self._numbers(line)
        temporary = self.folder / f".{secrets.token_hex(8)}"
        try:
            temporary.mkdir(parents=True)
            write(temporary)
            content = {"sha256": _checksum(progress), "progress": progress}
            (temporary / PROGRESS).write_text(json.dumps(content), encoding="utf-8")
            durable.sync_tree(temporary)
            temporary.rename(self.folder / f"{line}-{max(before, default=0) + 1:09d}")
            durable.sync(self.folder)
        except OSError as error:
            # Another attempt would meet the same: the user has to make room.
            kept = f"{line}-{max(before):09d} is kept" if before else "there was none before"
            raise DkgeError(f"{self.folder}: checkpoint not saved: {error.strerror}; {kept}") from error
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
            content = json.loads(read_regular(folder / PROGRESS))
            progress: dict[str, Any] = content["progress"]
            if content["sha256"] != _checksum(progress):
                raise ValueError(f"{PROGRESS} does not have the checksum that it names")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
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

    def _numbers(self, line: Line) -> list[int]:
        names = (NAME.fullmatch(path.name) for path in self.folder.iterdir()) if self.folder.exists() else ()
        return sorted(int(name[2]) for name in names if name and name[1] == line)


def _checksum(progress: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(progress, sort_keys=True).encode()).hexdigest()
