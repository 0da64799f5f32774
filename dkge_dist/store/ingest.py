"""Ingest: a source becomes the next snapshot of a store, all of it or nothing. In: Source, Store. Out: Ingested."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dkge_dist.graph.content import EMPTY_CONTENT, content_after
from dkge_dist.graph.dictionary import Dictionary, Segment
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.encode import Encoded, columns_look_swapped, encode
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.snapshot import Base, Snapshot
from dkge_dist.graph.source_diff import SnapshotDiff, diff_of_changes, diff_of_snapshot, diff_of_splits
from dkge_dist.graph.sources.base import Rejects, Source, SourceError
from dkge_dist.kernels.triples import canonical, distinct_rows, minus
from dkge_dist.store.manifest import BaseEntry, CurrentEntry, Manifest, SegmentEntry, SnapshotEntry, SnapshotManifest
from dkge_dist.store.parts import save_base, save_change, save_segment
from dkge_dist.store.storage import Staging, StoreError
from dkge_dist.store.store import Store
from dkge_dist.store.tables import block_rows
from dkge_dist.types import Array, DkgeError, Split, Triples, UsageError

TRUNCATED_SHARE = 0.1
SHARED_SHARE = 0.01
FOLD_AFTER_NIGHTS = 32
FOLD_AT_SHARE = 0.25
MAX_NAME_LENGTH = 200

Names = tuple[Dictionary, Dictionary]


class SuspiciousSourceError(DkgeError):
    """A source that can be read but looks wrong; `--force` ingests it all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. If that is right, say --force")


@dataclass(frozen=True)
class IngestOptions:
    """What a user may say about an ingest beside the source itself.

    `onto` is the snapshot (name or version number) that has to be current for the source to follow it.
    """

    name: str | None = None
    held_out: HeldOut = field(default_factory=HeldOut)
    force: bool = False
    max_bad_lines: int = 0
    onto: str | None = None


@dataclass(frozen=True)
class Ingested:
    """What an ingest did. `unchanged`: the store held just this already and no version was made.

    `before` and `snapshot` are the current snapshot before and after it, `names` entities and relations as the store
    now has them: an update needs nothing from disk. `rejects` says where the refused lines are.
    """

    manifest: SnapshotManifest
    diff: Diff
    before: Snapshot
    snapshot: Snapshot
    names: Names
    unchanged: bool
    lines: int
    counts: dict[str, int]
    bytes_written: int = 0
    rejects: str | None = None


def ingest(
    store: Store,
    source: Source,
    options: IngestOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Ingested:
    """Make the next snapshot of a store out of `source`. On any error the store is as before."""
    options = options or IngestOptions()
    _check_usage(source, options)
    began = clock()
    head, before = store.head(), store.current_snapshot()
    if head is None and source.is_change:
        raise SourceError(f"{source.path}: a change needs a snapshot to change, and {store} holds none yet")
    parent = store.snapshot(before, head)
    names = store.dictionaries(head)
    rejects = Rejects(options.max_bad_lines)

    encoded = encode(source, *names, rejects, progress)
    snapshot_diff = _succeed(source, parent, encoded, options.held_out, names, partial(store.was_trained, before))
    if not options.force:
        _refuse_suspicious(source, parent, encoded, snapshot_diff)
        _look_for_another_parent(source, store, before, encoded, snapshot_diff, names)

    diff = snapshot_diff.diff
    content = content_after(before.snapshot.content if before else EMPTY_CONTENT, diff, *names)
    counts = dict(snapshot_diff.counts + source.counts + Counter(bad_lines=len(rejects.lines)))
    known = _already_there(store, before, options.name, content)
    if known is not None:
        kept = _save_rejects(store, known.version, rejects)
        # Labels that only a refused or void line has are not stored, so they have no rows.
        stored = _with_segments(names, [dictionary.segments for dictionary in names])
        return Ingested(known, Diff.none(), parent, parent, stored, True, encoded.count, counts, rejects=kept)
    if options.onto is not None:
        _refuse_other_parent(source, store, before, options.onto)

    version = head.version + 1 if head else 1
    facts = {
        "name": options.name or _free_name(store, source.name, version),
        "format": source.format,
        "given_splits": source.brings_splits,
        "content": content,
        "counts": counts,
    }
    snapshot = parent.after(diff, len(names[0]), len(names[1]))
    grown = _with_segments(names, [dictionary.grown for dictionary in names])
    store.ensure()
    with store.storage.staging() as staging:
        entry = _save_snapshot(store, staging, before, snapshot, diff).model_copy(update=facts)
        manifest = SnapshotManifest(
            **_following(store, staging, head, names, grown), seconds=round(clock() - began, 3), snapshot=entry
        )
        store.publish(manifest)
    kept = _save_rejects(store, version, rejects)
    return Ingested(manifest, diff, parent, snapshot, grown, False, encoded.count, counts, staging.written, kept)


def _with_segments(names: Names, segments: list[list[Segment]]) -> Names:
    """The same dictionaries with other segments."""
    entities, relations = (Dictionary(some, kind.noun) for kind, some in zip(names, segments, strict=True))
    return entities, relations


def _following(store: Store, staging: Staging, head: Manifest | None, names: Names, grown: Names) -> dict[str, Any]:
    """What a snapshot on top of `head` says about itself, with its new labels."""
    version = head.version + 1 if head else 1
    current = head.current if head else CurrentEntry(snapshot=version, model=None)
    stored = (head.entity_segments, head.relation_segments) if head else ([], [])
    entities, relations = (_save_segments(staging, *kind) for kind in zip(names, grown, stored, strict=True))
    return {
        "version": version,
        "parent": store.checksum(head.version) if head else None,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "block_rows": head.block_rows if head else block_rows(len(grown[0])),
        "entity_segments": entities,
        "relation_segments": relations,
        "current": current.model_copy(update={"snapshot": version}),
    }


def _succeed(
    source: Source,
    parent: Snapshot,
    encoded: Encoded,
    held_out: HeldOut,
    names: Names,
    trained: Callable[[Triples], Array],
) -> SnapshotDiff:
    """What the source says, as a diff to the parent."""
    if source.is_change:
        return diff_of_changes(parent, encoded.splits[Split.TRAIN], encoded.deleted, held_out, names, trained)
    if source.brings_splits:
        return diff_of_splits(parent, encoded.splits)
    return diff_of_snapshot(parent, encoded.splits[Split.TRAIN], held_out, names, trained)


def _refuse_suspicious(source: Source, parent: Snapshot, encoded: Encoded, snapshot_diff: SnapshotDiff) -> None:
    _look_for_swapped_columns(source, encoded, parent)
    _look_for_another_graph(source, encoded, parent)
    _look_for_truncation(source, parent, snapshot_diff.diff)


def _check_usage(source: Source, options: IngestOptions) -> None:
    name = options.name
    if name is not None and not (name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH):
        raise UsageError(f"--name {name!r}: a name has 1 to {MAX_NAME_LENGTH} printable characters")
    wanted = [count for count in (options.held_out.valid, options.held_out.test) if count is not None]
    if any(count < 0 for count in wanted):
        raise UsageError("--valid and --test take a number of triples, not a negative one")
    if source.brings_splits and wanted:
        raise UsageError(f"{source.path} brings its own splits: --valid and --test do not go with it")


def _look_for_swapped_columns(source: Source, encoded: Encoded, parent: Snapshot) -> None:
    if columns_look_swapped(encoded, parent.relation_rows):
        raise SuspiciousSourceError(
            f"{source.path}: the relation column holds many more different labels than heads or tails: "
            "columns look swapped (expected head, relation, tail)"
        )


def _look_for_another_graph(source: Source, encoded: Encoded, parent: Snapshot) -> None:
    if source.is_change or not parent.triple_count:
        return
    ends = [column for triples in encoded.splits for column in (triples.head, triples.tail)]
    rows = _distinct(ends)
    shared = int((rows < parent.entity_rows).sum())
    if shared < SHARED_SHARE * min(rows.shape[0], parent.entity_rows):
        raise SuspiciousSourceError(
            f"{source.path}: only {shared:,} of its {rows.shape[0]:,} entities are known here: "
            "this looks like a different graph"
        )


def _distinct(columns: list[Array]) -> Array:
    return distinct_rows(Triples.concat([Triples(column, column, column) for column in columns]).head)


def _look_for_truncation(source: Source, parent: Snapshot, diff: Diff) -> None:
    deleted = _gone(diff)
    if deleted > TRUNCATED_SHARE * parent.triple_count:
        raise SuspiciousSourceError(
            f"{source.path}: deletes {deleted:,} of the {parent.triple_count:,} triples of the snapshot before, "
            f"over {TRUNCATED_SHARE:.0%}: this looks like a truncated dump"
        )


def _gone(diff: Diff) -> int:
    """How many triples are in no split any more. Those that go from one split to another are still there."""
    deleted = Triples.concat([change.deleted for change in diff.splits])
    if not deleted.count:
        return 0
    added = Triples.concat([change.added for change in diff.splits])
    return minus(canonical(deleted), canonical(added)).count


def _refuse_other_parent(source: Source, store: Store, before: SnapshotManifest | None, onto: str) -> None:
    """A source that the user says follows another snapshot than the current one."""
    wanted = store.find_snapshot(onto)
    if before is None or wanted.version != before.version:
        raise StoreError(
            f"{source.path}: is to follow {_called(wanted)}, but {_called(before)} is current in {store}; "
            "nothing was changed"
        )


def _called(manifest: SnapshotManifest | None) -> str:
    return f"snapshot {manifest.snapshot.name!r} (version {manifest.version})" if manifest else "no snapshot"


def _look_for_another_parent(
    source: Source,
    store: Store,
    before: SnapshotManifest | None,
    encoded: Encoded,
    snapshot_diff: SnapshotDiff,
    names: Names,
) -> None:
    """Refuse a change that finds nothing of what it deletes, unless it changes nothing: it was ingested before."""
    absent = snapshot_diff.counts["already_absent"]
    if not absent or any(change.deleted.count for change in snapshot_diff.diff.splits):
        return
    stored = [sum(segment.count for segment in dictionary.segments) for dictionary in names]
    if not (snapshot_diff.diff.is_empty and stored == [len(dictionary) for dictionary in names]):
        gone = canonical(encoded.splits[Split.TRAIN].take(encoded.deleted))
        fits = next((other for other in store.snapshots() if other != before and _holds(store, other, gone)), None)
        raise SuspiciousSourceError(
            f"{source.path}: none of the {absent:,} triples it deletes is in {_called(before)}, which is current: "
            f"this looks like a change to another snapshot{f', such as {_called(fits)}' if fits else ''}"
        )


def _holds(store: Store, manifest: SnapshotManifest, triples: Triples) -> bool:
    """Are all of the triples in a snapshot?"""
    if manifest.version in store.cleared():
        return False
    snapshot = store.snapshot(manifest)
    found = [snapshot.contains(split, triples) for split in Split]
    return bool((found[0] | found[1] | found[2]).all())


def _already_there(
    store: Store, before: SnapshotManifest | None, name: str | None, content: str
) -> SnapshotManifest | None:
    """The snapshot that makes this ingest a repetition, if there is one."""
    if name is None:
        return before if before is not None and before.snapshot.content == content else None
    taken = store.snapshot_named(name)
    if taken is not None and taken.snapshot.content != content:
        raise UsageError(f"{store}: the name {name!r} is taken by version {taken.version}, which holds other triples")
    return taken


def _free_name(store: Store, wanted: str, version: int) -> str:
    taken = {manifest.snapshot.name for manifest in store.snapshots()}
    numbered = (f"{wanted}-{number}" for number in itertools.count(version))
    return next(name for name in itertools.chain([wanted], numbered) if name not in taken)


def _save_snapshot(
    store: Store, staging: Staging, before: SnapshotManifest | None, snapshot: Snapshot, diff: Diff
) -> SnapshotEntry:
    """The change to the parent, and the whole where there is no parent or the changes have become many."""
    base: BaseEntry | None = None
    if before is None or _fold(store, before, snapshot):
        splits = tuple(snapshot.triples(split) for split in Split)
        base = save_base(staging, Base.of(splits, snapshot.entity_rows, snapshot.relation_rows))  # type: ignore[arg-type]
    came = diff.emerging_entities.shape[0] - diff.removed_entities.shape[0]
    relations_came = diff.emerging_relations.shape[0] - diff.removed_relations.shape[0]
    return SnapshotEntry(
        name="unnamed",
        parent=before.version if before else None,
        base=base,
        change=save_change(staging, diff) if before else None,
        format="",
        given_splits=False,
        entities=(before.snapshot.entities if before else 0) + came,
        relations=(before.snapshot.relations if before else 0) + relations_came,
        **{split.label: snapshot.count(split) for split in Split},
        content=EMPTY_CONTENT,
        diff=diff.counts(),
        counts={},
    )


def _fold(store: Store, before: SnapshotManifest, snapshot: Snapshot) -> bool:
    changed = sum(change.size for change in snapshot.diff.splits)
    whole = sum(triples.count for triples in snapshot.base.splits)
    return changed > FOLD_AT_SHARE * whole or len(store.chain(before)) >= FOLD_AFTER_NIGHTS


def _save_segments(
    staging: Staging, before: Dictionary, grown: Dictionary, stored: list[SegmentEntry]
) -> list[SegmentEntry]:
    """Write the segments that are new; those that were there already keep their parts."""
    kept = sum(1 for old, new in zip(before.segments, grown.segments, strict=False) if old is new)
    return stored[:kept] + [save_segment(staging, segment) for segment in grown.segments[kept:]]


def _save_rejects(store: Store, version: int, rejects: Rejects) -> str | None:
    if not rejects.lines:
        return None
    # Paths may hold bytes that are not UTF-8; they stay what they are.
    data = ("\n".join(rejects.lines) + "\n").encode("utf-8", "surrogateescape")
    return store.storage.replace(f"rejects/{version:08d}.txt", data)
