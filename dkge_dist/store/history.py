"""Moving through the versions of a store: what a model came from, back to an earlier version, clearing old ones away.

Going back and clearing are new versions themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from dkge_dist.records import VersionRecord
from dkge_dist.store.manifest import (
    ClearManifest,
    Manifest,
    ModelManifest,
    NamesManifest,
    RollbackManifest,
    SnapshotManifest,
    indexes_of,
    joined_ranges,
    parts_of,
    ranges_of,
    tables_of,
)
from dkge_dist.store.remote_trainings import RemoteTraining
from dkge_dist.store.storage import Removable, StoreError
from dkge_dist.store.store import VERSION_NUMBER, Store, remember
from dkge_dist.store.tables import table_parts
from dkge_dist.store.trainings import Training
from dkge_dist.types import UsageError

AnyTraining = Training | RemoteTraining


def lineage(store: Store, model: ModelManifest) -> Iterator[ModelManifest]:
    """A model and those it was updated from, back to the one that was trained from scratch."""
    yield model
    while model.model.parent is not None:
        parent = store.manifest(model.model.parent)
        assert isinstance(parent, ModelManifest), "a model is updated from a model"
        model = parent
        yield model


def updated_from(store: Store, model: ModelManifest) -> ModelManifest | None:
    """The model of another snapshot that a model was updated from; None if it was trained from scratch."""
    return next((other for other in lineage(store, model) if other.model.snapshot != model.model.snapshot), None)


def trained_by_nights(store: Store, since: int) -> Iterator[ModelManifest]:
    """Models that nights trained from scratch after version `since`, newest first. No other version is looked at."""
    head = store.head()
    number = head.version if head else 0
    while number > since:
        manifest = store.manifest(number)
        noted = manifest.current.trained
        if noted == number and isinstance(manifest, ModelManifest):
            yield manifest
        number = min(noted, number - 1)


def rollback(store: Store, to: int) -> RollbackManifest:
    """Make current again what was current at version `to`. Nothing is lost: what came after is still there."""
    head = store.head()
    if head is None or not 1 <= to <= head.version:
        raise StoreError(f"{store}: no version {to}")
    earlier, now = store.state_at(to), head.current
    for needed in (earlier.snapshot, earlier.model):
        if now.is_cleared(needed):
            raise StoreError(f"{store}: version {needed}, current at {to}, was cleared away by `dkge gc`")
    current = earlier.model_copy(update={"cleared": now.cleared, "trained": now.trained})
    # What is trained now, and will not be in train any more, must not be held out later.
    lost = store.diff(store.snapshot_manifest(now.snapshot), store.snapshot_manifest(earlier.snapshot)).deleted
    with store.storage.staging() as staging:
        runs = remember(staging, head, store.dictionaries(head), lost)
        following = {**store.following(head, 0.0), "trained_runs": runs}
        if not now.is_cleared(to):
            # What only a cleared version named is gone: then today's names stay.
            following["display_names"] = store.manifest(to).display_names
        manifest = RollbackManifest(**following, current=current, to=to)
        store.publish(manifest)
    return manifest


def set_alias(store: Store, name: str, version: str) -> int:
    """Let an alias pin a version: a number, or whatever names a model or a snapshot. The number."""
    # No cleaning may be at work: it could clear the version after it looked for aliases.
    with store.storage.lease("gc"):
        number = _pinned(store, name, version)
        store.write_alias(name, number)
    return number


def _pinned(store: Store, name: str, version: str) -> int:
    head = store.head()
    if head is None:
        raise StoreError(f"{store}: holds no version")
    if store.snapshot_named(name) is not None:
        raise UsageError(f"alias {name!r}: a snapshot has this name")
    if VERSION_NUMBER.fullmatch(version) and store.snapshot_named(version) is None:
        number = int(version)
    elif head.current.model is not None:
        number = store.find_model(version).version
    else:
        number = store.find_snapshot(version).version
    if not 1 <= number <= head.version:
        raise StoreError(f"{store}: no version {number}")
    state = store.state_at(number)
    for needed in (number, state.snapshot, state.model):
        if head.current.is_cleared(needed):
            raise StoreError(f"{store}: version {needed} was cleared away by `dkge gc`")
    return number


def describe_version(store: Store, manifest: Manifest) -> VersionRecord:
    """What a version is, its parent, what it changed."""
    more: dict[str, Any] = {"name": _snapshot_name(store, manifest.current.snapshot)}
    if isinstance(manifest, ModelManifest):
        model = manifest.model
        more = {"name": _snapshot_name(store, model.snapshot), "parent": model.parent or model.snapshot}
        more = {**model.record, **more, "metrics": model.record.valid}
    elif isinstance(manifest, SnapshotManifest):
        entry = manifest.snapshot
        stored = "full" if entry.base is not None else "change"
        sizes = entry.model_dump(include={"format", "entities", "relations", "train", "valid", "test"})
        more = {"name": entry.name, "parent": entry.parent, **sizes, **entry.diff}
        more |= {"counts": entry.counts, "stored": stored}
    elif isinstance(manifest, RollbackManifest):
        more["parent"] = manifest.to
    elif isinstance(manifest, NamesManifest):
        more["named"] = manifest.named
    more |= {"version": manifest.version, "kind": manifest.kind, "created": manifest.created}
    return VersionRecord(**{**more, "seconds": manifest.seconds})


def _snapshot_name(store: Store, version: int) -> str | None:
    manifest = store.manifest(version)
    return manifest.snapshot.name if isinstance(manifest, SnapshotManifest) else None


@dataclass(frozen=True)
class Cleared:
    """What `clear` did, or would do."""

    version: int | None
    versions: list[int]
    parts: int
    bytes: int
    folders: int


def clear(
    store: Store,
    keep: int,
    grace_seconds: float,
    dry_run: bool,
    progress: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] = time.time,
) -> Cleared:
    """Keep the newest `keep` versions, what is current, and what these need; free what only other versions name.

    Parts and unfinished folders younger than the grace period may belong to a writer at work and are left alone; one
    that is at work for longer has it refused. What is being trained is kept, however old; a training that was not
    resumed within the grace period goes.
    """
    before = clock() - grace_seconds
    _refuse_short_grace(store, before, grace_seconds)
    # Read after that: a writer that was at work for longer, and is not any more, has published by now. Parts of those
    # that publish later are young.
    head = store.head()
    if head is None:
        raise StoreError(f"{store}: holds no version")
    # A dry run writes nothing, not even a lease.
    with nullcontext() if dry_run else store.storage.lease("gc"):
        abandoned, at_work = _trainings(store, before)
        needed = _needed(store, head, keep, {training.snapshot for training in at_work})
        unneeded = [number for number in _left(head) if number not in needed]
        gone = [n for n in unneeded if not isinstance(store.manifest(n), ClearManifest)]
        version = None
        if gone and not dry_run:
            # With versions that have no parts of their own, so that what is left is few numbers, and soon found.
            cleared = joined_ranges([*head.current.cleared, *ranges_of(unneeded)])
            current = head.current.model_copy(update={"cleared": cleared})
            manifest = ClearManifest(**store.following(head, 0.0), current=current, keep=keep)
            store.publish(manifest)
            version = manifest.version
        unused = list(_unused(store, needed, before))
        if not dry_run:
            unused = [item for item in _counted(unused, progress) if store.storage.remove(item, before)]
            abandoned = [training for training in abandoned if training.remove_abandoned(before)]
    files = [item for item in unused if item.kind != "staging"]
    folders = len(unused) - len(files) + len(abandoned)
    return Cleared(version, gone, len(files), sum(item.size for item in files), folders)


def _counted(items: list[Removable], progress: Callable[[int, int], None] | None) -> Iterator[Removable]:
    """The items one by one; `progress` is called with how many are done, and of how many."""
    for done, item in enumerate(items, 1):
        yield item
        if progress is not None:
            progress(done, len(items))


def _refuse_short_grace(store: Store, before: float, grace_seconds: float) -> None:
    """Parts that a writer staged and has not published yet look like those that a killed one left: only age tells."""
    since = store.storage.staging_since()
    if since is not None and since < before:
        raise StoreError(
            f"{store}: a writer is at work since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC, longer "
            f"than the grace period of {grace_seconds / 3600:g} hours: what it wrote could be taken for leftovers; "
            "run `dkge gc` when it is done, or with a longer --grace-hours"
        )


def _trainings(store: Store, before: float) -> tuple[list[AnyTraining], list[AnyTraining]]:
    """(Abandoned, at work)."""
    trainings: list[tuple[AnyTraining, bool]] = [
        (training, training.is_abandoned(before)) for training in store.trainings
    ]
    return [t for t, abandoned in trainings if abandoned], [t for t, abandoned in trainings if not abandoned]


def _left(head: Manifest) -> Iterator[int]:
    """All versions but those that were cleared away."""
    next_one = 1
    for cleared in head.current.cleared:
        yield from range(next_one, cleared.first)
        next_one = cleared.last + 1
    yield from range(next_one, head.version + 1)


def _unused(store: Store, needed: set[int], before: float) -> Iterator[Removable]:
    """What is stored and no version that is kept needs."""
    used = _used_digests(store, needed)
    return (item for item in store.storage.older_than(before) if not (item.kind == "part" and item.name in used))


def _needed(store: Store, head: Manifest, keep: int, trained: set[int | None]) -> set[int]:
    """Versions to keep: the newest, those with an alias, what is current at these and now, what those stand on, and the
    changes between."""
    wanted = {head.version, *range(max(1, head.version - keep + 1), head.version)}
    wanted |= {number for number in store.aliases().values() if 1 <= number <= head.version}
    for number in list(wanted):
        current = store.manifest(number).current
        wanted |= {current.snapshot, current.model or current.snapshot}
    wanted |= {number for number in trained if number is not None and 1 <= number <= head.version}
    wanted = {number for number in wanted if not head.current.is_cleared(number)}
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


def _used_digests(store: Store, needed: set[int]) -> set[str]:
    """Every part that some versions need. What they share is looked at once."""
    used: set[str] = set()
    indexes: set[str] = set()
    for manifest in map(store.manifest, sorted(needed)):
        used |= {part.digest for part in parts_of(manifest)}
        for table in tables_of(manifest.model) if isinstance(manifest, ModelManifest) else ():
            if not indexes.issuperset(indexes_of(table)):
                indexes.update(indexes_of(table))
                used |= {part.digest for part in table_parts(store.storage, table)}
    return used
