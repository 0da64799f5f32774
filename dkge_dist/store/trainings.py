"""Trainings in progress: a folder each, named by what is trained. One process at a time works in a folder.

A folder holds a lock, the version of the snapshot that is learnt (so that cleaning keeps it), and whatever the training
puts there; hidden names are unfinished work. The folder is removed when the model is published, or by cleaning once it
is abandoned.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dkge_dist import files
from dkge_dist.types import DkgeError

KEY = re.compile(r"[0-9a-z]+")
LOCK, SNAPSHOT = "lock", "snapshot"


class Training:
    """One folder of `Trainings`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def checkpoints(self, block_rows: int) -> Path:
        """Where its checkpoints are; files hold whole tables, whatever the blocks."""
        return self.folder

    @property
    def snapshot(self) -> int | None:
        """The version of the snapshot that is learnt here, if the training came to say so."""
        with suppress(OSError, ValueError):
            return int(files.read_regular(self.folder / SNAPSHOT, follow_links=False))
        return None

    def is_abandoned(self, before: float) -> bool:
        """Does no process work here, and has none since `before` (seconds since 1970)?"""
        with suppress(FileNotFoundError), self._unheld(before) as abandoned:
            return abandoned
        return False

    def remove_abandoned(self, before: float) -> bool:
        """Remove the folder if it is abandoned; no process can take it up meanwhile."""
        with suppress(FileNotFoundError), self._unheld(before) as abandoned:
            if abandoned:
                self.remove()
            return abandoned
        return False

    @contextmanager
    def _unheld(self, before: float) -> Iterator[bool]:
        """Whether the folder is abandoned, which stays so meanwhile."""
        with files.lock_is_free(self.folder / LOCK) as is_idle:
            yield is_idle and self.folder.stat().st_mtime < before

    def remove(self) -> None:
        """Remove the folder: the training is done."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Trainings:
    """All trainings of a store that are not published yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __iter__(self) -> Iterator[Training]:
        return (Training(path) for path in sorted(self.folder.glob("*")) if path.is_dir())

    @contextmanager
    def open(self, key: str, snapshot: int) -> Iterator[Training]:
        """Begin or resume the training named `key`, of a version of a snapshot. Other processes are kept out of it."""
        assert KEY.fullmatch(key), key
        folder = self.folder / key
        if folder.is_symlink():
            raise DkgeError(f"{folder} is a link; links are not followed in a store")
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(files.hold_lock(folder / LOCK))
            except files.LockHeldError as error:
                raise DkgeError(f"{folder}: process {error.holder or '?'} is training just this already") from None
            except files.LockRemovedError:
                raise DkgeError(
                    f"{folder}: another process has just finished training this; run it again to repeat"
                ) from None
            for unfinished in folder.glob(".*"):
                shutil.rmtree(unfinished, ignore_errors=True)
            files.replace(folder / SNAPSHOT, str(snapshot).encode())
            yield Training(folder)
