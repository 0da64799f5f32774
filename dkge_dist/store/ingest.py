"""Ingest: a source becomes the next snapshot of a store, all of it or nothing. In: Source, Store. Out: Ingested."""

from __future__ import annotations

import itertools
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.graph.dictionary import Dictionary, Segment, names_of_rows
from dkge_dist.graph.diff import EMPTY_CONTENT, Diff, content_after
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.source_diff import diff_of_changes, diff_of_snapshot, diff_of_splits, encode
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, SourceError
from dkge_dist.store.display_names import add_names
from dkge_dist.store.graph_parts import save_base, save_change, save_segment
from dkge_dist.store.guards import (
    Draft,
    Misspellings,
    Named,
    misspellings,
    possible_header,
    refuse_misspellings,
    refuse_other_parent,
    refuse_suspicious,
    refuse_unknown_labels,
)
from dkge_dist.store.manifest import (
    CurrentEntry,
    DisplayNamesEntry,
    Manifest,
    NamesManifest,
    SegmentEntry,
    SnapshotEntry,
    SnapshotManifest,
)
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Names, PastTriples, Store, remember
from dkge_dist.store.tables import block_rows
from dkge_dist.types import Split, UsageError

FOLD_AFTER_NIGHTS = 32
FOLD_AT_SHARE = 0.25
MAX_NAME_LENGTH = 200
UNKNOWN = "display names of labels that are in no triple"
HEADER_NOTICE = "first lines that may be a header and were taken for triples (if so, ingest again with --columns {})"


class NameCounts(NamedTuple):
    """Display names that are new or changed, and those that were taken away."""

    entities: int = 0
    relations: int = 0
    removed_entities: int = 0
    removed_relations: int = 0

    def to_dict(self) -> dict[str, int]:
        """Removals only where there are some."""
        return {key: value for key, value in self._asdict().items() if value or not key.startswith("removed")}


NO_NAMES = NameCounts()


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
    names that are new, changed or taken away; where nothing else is, they have a version of their own.
    `held_out_by_default`: nobody said what to hold out. `misspellings`: new labels that look like known ones.
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
    named: NameCounts = NO_NAMES
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
    odd = Counter({"bad_lines": len(rejects.lines)})
    if header := possible_header(draft):
        odd[HEADER_NOTICE.format(shlex.quote(",".join(header)))] = 1
    counts = dict(sum([*noticed, odd], Counter()))
    known = _already_there(store, draft.current, options.name, content)
    if known is not None:
        # Labels of triples that change nothing are not stored, so they have no rows.
        names = _with_segments(draft.names, [dictionary.segments for dictionary in draft.names])
        # An older snapshot that is repeated brought its display names then.
        is_current = draft.head is not None and known.version == draft.head.current.snapshot
        named, written = _save_names_alone(store, draft, clock() - began) if is_current else (NO_NAMES, 0)
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
    facts: dict[str, Any] = {
        "name": options.name or _free_name(store, source.name, version),
        "format": source.format,
        "given_splits": source.brings_splits,
        "content": content,
        "counts": counts,
    }
    snapshot = draft.before.after(diff, len(draft.names[0]), len(draft.names[1]))
    is_full = draft.current is None or _fold(store, draft.current, snapshot)
    if is_full:
        # As whoever opens it finds it: a model names lists by the base that its snapshot stands on.
        snapshot = snapshot.folded()
    names = _with_segments(draft.names, [dictionary.grown for dictionary in draft.names])
    changed = _changed_names(store, draft.head, draft.named)
    store.ensure()
    with store.storage.staging() as staging:
        entry = SnapshotEntry(**facts, **_save_snapshot(staging, draft.current, snapshot, diff, is_full))
        brought = _save_labels(staging, draft, names) | {
            "name_runs": store.name_runs_with(staging, draft.head, entry.name),
            "trained_runs": remember(staging, draft.head, names, diff.deleted),
            "display_names": _save_names(staging, draft.head, changed),
        }
        following = store.following(draft.head, round(clock() - began, 3))
        manifest = SnapshotManifest(**{**following, **brought}, current=_current(draft, version), snapshot=entry)
        store.publish(manifest)
    kept = _save_rejects(store, manifest.version, rejects)
    named, written = _count_names(changed), staging.written
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
    train, trained = encoded.splits[Split.TRAIN], PastTriples(store, head, names).has
    if source.is_change:
        change = diff_of_changes(before, train, encoded.deleted, held_out, names, trained)
    elif source.brings_splits:
        change = diff_of_splits(before, encoded.splits)
    else:
        change = diff_of_snapshot(before, train, held_out, names, trained)
    named = _read_names(source, encoded.names, options.labels, names, rejects, options.force)
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
    if store.alias(name) is not None:
        raise UsageError(f"{store}: the name {name!r} is taken by an alias; `dkge alias {store}` lists them")
    taken = store.snapshot_named(name)
    if taken is not None and taken.snapshot.content != content:
        raise UsageError(f"{store}: the name {name!r} is taken by version {taken.version}, which holds other triples")
    return taken


def _free_name(store: Store, wanted: str, version: int) -> str:
    numbered = (f"{wanted}-{number}" for number in itertools.count(version))

    def is_free(name: str) -> bool:
        return store.snapshot_named(name) is None and store.alias(name) is None

    return next(filter(is_free, itertools.chain([wanted], numbered)))


def _save_snapshot(
    staging: Staging, before: SnapshotManifest | None, snapshot: Snapshot, diff: Diff, is_full: bool
) -> dict[str, Any]:
    """The change to the parent, and the whole where there is no parent or the changes have become many."""
    came = diff.emerging_entities.shape[0] - diff.removed_entities.shape[0]
    relations_came = diff.emerging_relations.shape[0] - diff.removed_relations.shape[0]
    return {
        "parent": before.version if before else None,
        "base": save_base(staging, snapshot.base) if is_full else None,
        "change": save_change(staging, diff) if before else None,
        "entities": (before.snapshot.entities if before else 0) + came,
        "relations": (before.snapshot.relations if before else 0) + relations_came,
        **{split.label: snapshot.count(split) for split in Split},
        "diff": diff.counts(),
    }


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


def _read_names(
    source: Source, batches: list[NameBatch], files: Sequence[Source], names: Names, rejects: Rejects, force: bool
) -> Named:
    """The display names that came with the triples of `source`, overruled by those of files, one after the other."""
    named = _named(source, batches, names, force)
    for file in files:
        read = (batch.names for batch in file.batches(rejects))
        more = _named(file, [batch.compacted() for batch in read if batch is not None], names, force)
        named = (named[0].then(more[0]), named[1].then(more[1]))
    return named


def _named(source: Source, batches: list[NameBatch], names: Names, force: bool) -> Named:
    """The names by rows. A label may be that of an entity, of a relation, or of both."""
    labels = Labels.concat([batch.label for batch in batches])
    entities, relations = (dictionary.lookup(labels) for dictionary in names)
    known = np.maximum(entities, relations) >= 0
    if source.is_names and not force:
        refuse_unknown_labels(source, known)
    if unknown := int((~known).sum()):
        source.counts[UNKNOWN] += unknown
    return names_of_rows(batches, entities), names_of_rows(batches, relations)


def _changed_names(store: Store, head: Manifest | None, named: Named) -> Named:
    """Those of the given names that are not so at `head` already."""
    stored = store.display_names(head.display_names if head else None)
    entities, relations = (
        names.changed(given) if names is not None else given.without_removals()
        for names, given in zip(stored, named, strict=True)
    )
    return entities, relations


def _save_names(staging: Staging, head: Manifest | None, changed: Named) -> DisplayNamesEntry | None:
    """What a version on top of `head` says about display names, with those that changed."""
    before = head.display_names if head else None
    if not any(names.count for names in changed):
        return before
    before = before or DisplayNamesEntry(entities=[], relations=[])
    return DisplayNamesEntry(
        entities=add_names(staging, before.entities, changed[0]),
        relations=add_names(staging, before.relations, changed[1]),
    )


def _save_names_alone(store: Store, draft: Draft, seconds: float) -> tuple[NameCounts, int]:
    """Where no triple changed: publish the names that did. How many, and the bytes written for them."""
    head = draft.head
    assert head is not None, "nothing is unchanged in an empty store"
    # Labels that came with triples that change nothing have no rows in the store.
    known = (
        names.take(names.rows < sum(segment.count for segment in dictionary.segments))
        for names, dictionary in zip(draft.named, draft.names, strict=True)
    )
    changed = _changed_names(store, head, (next(known), next(known)))
    counts = _count_names(changed)
    if not any(counts):
        return counts, 0
    with store.storage.staging() as staging:
        following = {**store.following(head, round(seconds, 3)), "display_names": _save_names(staging, head, changed)}
        store.publish(NamesManifest(**following, current=head.current, named=counts.to_dict()))
    return counts, staging.written


def _count_names(named: Named) -> NameCounts:
    """How many names of entities and of relations, and how many were taken away."""
    removed = [int(names.is_removal.sum()) for names in named]
    return NameCounts(named[0].count - removed[0], named[1].count - removed[1], *removed)
