"""Moving through the versions of a store: back to an earlier one, and clearing old ones away. Both are new versions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime

from dkge_dist.store.manifest import (
    ClearManifest,
    Manifest,
    ModelManifest,
    RollbackManifest,
    SnapshotManifest,
    parts_of,
    tables_of,
)
from dkge_dist.store.storage import Removable, StoreError
from dkge_dist.store.store import Store
from dkge_dist.store.tables import table_parts
from dkge_dist.store.trainings import Training


def rollback(store: Store, to: int) -> RollbackManifest:
    """Make current again what was current at version `to`. Nothing is lost: what came after is still there."""
    head = store.head()
    if head is None or to not in store.versions():
        raise StoreError(f"{store}: no version {to}")
    earlier = store.state_at(to)
    for needed in (earlier.snapshot, earlier.model):
        if needed in head.current.cleared:
            raise StoreError(f"{store}: version {needed}, current at {to}, was cleared away by `dkge gc`")
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
    """Keep the newest `keep` versions, what is current, and what these need; free what only other versions name.

    Parts and unfinished folders younger than the grace period may belong to a writer at work and are left alone; one
    that is at work for longer has it refused. What is being trained is kept, however old; a training that was not
    resumed within the grace period goes.
    """
    head = store.head()
    if head is None:
        raise StoreError(f"{store}: holds no version")
    before = clock() - grace_seconds
    _refuse_short_grace(store, before, grace_seconds)
    # A dry run writes nothing, not even a lease.
    with nullcontext() if dry_run else store.storage.lease("gc"):
        abandoned, at_work = _trainings(store, before)
        needed = _needed(store, head, keep, {training.snapshot for training in at_work})
        gone = [n for n in store.versions() if n not in needed and n not in head.current.cleared]
        gone = [n for n in gone if isinstance(store.manifest(n), SnapshotManifest | ModelManifest)]
        version = None
        if gone and not dry_run:
            current = head.current.model_copy(update={"cleared": sorted({*head.current.cleared, *gone})})
            manifest = ClearManifest(**store.following(head, 0.0), current=current, keep=keep)
            store.publish(manifest)
            version = manifest.version
        unused = list(_unused(store, needed, before))
        if not dry_run:
            unused = [item for item in unused if store.storage.remove(item, before)]
            abandoned = [training for training in abandoned if training.remove_abandoned(before)]
    files = [item for item in unused if item.kind != "staging"]
    folders = len(unused) - len(files) + len(abandoned)
    return Cleared(version, gone, len(files), sum(item.size for item in files), folders)


def _refuse_short_grace(store: Store, before: float, grace_seconds: float) -> None:
    """Parts that a writer staged and has not published yet look like those that a killed one left: only age tells."""
    since = store.storage.staging_since()
    if since is not None and since < before:
        raise StoreError(
            f"{store}: a writer is at work since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC, longer "
            f"than the grace period of {grace_seconds / 3600:g} hours: what it wrote could be taken for leftovers; "
            "run `dkge gc` when it is done, or with a longer --grace-hours"
        )


def _trainings(store: Store, before: float) -> tuple[list[Training], list[Training]]:
    """(Abandoned, at work)."""
    trainings = [(training, training.is_abandoned(before)) for training in store.trainings]
    return [t for t, abandoned in trainings if abandoned], [t for t, abandoned in trainings if not abandoned]


def _unused(store: Store, needed: set[int], before: float) -> Iterator[Removable]:
    """What is stored and no version that is kept needs."""
    used = {digest for number in needed for digest in _digests(store, store.manifest(number))}
    return (item for item in store.storage.older_than(before) if not (item.kind == "part" and item.name in used))


def _needed(store: Store, head: Manifest, keep: int, trained: set[int | None]) -> set[int]:
    """Versions to keep: the newest, what is current at these and now, what those stand on, and the changes between."""
    newest = store.versions()[-keep:] if keep else []
    wanted = {head.version, *newest}
    for number in list(wanted):
        current = store.manifest(number).current
        wanted |= {current.snapshot, current.model or current.snapshot}
    wanted |= set(store.versions()) & trained
    wanted -= set(head.current.cleared)
    for number in list(wanted):
        manifest = store.manifest(number)
        if isinstance(manifest, ModelManifest):
            wanted.add(manifest.model.snapshot)
    lines = [
        list(store.ancestry(store.snapshot_manifest(n)))
        for n in wanted
        if isinstance(store.manifest(n), SnapshotManifest)
    ]
    # The diff of two snapshots leads over an ancestor of both: after a rollback that may be older than either.
    meeting = max(set.intersection(*({manifest.version for manifest in line} for line in lines)), default=0)
    for line in lines:
        for manifest in line:
            wanted.add(manifest.version)
            if manifest.version <= meeting and manifest.snapshot.base is not None:
                break
    return wanted


def _digests(store: Store, manifest: Manifest) -> Iterator[str]:
    """Every part that a version needs."""
    for part in parts_of(manifest):
        yield part.digest
    if isinstance(manifest, ModelManifest):
        for table in tables_of(manifest.model):
            yield from (part.digest for part in table_parts(store.storage, table))
