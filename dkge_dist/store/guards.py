"""What looks wrong about a source that can be read: columns swapped, another graph, a truncated dump, another parent.

In: a Draft, nothing of which is stored yet. Out: an error that says why, and that `--force` ingests it all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.display_names import NameTable
from dkge_dist.graph.encode import Encoded, columns_look_swapped
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.source_diff import SnapshotDiff
from dkge_dist.graph.sources.base import Source
from dkge_dist.kernels.triples import canonical, distinct_rows, minus
from dkge_dist.store.manifest import Manifest, SnapshotManifest
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.types import Array, DkgeError, Split, Triples

TRUNCATED_SHARE = 0.1
SHARED_SHARE = 0.01
LOOKED_AT = 32
"""Snapshots that a change may have been made for: the newest."""

Names = tuple[Dictionary, Dictionary]
"""Entities and relations."""

Named = tuple[NameTable, NameTable]
"""Display names of entities and of relations."""


class SuspiciousSourceError(DkgeError):
    """A source that can be read but looks wrong; `--force` ingests it all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}. If that is right, say --force")


@dataclass(frozen=True)
class Draft:
    """A source as rows, and what it changes about the snapshot that is current at `head`.

    `names` have its new labels already; `named` are the display names that it gives, of entities and of relations.
    """

    source: Source
    encoded: Encoded
    names: Names
    head: Manifest | None
    current: SnapshotManifest | None
    before: Snapshot
    change: SnapshotDiff
    named: Named


def refuse_suspicious(draft: Draft, store: Store) -> None:
    """Raise an error if the source looks like something that its user did not mean."""
    _look_for_swapped_columns(draft)
    _look_for_another_graph(draft)
    _look_for_truncation(draft)
    _look_for_another_parent(draft, store)


def refuse_other_parent(draft: Draft, store: Store, onto: str) -> None:
    """Raise an error if the source is to follow another snapshot than the current one."""
    wanted = store.find_snapshot(onto)
    if draft.current is None or wanted.version != draft.current.version:
        raise StoreError(
            f"{draft.source.path}: is to follow {_called(wanted)}, but {_called(draft.current)} is current in {store}; "
            "nothing was changed"
        )


def refuse_unknown_labels(source: Source, known: Array) -> None:
    """Raise an error if no label of a file of display names is known. An empty file is none that is wrong."""
    if known.shape[0] and not known.any():
        raise SuspiciousSourceError(
            f"{source.path}: none of its {known.shape[0]:,} labels is an entity or a relation here "
            "(expected label, then name)"
        )


def _look_for_swapped_columns(draft: Draft) -> None:
    if columns_look_swapped(draft.encoded, draft.before.relation_rows):
        raise SuspiciousSourceError(
            f"{draft.source.path}: the relation column holds many more different labels than heads or tails: "
            "columns look swapped (expected head, relation, tail)"
        )


def _look_for_another_graph(draft: Draft) -> None:
    known = draft.before.entity_rows
    if draft.source.is_change or not draft.before.triple_count:
        return
    rows = _distinct([column for triples in draft.encoded.splits for column in (triples.head, triples.tail)])
    shared = int((rows < known).sum())
    if shared < SHARED_SHARE * min(rows.shape[0], known):
        raise SuspiciousSourceError(
            f"{draft.source.path}: only {shared:,} of its {rows.shape[0]:,} entities are known here: "
            "this looks like a different graph"
        )


def _distinct(columns: list[Array]) -> Array:
    return distinct_rows(Triples.concat([Triples(column, column, column) for column in columns]).head)


def _look_for_truncation(draft: Draft) -> None:
    deleted, whole = _gone(draft.change.diff), draft.before.triple_count
    if deleted > TRUNCATED_SHARE * whole:
        raise SuspiciousSourceError(
            f"{draft.source.path}: deletes {deleted:,} of the {whole:,} triples of the snapshot before, "
            f"over {TRUNCATED_SHARE:.0%}: this looks like a truncated dump"
        )


def _gone(diff: Diff) -> int:
    """How many triples are in no split any more. Those that go from one split to another are still there."""
    deleted = Triples.concat([change.deleted for change in diff.splits])
    if not deleted.count:
        return 0
    added = Triples.concat([change.added for change in diff.splits])
    return minus(canonical(deleted), canonical(added)).count


def _look_for_another_parent(draft: Draft, store: Store) -> None:
    """A change that finds nothing of what it deletes, unless it changes nothing at all: it was ingested before."""
    absent = draft.change.counts["already_absent"]
    if not absent or any(change.deleted.count for change in draft.change.diff.splits):
        return
    stored = [sum(segment.count for segment in dictionary.segments) for dictionary in draft.names]
    if draft.change.diff.is_empty and stored == [len(dictionary) for dictionary in draft.names]:
        return
    gone = canonical(draft.encoded.splits[Split.TRAIN].take(draft.encoded.deleted))
    others = (other for other in islice(store.snapshots(), LOOKED_AT) if other != draft.current)
    fits = next((other for other in others if _holds(store, other, gone)), None)
    raise SuspiciousSourceError(
        f"{draft.source.path}: none of the {absent:,} triples it deletes is in {_called(draft.current)}, which is "
        f"current: this looks like a change to another snapshot{f', such as {_called(fits)}' if fits else ''}"
    )


def _holds(store: Store, manifest: SnapshotManifest, triples: Triples) -> bool:
    """Are all of the triples in a snapshot?"""
    if store.is_cleared(manifest.version):
        return False
    snapshot = store.snapshot(manifest)
    found = [snapshot.contains(split, triples) for split in Split]
    return bool((found[0] | found[1] | found[2]).all())


def _called(manifest: SnapshotManifest | None) -> str:
    return f"snapshot {manifest.snapshot.name!r} (version {manifest.version})" if manifest else "no snapshot"
