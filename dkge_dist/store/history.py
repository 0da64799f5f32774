"""Moving through the versions of a store: back to an earlier one, and clearing old ones away. Both are new versions."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from dkge_dist.store.check import parts_of
from dkge_dist.store.manifest import ClearManifest, Manifest, ModelManifest, RollbackManifest, SnapshotManifest
from dkge_dist.store.storage import PART_NAME, LocalStorage, StoreError
from dkge_dist.store.store import MARKER, Store
from dkge_dist.store.tables import table_parts

LEARNS = "snapshot"
"""In the folder of a training: a file with the version of the snapshot that it learns."""


def rollback(store: Store, to: int) -> RollbackManifest:
    """Bring back what was in force at version `to`. Nothing is lost: what came after is still there."""
    head = store.head()
    if head is None or to not in store.versions():
        raise StoreError(f"{store.path}: no version {to}")
    earlier = store.manifest(to).current
    for needed in (earlier.snapshot, earlier.model):
        if needed in head.current.cleared:
            raise StoreError(f"{store.path}: version {needed}, in force at {to}, was cleared away by `dkge gc`")
    current = earlier.model_copy(update={"cleared": head.current.cleared})
    manifest = RollbackManifest(**store.following(head, 0.0), current=current, to=to)
    store.publish(manifest)
    return manifest


@dataclass(frozen=True)
class Cleared:
    """What `clear` did, or would do."""

    version: int | None
    versions: list[int]
    parts: int
    bytes: int
    folders: int


def clear(
    store: Store, keep: int, grace_seconds: float, dry_run: bool, clock: Callable[[], float] = time.time
) -> Cleared:
    """Keep the newest `keep` versions and all that these and the present need; free what only others named.

    Parts and unfinished folders younger than the grace period may belong to a writer at work and are left alone. What
    is being learnt is kept, however old; a training that nobody took up again within the grace period goes.
    """
    head = store.head()
    if head is None:
        raise StoreError(f"{store.path}: holds no version")
    before = clock() - grace_seconds
    # Who only looks takes nothing, not even a lease: that would make a file.
    with nullcontext() if dry_run else _lease(store.path):
        trainings = {path: _is_abandoned(path, before) for path in store.storage.folder("training").glob("*")}
        learning = {n for path, abandoned in trainings.items() if not abandoned for n in _snapshot_of(path)}
        needed = _needed(store, head, keep, learning)
        gone = [n for n in store.versions() if n not in needed and n not in head.current.cleared]
        gone = [n for n in gone if isinstance(store.manifest(n), SnapshotManifest | ModelManifest)]
        version = None
        if gone and not dry_run:
            current = head.current.model_copy(update={"cleared": sorted({*head.current.cleared, *gone})})
            manifest = ClearManifest(**store.following(head, 0.0), current=current, keep=keep)
            store.publish(manifest)
            version = manifest.version
        used = {digest for n in needed for digest in _digests(store, store.manifest(n))}
        files = [*(path for path in _part_files(store.storage) if path.name not in used), *_half_made(store.path)]
        parts = [(path, state.st_size) for path, state in _states(files) if state.st_mtime < before]
        folders = [
            path for path, state in _states(store.storage.folder("staging").glob("*")) if state.st_mtime < before
        ]
        folders += [path for path, abandoned in trainings.items() if abandoned]
        if not dry_run:
            for path, _ in parts:
                path.unlink(missing_ok=True)
            for path in folders:
                shutil.rmtree(path, ignore_errors=True)
        return Cleared(version, gone, len(parts), sum(size for _, size in parts), len(folders))


def _states(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """What is still there: writers end, and others clear, while one looks."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path, path.stat()


@contextmanager
def _lease(root: Path) -> Iterator[None]:
    """One at a time; gone with the process."""
    with (root / "gc.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{root}: another `dkge gc` is at work") from None
        yield


def _is_abandoned(training: Path, before: float) -> bool:
    """Is nobody at work in the folder of a training, and has nobody been for long?"""
    try:
        if training.stat().st_mtime >= before:
            return False
        # Only read: a lock that is made here would make the folder a young one.
        with (training / "lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        # No lock, so nobody came to hold it; or the folder is gone itself, and there is nothing to clear.
        return training.exists()
    except BlockingIOError:
        return False
    return True


def _snapshot_of(training: Path) -> Iterator[int]:
    """The version of the snapshot that is learnt there, if it says."""
    with suppress(OSError, ValueError):
        yield int((training / LEARNS).read_text(encoding="utf-8"))


def _needed(store: Store, head: Manifest, keep: int, learning: set[int]) -> set[int]:
    """Versions to keep: the newest, what is in force at these and now, what those stand on, and the changes between."""
    newest = store.versions()[-keep:] if keep else []
    wanted = {head.version, *newest}
    for number in list(wanted):
        in_force = store.manifest(number).current
        wanted |= {in_force.snapshot, in_force.model or in_force.snapshot}
    wanted |= learning & set(store.versions())
    wanted -= set(head.current.cleared)
    for number in list(wanted):
        manifest = store.manifest(number)
        if isinstance(manifest, ModelManifest):
            wanted.add(manifest.model.snapshot)
    lines = [_line(store, n, head) for n in wanted if isinstance(store.manifest(n), SnapshotManifest)]
    # Whoever goes from one to another goes over an ancestor of both: after a rollback that may be older than either.
    meeting = max(set.intersection(*({manifest.version for manifest in line} for line in lines)), default=0)
    for line in lines:
        for manifest in line:
            wanted.add(manifest.version)
            if manifest.version <= meeting and manifest.snapshot.base is not None:
                break
    return wanted


def _line(store: Store, number: int, head: Manifest) -> list[SnapshotManifest]:
    """A snapshot, its parent, and so on to the first that was not cleared away."""
    line = [store.snapshot_manifest(number)]
    while (parent := line[-1].snapshot.parent) is not None and parent not in head.current.cleared:
        line.append(store.snapshot_manifest(parent))
    return line


def _digests(store: Store, manifest: Manifest) -> Iterator[str]:
    """Every part that a version needs."""
    for part in parts_of(manifest):
        yield part.digest
    if isinstance(manifest, ModelManifest):
        for tables in (manifest.model.entities, manifest.model.relations):
            for table in tables.values():
                yield from (part.digest for part in table_parts(store.storage, table))


def _part_files(storage: LocalStorage) -> Iterator[Path]:
    for folder in storage.folder("parts").glob("??"):
        for entry in os.scandir(storage.folder(f"parts/{folder.name}")):
            if PART_NAME.fullmatch(entry.name):
                yield Path(entry.path)


def _half_made(root: Path) -> Iterator[Path]:
    """Names that a killed writer had not yet taken, or not yet let go of."""
    yield from root.glob(f".{MARKER}.*")
    yield from (root / "versions").glob(".*.json.*")
