"""A store in a folder of a file system with atomic `link` and `rename`. Links in it are not followed."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dkge_dist.files import open_regular
from dkge_dist.store import durable, locks
from dkge_dist.store.storage.base import PART_NAME, Blob, MissingError, Removable, StoreError, sha256_file

LOST_AND_FOUND = "lost+found"
PARTS, STAGING = "parts", "staging"


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
        return all(name == LOST_AND_FOUND or durable.UNFINISHED.fullmatch(name) for name in os.listdir(self.root))

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        path = self._path(name)
        try:
            with open_regular(path, follow_links=False) as file:
                return file.read()
        except OSError as error:
            kind = MissingError if isinstance(error, FileNotFoundError | NotADirectoryError) else StoreError
            raise kind(f"{path}: {error.strerror}") from None

    def create(self, name: str, data: bytes) -> bool:
        """Create a file; `link` gives it its name, and fails if that is taken."""
        return durable.create(self._path(name), data)

    def replace(self, name: str, data: bytes) -> str:
        """Write a file, over the one of that name; its path."""
        path = self._path(name)
        durable.replace(path, data)
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
            state = path.lstat()
        except FileNotFoundError:
            raise StoreError(f"part {path} is missing") from None
        if not stat.S_ISREG(state.st_mode):
            raise StoreError(f"part {path} is not a plain file")
        if state.st_size != part.size:
            raise StoreError(f"part {path} has {state.st_size} bytes instead of {part.size}: truncated or replaced")
        return path

    def verify(self, part: Blob) -> None:
        """Compare the bytes of a part with its name."""
        path = self.part_path(part)
        found = sha256_file(path)
        if found != part.digest:
            raise StoreError(f"part {path} is damaged: its bytes have checksum {found}")

    @contextmanager
    def staging(self) -> Iterator[LocalStaging]:
        """A folder of the store that no other writer uses."""
        folder = self._path(f"{STAGING}/{secrets.token_hex(8)}")
        folder.mkdir(parents=True)
        try:
            yield LocalStaging(self, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def lease(self, name: str) -> Iterator[None]:
        """A lock file in the store."""
        with ExitStack() as stack:
            try:
                stack.enter_context(locks.hold(self._path(f"{name}.lock")))
            except (locks.LockHeldError, locks.LockRemovedError):
                raise StoreError(f"{self}: another `dkge {name}` is at work") from None
            yield

    def older_than(self, before: float) -> Iterator[Removable]:
        """By the time that a file was last written, or that a folder last got one."""
        for path in [*self._part_files(), *self._unfinished(), *self._path(f"{STAGING}/").glob("*")]:
            with suppress(FileNotFoundError):  # Writers end, and others clean, while this looks.
                state = path.lstat()
                if state.st_mtime < before:
                    yield self._removable(path, state.st_size)

    def _part_files(self) -> Iterator[Path]:
        for folder in filter(Path.is_dir, self._path(f"{PARTS}/").glob("??")):
            inside = self._path(f"{PARTS}/{folder.name}/")
            yield from (inside / name for name in os.listdir(inside) if PART_NAME.fullmatch(name))

    def _unfinished(self) -> Iterator[Path]:
        """What `create` and `replace` leave when they are killed."""
        folders = [path for path in self.root.glob("*") if path.is_dir() and not path.is_symlink()]
        for folder in [self.root, *(path for path in folders if path.name not in (PARTS, STAGING))]:
            yield from (path for path in folder.glob(".*") if durable.UNFINISHED.fullmatch(path.name))

    def _removable(self, path: Path, size: int) -> Removable:
        name = path.relative_to(self.root)
        if name.parts[0] == PARTS:
            return Removable("part", path.name, size)
        return Removable("staging" if name.parts[0] == STAGING else "unfinished", str(name), size)

    def remove(self, item: Removable, before: float) -> bool:
        """Remove a file or a folder; its age is looked at once more, right before it goes."""
        path = self._part(item.name) if item.kind == "part" else self._path(item.name)
        try:
            state = path.lstat()
            if state.st_mtime >= before:
                return False
            if stat.S_ISDIR(state.st_mode):
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        except FileNotFoundError:
            return False
        return True

    def workspace(self, name: str) -> Path:
        """A folder of the store itself, so that every machine that has the store can resume the work."""
        return self._path(f"{name}/").absolute()


class LocalStaging:
    """Parts that are written to a private folder and then renamed to where they belong."""

    def __init__(self, storage: LocalStorage, folder: Path) -> None:
        self.storage = storage
        self.folder = folder
        self.written = 0

    def add(self, write: Callable[[Path], None]) -> Blob:
        """Write, sync, rename, sync the folder: a part is durable before anything refers to it."""
        temporary = self.folder / secrets.token_hex(8)
        write(temporary)
        part = Blob(sha256_file(temporary), temporary.stat().st_size)
        target = self.storage._part(part.digest)
        if not self._renewed(part):
            durable.make_directory(target.parent)
            durable.sync(temporary)
            os.replace(temporary, target)
            self.written += part.size
        # Also when another writer brought it: that one may die before it comes to this.
        durable.sync(target.parent)
        return part

    def _renewed(self, part: Blob) -> bool:
        """Is the part there already? Its age starts anew before it is read: cleaning must not take it meanwhile."""
        try:
            os.utime(self.storage.part_path(part))
            self.storage.verify(part)
        except (StoreError, OSError):
            return False
        return True
