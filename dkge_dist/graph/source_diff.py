"""From what a source says to the diff that leads to the next snapshot. Pure: no files, no store.

A source says one of three things: a whole snapshot with its splits, a whole snapshot without, or a change. All three
end as a `Diff` to the parent snapshot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.holdout import HeldOut, Trained, place
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import canonical, contains, distinct_rows, minus
from dkge_dist.types import Array, Split, Triples


@dataclass(frozen=True)
class SnapshotDiff:
    """The diff to the parent, and what was noticed on the way (only what is not zero)."""

    diff: Diff
    counts: Counter[str] = field(default_factory=Counter)


def by_splits(parent: Snapshot, splits: tuple[Triples, Triples, Triples]) -> SnapshotDiff:
    """A whole snapshot that brings its splits: they are taken as they are."""
    distinct = [canonical(triples) for triples in splits]
    counts = Counter(duplicates=sum(s.count for s in splits) - sum(d.count for d in distinct))
    for split in (Split.VALID, Split.TEST):
        counts[f"{split.label}_in_train"] = int(contains(distinct[Split.TRAIN], distinct[split]).sum())
    changes = [Change.between(parent.triples(split), distinct[split]) for split in Split]
    return SnapshotDiff(complete(parent, changes), +counts)


def by_union(
    parent: Snapshot, triples: Triples, wanted: HeldOut, names: tuple[Dictionary, Dictionary], trained: Trained
) -> SnapshotDiff:
    """A whole snapshot without splits: what the parent holds out stays held out."""
    distinct = canonical(triples)
    added = distinct
    deleted = []
    for split in Split:
        known = parent.triples(split)
        if split is Split.TRAIN:
            change = Change.between(known, distinct)
            added, lost = change.added, change.deleted
        else:
            added, lost = minus(added, known), minus(known, distinct)
        deleted.append(lost)
    placement = place(parent, added, tuple(deleted), wanted, names, trained)
    counts = Counter(
        duplicates=triples.count - distinct.count,
        returned_to_train=placement.returned,
        held_out_missing=placement.missing,
    )
    return SnapshotDiff(complete(parent, list(placement.changes)), +counts)


def by_change(
    parent: Snapshot,
    triples: Triples,
    deleted: Array,
    wanted: HeldOut,
    names: tuple[Dictionary, Dictionary],
    trained: Trained,
) -> SnapshotDiff:
    """A change file, in order: the last line about a triple holds. Costs follow the change."""
    last = _last_occurrences(triples)
    gone, come = canonical(triples.take(last[deleted[last]])), canonical(triples.take(last[~deleted[last]]))
    present = np.zeros(come.count, bool)
    lost = []
    found = np.zeros(gone.count, bool)
    for split in Split:
        present |= parent.contains(split, come)
        here = parent.contains(split, gone)
        found |= here
        lost.append(gone.take(here))
    placement = place(parent, come.take(~present), tuple(lost), wanted, names, trained)
    counts = Counter(
        duplicates=triples.count - last.shape[0],
        already_present=int(present.sum()),
        already_absent=int((~found).sum()),
        returned_to_train=placement.returned,
        held_out_missing=placement.missing,
    )
    return SnapshotDiff(complete(parent, list(placement.changes)), +counts)


def complete(parent: Snapshot, changes: list[Change]) -> Diff:
    """The changes with who comes alive and who dies by them."""
    entities = _touched(changes, (0, 2))
    relations = _touched(changes, (1,))
    after = parent.after(Diff.of(changes), parent.entity_rows, parent.relation_rows)
    emerging, removed = _turned(entities, parent.entity_degrees(entities).total, after.entity_degrees(entities).total)
    new, old = _turned(relations, parent.relation_degrees(relations).total, after.relation_degrees(relations).total)
    return Diff.of(changes, emerging, removed, new, old)


def _touched(changes: list[Change], columns: tuple[int, ...]) -> Array:
    triples = [side for change in changes for side in (change.added, change.deleted)]
    values = np.concatenate([side[column] for side in triples for column in columns])
    return distinct_rows(values)


def _turned(rows: Array, before: Array, after: Array) -> tuple[Array, Array]:
    return rows[(before == 0) & (after > 0)], rows[(before > 0) & (after == 0)]


def _last_occurrences(triples: Triples) -> Array:
    """Positions of the last line about each distinct triple, in file order."""
    order = np.lexsort((triples.relation, triples.tail, triples.head))
    if order.shape[0] == 0:
        return order
    ends = np.ones(order.shape[0], bool)
    ordered = triples.take(order)
    ends[:-1] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
    return np.sort(order[ends])
