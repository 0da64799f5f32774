"""A store in a folder of a file system with atomic `link` and `rename`. Links in it are not followed."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dkge_dist import files
from dkge_dist.store.storage.base import PART_NAME, Blob, MissingError, Removable, StoreError, blob_of

LOST_AND_FOUND = "lost+found"
PARTS, STAGING = "parts", "staging"
LOCK = "lock"
"""In the folder of a staging: held while its process is at work."""
ASIDE = ".removing"
"""The ending of a part that is being removed, and is put back if somebody wants it meanwhile."""


class LocalStorage:
    """A folder: parts are in `parts/`, every other name is a path in it."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.root = Path(location)
        self.location = str(self.root.absolute())

    def __str__(self) -> str:
        return str(self.root)

    def _path(self, name: str) -> Path:
        """A path in the store. A folder on the way that is a link could lead out of it, to read or to write."""
        *folders, last = name.split("/")
        path = self.root
        for folder in folders:
            path /= folder
            if path.is_symlink():
                raise StoreError(f"{path} is a link; links are not followed in a store")
        return path / last

    def _part(self, digest: str) -> Path:
        if not PART_NAME.fullmatch(digest):
            raise StoreError(f"{self}: {digest!r} is no part name")
        return self._path(f"{PARTS}/{digest[:2]}/{digest}")

    def is_empty(self) -> bool:
        """Is the folder missing or empty, but for what a killed writer or a new file system leaves?"""
        if not self.root.is_dir():
            return not self.root.exists()
        return all(name == LOST_AND_FOUND or files.UNFINISHED.fullmatch(name) for name in os.listdir(self.root))

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        path = self._path(name)
        try:
            return files.read_regular(path, follow_links=False)
        except OSError as error:
            kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else StoreError
            raise kind(f"{path}: {error.strerror}") from None

    def create(self, name: str, data: bytes) -> bool:
        """Create a file; `link` gives it its name, and fails if that is taken."""
        return files.create(self._path(name), data, self.root)

    def replace(self, name: str, data: bytes) -> str:
        """Write a file, over the one of that name; its path."""
        path = self._path(name)
        files.replace(path, data, self.root)
        return str(path)

    def names(self, folder: str) -> list[str]:
        """The files in a folder; unfinished ones are hidden."""
        with suppress(FileNotFoundError):
            return sorted(name for name in os.listdir(self._path(f"{folder}/")) if not name.startswith("."))
        return []

    def part_path(self, part: Blob) -> Path:
        """The file of a part: a plain one, of the right size."""
        path = self._part(part.digest)
        try:
            state = _found(path)
        except FileNotFoundError:
            raise StoreError(f"part {path} is missing") from None
        if not stat.S_ISREG(state.st_mode):
            raise StoreError(f"part {path} is not a plain file")
        if state.st_size != part.size:
            raise StoreError(f"part {path} has {state.st_size} bytes instead of {part.size}: truncated or replaced")
        return path

    def drop_copy(self, part: Blob) -> bool:
        """It is the part itself."""
        return False

    def fetch(self, parts: Iterable[Blob]) -> None:
        """They are here."""

    def require(self, parts: Iterable[Blob]) -> None:
        """Look at the size of every file."""
        for part in parts:
            self.part_path(part)

    def verify(self, part: Blob) -> None:
        """Compare the bytes of a part with its name."""
        path = self.part_path(part)
        found = blob_of(path).digest
        if found != part.digest:
            raise StoreError(f"part {path} is damaged: its bytes have checksum {found}")

    @contextmanager
    def staging(self) -> Iterator[LocalStaging]:
        """A folder of the store that no other writer uses, with a lock that tells that somebody is at work in it."""
        with ExitStack() as stack:
            folder = self._locked_folder(stack)
            try:
                yield LocalStaging(self, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _locked_folder(self, stack: ExitStack) -> Path:
        while True:
            folder = self._path(f"{STAGING}/{secrets.token_hex(8)}")
            # Cleaning may find the folder before it is locked, take it for that of a dead process, and remove it. One
            # that is there already was made by this very call, whose answer got lost.
            with suppress(files.LockRemovedError, FileExistsError):
                folder.mkdir(parents=True)
                stack.enter_context(files.hold_lock(folder / LOCK, wait=True))
                return folder

    def _stagings(self, at_work: bool) -> list[Path]:
        """Folders that a process is at work in, or those that none is."""
        found = []
        for folder in self._path(f"{STAGING}/").glob("*"):
            if folder.is_dir() and not folder.is_symlink():
                with files.lock_is_free(folder / LOCK) as is_idle:
                    found += [folder] if is_idle != at_work else []
        return found

    def staging_since(self) -> float | None:
        """By the age of the locks that are held."""
        began = []
        for folder in self._stagings(at_work=True):
            with suppress(FileNotFoundError):
                began.append((folder / LOCK).stat().st_mtime)
        return min(began, default=None)

    @contextmanager
    def lease(self, name: str) -> Iterator[None]:
        """A lock file in the store."""
        with ExitStack() as stack:
            try:
                stack.enter_context(files.hold_lock(self._path(f"{name}.lock")))
            except (files.LockHeldError, files.LockRemovedError):
                raise StoreError(f"{self}: another `dkge {name}` is at work") from None
            yield

    def is_leased(self, name: str) -> bool:
        """Is the lock file held?"""
        try:
            with files.hold_existing_lock(self._path(f"{name}.lock")):
                return False
        except FileNotFoundError:
            return False
        except (files.LockHeldError, files.LockRemovedError):
            return True

    def older_than(self, before: float) -> Iterator[Removable]:
        """By the time that a file was last written, or that a folder last got one."""
        for path in [*self._part_files(), *self._unfinished(), *self._stagings(at_work=False)]:
            with suppress(FileNotFoundError):  # Writers end, and others clean, while this looks.
                state = path.lstat()
                if state.st_mtime < before:
                    yield self._removable(path, state.st_size)

    def _part_files(self) -> Iterator[Path]:
        for folder in filter(Path.is_dir, self._path(f"{PARTS}/").glob("??")):
            inside = self._path(f"{PARTS}/{folder.name}/")
            with os.scandir(inside) as entries:
                found = [inside / entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
            yield from (path for path in found if PART_NAME.fullmatch(path.name.removesuffix(ASIDE)))

    def _unfinished(self) -> Iterator[Path]:
        """What `create` and `replace` leave when they are killed: here, where few names are, not among all versions."""
        return (path for path in self.root.glob(".*") if files.UNFINISHED.fullmatch(path.name))

    def _removable(self, path: Path, size: int) -> Removable:
        name = path.relative_to(self.root)
        if name.parts[0] == PARTS:
            return Removable("part", path.name.removesuffix(ASIDE), size)
        return Removable("staging" if name.parts[0] == STAGING else "unfinished", str(name), size)

    def remove(self, item: Removable, before: float) -> bool:
        """Remove a file or a folder; its age is looked at once more, when nobody can renew it any more."""
        with suppress(FileNotFoundError):
            if item.kind == "part":
                return _remove_part(self._part(item.name), before)
            path = self._path(item.name)
            if path.lstat().st_mtime >= before:
                return False
            if not path.is_dir():
                path.unlink()
                return True
            with files.lock_is_free(path / LOCK) as is_idle:
                if is_idle:
                    shutil.rmtree(path, ignore_errors=True)
                return is_idle
        return False

    def workspace(self, name: str) -> Path:
        """A folder of the store itself, so that every machine that has the store can resume the work."""
        return self._path(f"{name}/").absolute()

    def discard(self, name: str) -> None:
        """Remove a file, or a folder."""
        path = self._path(name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _found(path: Path) -> os.stat_result:
    """The state of a part. If cleaning has set it aside, it is put back: somebody wants it."""
    with suppress(FileNotFoundError):
        return path.lstat()
    if os.path.lexists(path.with_name(path.name + ASIDE)):
        with suppress(FileNotFoundError):
            _put_back(path)
    return path.lstat()


def _put_back(path: Path) -> None:
    """Give a part its name again, unless another writer brought it meanwhile."""
    with suppress(FileExistsError):
        os.link(path.with_name(path.name + ASIDE), path)


def _remove_part(path: Path, before: float) -> bool:
    """Only the one process that cleans takes names away: what another puts back stays."""
    aside = path.with_name(path.name + ASIDE)
    with suppress(FileNotFoundError):  # There may only be what a killed cleaning had set aside.
        if path.lstat().st_mtime >= before:
            return False
        aside.unlink(missing_ok=True)
        os.rename(path, aside)
    is_old = aside.lstat().st_mtime < before
    if not is_old:
        # A writer renewed it after it was looked at.
        _put_back(path)
    aside.unlink()
    return is_old


class LocalStaging:
    """Parts that are written to a private folder and then renamed to where they belong."""

    def __init__(self, storage: LocalStorage, folder: Path) -> None:
        self.storage = storage
        self.folder = folder
        self.written = 0

    def add(self, write: Callable[[Path], object]) -> Blob:
        """Write, sync, rename, sync the folder: a part is durable before anything refers to it."""
        temporary = self.folder / secrets.token_hex(8)
        write(temporary)
        part = blob_of(temporary)
        target = self.storage._part(part.digest)
        if not self._renewed(part):
            files.make_directory(target.parent)
            files.sync(temporary)
            os.replace(temporary, target)
            self.written += part.size
        # Also when another writer brought it: that one may die before it comes to this.
        files.sync(target.parent)
        return part

    def add_all(self, writes: Iterable[Callable[[Path], object]]) -> list[Blob]:
        """One after the other: the disk is what takes time."""
        return [self.add(write) for write in writes]

    def _renewed(self, part: Blob) -> bool:
        """Is the part there already? Its age starts anew before it is read: cleaning must not take it meanwhile."""
        try:
            os.utime(self.storage.part_path(part))
            self.storage.verify(part)
        except (StoreError, OSError):
            return False
        return True
