"""Ingest: a source becomes the next snapshot of a store, all of it or nothing. In: Source, Store. Out: Ingested."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dkge_dist.graph.content import EMPTY_CONTENT, content_after
from dkge_dist.graph.dictionary import Dictionary, Segment
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.encode import encode
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.snapshot import Base, Snapshot
from dkge_dist.graph.source_diff import diff_of_changes, diff_of_snapshot, diff_of_splits
from dkge_dist.graph.sources.base import Rejects, Source, SourceError
from dkge_dist.store.aliases import read_alias
from dkge_dist.store.guards import (
    Draft,
    Misspellings,
    Names,
    first_may_be_header,
    misspellings,
    refuse_misspellings,
    refuse_other_parent,
    refuse_suspicious,
)
from dkge_dist.store.manifest import BaseEntry, CurrentEntry, SegmentEntry, SnapshotEntry, SnapshotManifest
from dkge_dist.store.naming import changed_names, count_names, read_names, save_names, save_names_alone
from dkge_dist.store.parts import save_base, save_change, save_segment
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store
from dkge_dist.store.tables import block_rows
from dkge_dist.store.trained import remember, was_trained
from dkge_dist.types import Split, UsageError

FOLD_AFTER_NIGHTS = 32
FOLD_AT_SHARE = 0.25
MAX_NAME_LENGTH = 200
HEADER_NOTICE = "first lines that may be a header (name its --columns)"


@dataclass(frozen=True)
class IngestOptions:
    """What a user may say about an ingest beside the source itself.

    `onto` is the snapshot (name or version number) that has to be current for the source to follow it. `labels` are
    files of display names, which overrule those of the source.
    """

    name: str | None = None
    held_out: HeldOut = field(default_factory=HeldOut)
    force: bool = False
    max_bad_lines: int = 0
    onto: str | None = None
    labels: Sequence[Source] = ()
    strict: bool = False


@dataclass(frozen=True)
class Ingested:
    """What an ingest did. `unchanged`: the store held just these triples already, and no snapshot was made.

    `before` and `snapshot` are the current snapshot before and after it, `names` entities and relations as the store
    now has them: an update needs nothing from disk. `rejects` says where the refused lines are. `named` counts display
    names that are new or changed; where nothing else is, they have a version of their own. `held_out_by_default`:
    nobody said what to hold out. `misspellings`: new labels that look like known ones.
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
    named: tuple[int, int] = (0, 0)
    held_out_by_default: bool = False
    misspellings: Misspellings = field(default_factory=Misspellings)


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
    rejects = Rejects(options.max_bad_lines)
    draft = _read(store, source, options, rejects, progress)
    if not options.force:
        refuse_suspicious(draft, store)
    diff, lines = draft.change.diff, draft.encoded.count
    content = content_after(draft.current.snapshot.content if draft.current else EMPTY_CONTENT, diff, *draft.names)
    noticed = [draft.change.counts, *(some.counts for some in (source, *options.labels))]
    odd = Counter({"bad_lines": len(rejects.lines), HEADER_NOTICE: int(first_may_be_header(draft))})
    counts = dict(sum([*noticed, odd], Counter()))
    known = _already_there(store, draft.current, options.name, content)
    if known is not None:
        # Labels of triples that change nothing are not stored, so they have no rows.
        names = _with_segments(draft.names, [dictionary.segments for dictionary in draft.names])
        # An older snapshot that is repeated brought its display names then.
        is_current = draft.head is not None and known.version == draft.head.current.snapshot
        named, written = save_names_alone(store, draft, clock() - began) if is_current else ((0, 0), 0)
        kept = _save_rejects(store, known.version, rejects)
        before = draft.before
        return Ingested(known, Diff.none(), before, before, names, True, lines, counts, written, kept, named)
    if options.onto is not None:
        refuse_other_parent(draft, store, options.onto)
    misspelt = misspellings(draft)
    if options.strict:
        refuse_misspellings(draft, misspelt)

    # The version follows the head that was read: if another writer has published since, the number is taken.
    version = draft.head.version + 1 if draft.head else 1
    facts = {
        "name": options.name or _free_name(store, source.name, version),
        "format": source.format,
        "given_splits": source.brings_splits,
        "content": content,
        "counts": counts,
    }
    snapshot = draft.before.after(diff, len(draft.names[0]), len(draft.names[1]))
    names = _with_segments(draft.names, [dictionary.grown for dictionary in draft.names])
    changed = changed_names(store, draft.head, draft.named)
    store.ensure()
    with store.storage.staging() as staging:
        entry = _save_snapshot(store, staging, draft.current, snapshot, diff).model_copy(update=facts)
        brought = _save_labels(staging, draft, names) | {
            "names": store.names_with(staging, draft.head, entry.name),
            "trained_runs": remember(store, staging, draft.head, names, diff.deleted),
            "display_names": save_names(staging, draft.head, changed),
        }
        following = store.following(draft.head, round(clock() - began, 3))
        manifest = SnapshotManifest(**{**following, **brought}, current=_current(draft, version), snapshot=entry)
        store.publish(manifest)
    kept = _save_rejects(store, manifest.version, rejects)
    named, written = count_names(changed), staging.written
    by_default = draft.head is None and not source.brings_splits and options.held_out == HeldOut()
    return Ingested(
        manifest, diff, draft.before, snapshot, names, False, lines, counts, written, kept, named, by_default, misspelt
    )


def _read(
    store: Store,
    source: Source,
    options: IngestOptions,
    rejects: Rejects,
    progress: Callable[[int, int], None] | None,
) -> Draft:
    """Read the source and the display names, and compare the triples with the current snapshot."""
    held_out = options.held_out
    head = store.head()
    if head is None and source.is_change:
        raise SourceError(f"{source.path}: a change needs a snapshot to change, and {store} holds none yet")
    current = store.snapshot_manifest(head.current.snapshot) if head else None
    before = store.snapshot(current, head)
    names = store.dictionaries(head)
    encoded = encode(source, *names, rejects, progress)
    train, trained = encoded.splits[Split.TRAIN], partial(was_trained, store, head, names)
    if source.is_change:
        change = diff_of_changes(before, train, encoded.deleted, held_out, names, trained)
    elif source.brings_splits:
        change = diff_of_splits(before, encoded.splits)
    else:
        change = diff_of_snapshot(before, train, held_out, names, trained)
    named = read_names(source, encoded.names, options.labels, names, rejects, options.force)
    return Draft(source, encoded, names, head, current, before, change, named)


def _with_segments(names: Names, segments: list[list[Segment]]) -> Names:
    """The same dictionaries with other segments."""
    entities, relations = (Dictionary(some, kind.noun) for kind, some in zip(names, segments, strict=True))
    return entities, relations


def _save_labels(staging: Staging, draft: Draft, names: Names) -> dict[str, Any]:
    """Write new labels. What the version says about its dictionaries; the first one fixes the rows of a block."""
    head = draft.head
    stored = (head.entity_segments, head.relation_segments) if head else ([], [])
    entities, relations = (_save_segments(staging, *kind) for kind in zip(draft.names, names, stored, strict=True))
    rows = head.block_rows if head else block_rows(len(names[0]))
    return {"block_rows": rows, "entity_segments": entities, "relation_segments": relations}


def _current(draft: Draft, version: int) -> CurrentEntry:
    """The new snapshot, and the model that was current before."""
    if draft.head is None:
        return CurrentEntry(snapshot=version, model=None, trained=0)
    return draft.head.current.model_copy(update={"snapshot": version})


def _check_usage(source: Source, options: IngestOptions) -> None:
    name = options.name
    if name is not None and not (name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH):
        raise UsageError(f"--name {name!r}: a name has 1 to {MAX_NAME_LENGTH} printable characters")
    wanted = [count for count in (options.held_out.valid, options.held_out.test) if count is not None]
    if any(count < 0 for count in wanted):
        raise UsageError("--valid and --test take a number of triples, not a negative one")
    if options.force and options.strict:
        raise UsageError("--force takes what looks wrong and --strict refuses it: say one of them")
    if source.brings_splits and wanted:
        raise UsageError(f"{source.path} brings its own splits: --valid and --test do not go with it")


def _already_there(
    store: Store, before: SnapshotManifest | None, name: str | None, content: str
) -> SnapshotManifest | None:
    """The snapshot that makes this ingest a repetition, if there is one."""
    if name is None:
        return before if before is not None and before.snapshot.content == content else None
    if read_alias(store.storage, name) is not None:
        raise UsageError(f"{store}: the name {name!r} is taken by an alias; `dkge alias {store}` lists them")
    taken = store.snapshot_named(name)
    if taken is not None and taken.snapshot.content != content:
        raise UsageError(f"{store}: the name {name!r} is taken by version {taken.version}, which holds other triples")
    return taken


def _free_name(store: Store, wanted: str, version: int) -> str:
    numbered = (f"{wanted}-{number}" for number in itertools.count(version))

    def is_free(name: str) -> bool:
        return store.snapshot_named(name) is None and read_alias(store.storage, name) is None

    return next(filter(is_free, itertools.chain([wanted], numbered)))


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
