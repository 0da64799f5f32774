"""Parts of buckets on a local disk, to be mapped: by digest, whatever store they are of, for all processes of a user.

A part is verified once, when it comes. What was not asked for longest goes first when there is too much; what was asked
for within the last hour stays, so that whoever got a path has the time to open it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dkge_dist import files
from dkge_dist.store.storage.base import PART_NAME, Blob, StoreError
from dkge_dist.types import UsageError

FOLDER, LIMIT = "DKGE_CACHE", "DKGE_CACHE_GB"
"""Environment variables: the folder, and how much may be in it."""
ELSEWHERE = f"{FOLDER} names another folder for parts of buckets"
DEFAULT_GB = 50.0
RECENT_SECONDS = 3600.0
ABANDONED_SECONDS = 86400.0
"""Unfinished downloads and parts on their way that are older belong to a process that was killed."""
LOOK_AFTER_SHARE = 0.05
"""The folder is looked through whenever this share of the limit has come since."""
PARTS, STAGING, SCRATCH = "parts", "staging", "scratch"


class PartCache:
    """Files in a folder that is this user's alone."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._came: int | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            owner = folder.stat().st_uid
        except OSError as error:
            raise StoreError(f"{folder}: {error.strerror}; {ELSEWHERE}") from None
        if owner != os.geteuid():
            raise StoreError(f"{folder}: belongs to another user; {ELSEWHERE}")

    @staticmethod
    def of_environment() -> PartCache:
        """The cache of this user."""
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(os.environ.get(FOLDER) or Path(home) / "dkge_dist" / "bucket").absolute()
        given = os.environ.get(LIMIT, str(DEFAULT_GB))
        try:
            limit = int(float(given) * 1e9)
        except (ValueError, OverflowError):
            limit = -1
        if limit < 0:
            raise UsageError(f"{LIMIT}={given}: give a number of gigabytes")
        return PartCache(folder, limit)

    def _place(self, digest: str) -> Path:
        return self.folder / PARTS / digest[:2] / digest

    def find(self, part: Blob) -> Path | None:
        """The file of a part, if it is here. It is young again."""
        path = self._place(part.digest)
        try:
            state = path.lstat()
            if not stat.S_ISREG(state.st_mode) or state.st_size != part.size:
                return None
            os.utime(path)
        except OSError:
            return None
        return path

    def bring(self, part: Blob, download: Callable[[IO[bytes]], None]) -> Path:
        """Let `download` fill a file with the right bytes; of several processes, one does it for all."""
        target = self._place(part.digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.parent / f".{part.digest}"
        with self._room(part.size):
            while (found := self.find(part)) is None:
                with unfinished.open("a+b") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if not _is_at(unfinished, file):
                        continue  # Another process has finished it meanwhile, or given up.
                    try:
                        if (found := self.find(part)) is None:
                            file.truncate(0)
                            download(file)
                            file.flush()
                            os.fsync(file.fileno())
                            os.replace(unfinished, target)
                            self._trim_if_due(part.size)
                    finally:
                        unfinished.unlink(missing_ok=True)
            return found

    def adopt(self, path: Path, part: Blob) -> None:
        """Take over a file that was written here, with the bytes of a part."""
        target = self._place(part.digest)
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._room(part.size):
            files.sync(path)
            os.replace(path, target)
        self._trim_if_due(part.size)

    def drop(self, digest: str) -> None:
        """Forget a part."""
        self._place(digest).unlink(missing_ok=True)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder to write parts in, gone afterwards."""
        folder = self.folder / STAGING / secrets.token_hex(8)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _room(self, size: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"{self.folder}: {error.strerror} ({size:,} bytes are needed); {FOLDER} names another folder, "
                f"{LIMIT} how much may be in it"
            ) from None

    def _trim_if_due(self, size: int) -> None:
        """Look through the folder when a process begins to fill it, and again whenever much has come."""
        if self._came is None or self._came + size > LOOK_AFTER_SHARE * self.limit:
            self._came = 0
            self.trim()
        else:
            self._came += size

    def trim(self, clock: Callable[[], float] = time.time) -> None:
        """Remove what was not asked for longest until the rest is within the limit. One process at a time."""
        now = clock()
        with (self.folder / "trim.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            found = []
            for path in self.folder.glob(f"{PARTS}/??/*"):
                with suppress(FileNotFoundError):
                    state = path.lstat()
                    is_part = PART_NAME.fullmatch(path.name) is not None
                    found.append((is_part, state.st_mtime, state.st_size, path))
            left = sum(size for _, _, size, _ in found)
            for is_part, used, size, path in sorted(found):
                if not is_part and used < now - ABANDONED_SECONDS:
                    path.unlink(missing_ok=True)
                elif is_part and left > self.limit and used < now - RECENT_SECONDS:
                    path.unlink(missing_ok=True)
                    left -= size
            for folder in self.folder.glob(f"{STAGING}/*"):
                with suppress(FileNotFoundError):
                    if folder.stat().st_mtime < now - ABANDONED_SECONDS:
                        shutil.rmtree(folder, ignore_errors=True)


def _is_at(path: Path, file: IO[bytes]) -> bool:
    """Is this open file the one that has this name?"""
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
