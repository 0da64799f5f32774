"""What looks wrong about a source that can be read: columns swapped, another graph, a truncated dump, another parent.

In: a Draft, nothing of which is stored yet. Out: an error that says why, and that `--force` ingests it all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from dkge_dist.graph.dictionary import NameTable
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.misspelt import Misspelling, find_misspellings
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.source_diff import Encoded, SnapshotDiff, columns_look_swapped
from dkge_dist.graph.sources.base import Source
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import canonical, minus
from dkge_dist.store.manifest import Manifest, SnapshotManifest
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Names, Store
from dkge_dist.types import Array, DkgeError, Split, Triples

TRUNCATED_SHARE = 0.1
SHARED_SHARE = 0.01
LOOKED_AT = 32
"""Snapshots that a change may have been made for: the newest."""

HEADER_MINIMUM = 5
"""Triples from which on a first line that is unlike all others is told."""

COMMON_RELATIONS = 10
"""Triples a relation from which on one that occurs once is unlike the others, even if it is not the only one."""

MOST_COMPARED = 1000
"""New labels that are compared with known ones, those with the fewest triples first: they take half a second."""

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


def possible_header(draft: Draft) -> list[str] | None:
    """The first line of a table, if it is unlike all others: a header of unusual names, taken for a triple?"""
    triples = draft.encoded.splits[Split.TRAIN]
    if draft.source.format not in ("tsv", "csv") or triples.count < HEADER_MINIMUM:
        return None
    uses = np.bincount(triples.relation)
    if uses[triples.relation[0]] != 1:
        return None
    ends = np.concatenate([triples.head, triples.tail])
    if any(np.count_nonzero(ends == column[0]) != 1 for column in (triples.head, triples.tail)):
        return None
    if triples.count < COMMON_RELATIONS * np.count_nonzero(uses) and np.count_nonzero(uses == 1) > 1:
        return None
    entities, relations = draft.names
    names = (entities, relations, entities)
    return [dictionary.label(int(column[0])) for dictionary, column in zip(names, triples, strict=True)]


@dataclass(frozen=True)
class Misspellings:
    """New relations and entities that look like a known one misspelt; how many new labels were not compared."""

    relations: list[Misspelling] = field(default_factory=list)
    entities: list[Misspelling] = field(default_factory=list)
    not_compared: int = 0

    @property
    def told(self) -> list[str]:
        """A line each."""
        kinds = (("relation", self.relations), ("entity", self.entities))
        return [f"new {noun} {m.label!r} (nearest: {m.nearest!r})" for noun, found in kinds for m in found]


def misspellings(draft: Draft) -> Misspellings:
    """Labels that the source brings and that look misspelt. Of a first snapshot nothing is known yet."""
    if draft.head is None:
        return Misspellings()
    diff = draft.change.diff
    added = Triples.concat([change.added for change in diff.splits])
    found, left = [], 0
    for names, emerging, columns in (
        (draft.names[1], diff.emerging_relations, (added.relation,)),
        (draft.names[0], diff.emerging_entities, (added.head, added.tail)),
    ):
        known = sum(segment.count for segment in names.segments)
        rows = emerging[emerging >= known]
        uses = np.bincount(np.concatenate([column[column >= known] for column in columns]) - known)
        rows = rows[np.argsort(uses[rows - known], kind="stable")]
        left += max(0, rows.shape[0] - MOST_COMPARED)
        found.append(find_misspellings(names, known, rows[:MOST_COMPARED]))
    return Misspellings(found[0], found[1], left)


def refuse_misspellings(draft: Draft, found: Misspellings) -> None:
    """What --strict does."""
    told = found.told
    if told:
        more = f" and {len(told) - 1:,} more" if len(told) > 1 else ""
        raise DkgeError(f"{draft.source.path}: {told[0]}{more}. If that is right, leave out --strict")


def refuse_suspicious(draft: Draft, store: Store) -> None:
    """Raise an error if the source looks like something that its user did not mean."""
    _look_for_swapped_columns(draft)
    _look_for_another_graph(draft)
    _look_for_truncation(draft)
    _look_for_another_parent(draft, store)


def refuse_other_parent(draft: Draft, store: Store, onto: str) -> None:
    """Raise an error if the source is to follow another snapshot than the current one."""
    # By no date: one that no snapshot is named by would stand for another snapshot.
    wanted = store.find_snapshot(onto, by_date=False)
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
    rows = distinct(*(column for triples in draft.encoded.splits for column in (triples.head, triples.tail)))
    shared = int((rows < known).sum())
    if shared < SHARED_SHARE * min(rows.shape[0], known):
        raise SuspiciousSourceError(
            f"{draft.source.path}: only {shared:,} of its {rows.shape[0]:,} entities are known here: "
            "this looks like a different graph"
        )


def _look_for_truncation(draft: Draft) -> None:
    deleted, whole = _gone(draft.change.diff), draft.before.triple_count
    if deleted > TRUNCATED_SHARE * whole:
        raise SuspiciousSourceError(
            f"{draft.source.path}: deletes {deleted:,} of the {whole:,} triples of the snapshot before, "
            f"over {TRUNCATED_SHARE:.0%}: this looks like a truncated dump (a source is the whole graph; "
            "additions alone are lines +<TAB>head<TAB>relation<TAB>tail)"
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
