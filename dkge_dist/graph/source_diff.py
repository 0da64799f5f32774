"""The diff from the parent snapshot to the one that a source describes. Pure: no files, no store.

A source describes its snapshot in one of three ways, each with a function here: as a whole with splits, as a whole
without splits, or as a change. All three give a `SnapshotDiff`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.holdout import HeldOut, SplitChange, Trained, default_held_out, split_change
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import canonical, contains, distinct_rows, minus
from dkge_dist.types import Array, Split, Triples


@dataclass(frozen=True)
class SnapshotDiff:
    """The diff to the parent snapshot, and what was noticed in the source, by name; zeros are left out."""

    diff: Diff
    counts: Counter[str] = field(default_factory=Counter)


def diff_of_splits(parent: Snapshot, splits: tuple[Triples, Triples, Triples]) -> SnapshotDiff:
    """Of a whole snapshot with splits: they are taken as given."""
    distinct = [canonical(triples) for triples in splits]
    counts = Counter(duplicates=sum(s.count for s in splits) - sum(d.count for d in distinct))
    for split in (Split.VALID, Split.TEST):
        counts[f"{split.label}_in_train"] = int(contains(distinct[Split.TRAIN], distinct[split]).sum())
    changes = [Change.between(parent.triples(split), distinct[split]) for split in Split]
    return SnapshotDiff(complete_diff(parent, changes), +counts)


def diff_of_snapshot(
    parent: Snapshot, triples: Triples, wanted: HeldOut, names: tuple[Dictionary, Dictionary], trained: Trained
) -> SnapshotDiff:
    """Of a whole snapshot without splits: triples that the parent holds out stay held out.

    Out of a first snapshot some are held out by default; how many fewer than that there are is nobody's concern.
    """
    distinct = canonical(triples)
    by_default = not parent.triple_count and wanted == HeldOut()
    wanted = default_held_out(distinct.count) if by_default else wanted
    added = distinct
    deleted = []
    for split in Split:
        before = parent.triples(split)
        if split is Split.TRAIN:
            change = Change.between(before, distinct)
            added, lost = change.added, change.deleted
        else:
            added, lost = minus(added, before), minus(before, distinct)
        deleted.append(lost)
    found = split_change(parent, added, tuple(deleted), wanted, names, trained)
    found = replace(found, missing=0) if by_default else found
    return _snapshot_diff(parent, found, duplicates=triples.count - distinct.count)


def diff_of_changes(
    parent: Snapshot,
    triples: Triples,
    deleted: Array,
    wanted: HeldOut,
    names: tuple[Dictionary, Dictionary],
    trained: Trained,
) -> SnapshotDiff:
    """Of a change file, in order: the last line about a triple counts. Costs follow the change."""
    last = _last_occurrences(triples)
    removed, added = canonical(triples.take(last[deleted[last]])), canonical(triples.take(last[~deleted[last]]))
    present = np.zeros(added.count, bool)
    lost = []
    found = np.zeros(removed.count, bool)
    for split in Split:
        present |= parent.contains(split, added)
        here = parent.contains(split, removed)
        found |= here
        lost.append(removed.take(here))
    return _snapshot_diff(
        parent,
        split_change(parent, added.take(~present), tuple(lost), wanted, names, trained),
        duplicates=triples.count - last.shape[0],
        already_present=int(present.sum()),
        already_absent=int((~found).sum()),
    )


def _snapshot_diff(parent: Snapshot, change: SplitChange, **counts: int) -> SnapshotDiff:
    noticed = Counter({**counts, "returned_to_train": change.returned, "held_out_missing": change.missing})
    return SnapshotDiff(complete_diff(parent, list(change.changes)), +noticed)


def complete_diff(parent: Snapshot, changes: list[Change]) -> Diff:
    """The changes by split, with the rows that become alive (emerging) or cease to be (removed) by them."""
    entities = _touched_rows(changes, (0, 2))
    relations = _touched_rows(changes, (1,))
    after = parent.after(Diff.of(changes), parent.entity_rows, parent.relation_rows)
    entity_rows = _toggled(entities, parent.entity_degrees(entities).total, after.entity_degrees(entities).total)
    relation_rows = _toggled(
        relations, parent.relation_degrees(relations).total, after.relation_degrees(relations).total
    )
    return Diff.of(changes, *entity_rows, *relation_rows)


def _touched_rows(changes: list[Change], columns: tuple[int, ...]) -> Array:
    triples = [side for change in changes for side in (change.added, change.deleted)]
    values = np.concatenate([side[column] for side in triples for column in columns])
    return distinct_rows(values)


def _toggled(rows: Array, before: Array, after: Array) -> tuple[Array, Array]:
    """(rows whose degree rose from zero, rows whose degree fell to zero)."""
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
