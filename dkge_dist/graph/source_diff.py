"""From a source to the diff between the parent snapshot and the one that it describes. Pure: no store.

`encode` reads the triples as rows; new labels get new rows. A source describes its snapshot in one of three ways, each
with a function here that gives a `SnapshotDiff`: as a whole with splits, as a whole without splits, or as a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.holdout import HeldOut, SplitChange, Trained, default_held_out, split_change
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, SourceError
from dkge_dist.kernels.triples import canonical, contains, distinct_rows, minus
from dkge_dist.types import Array, Split, Triples

SWAPPED_FACTOR = 10
SWAPPED_MINIMUM = 100


@dataclass(frozen=True)
class Encoded:
    """The triples of a source by split, in its order; `deleted` marks those that a change file deletes.

    `names` are the display names that came with them.
    """

    splits: tuple[Triples, Triples, Triples]
    deleted: Array
    names: list[NameBatch] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of triples, duplicates included."""
        return sum(triples.count for triples in self.splits)


def encode(
    source: Source,
    entities: Dictionary,
    relations: Dictionary,
    rejects: Rejects,
    progress: Callable[[int, int], None] | None = None,
) -> Encoded:
    """Read `source` to its end. `progress` is called with the bytes read and the total."""
    parts: dict[Split, list[Triples]] = {split: [] for split in Split}
    deleted: list[Array] = []
    names: list[NameBatch] = []
    for batch in source.batches(rejects):
        # Heads and tails are encoded separately: both look-ups then read the text in its order.
        triples = Triples(entities.encode(batch.head), relations.encode(batch.relation), entities.encode(batch.tail))
        parts[batch.split].append(triples)
        if batch.deleted is not None:
            deleted.append(batch.deleted)
        if batch.names is not None and len(batch.names.label):
            # Looked up at the end: a name may come before the triples that its label is in.
            names.append(batch.names.compacted())
        if progress is not None:
            progress(source.bytes_read, source.bytes_total)
    train, valid, test = (Triples.concat(parts[split]) for split in Split)
    encoded = Encoded((train, valid, test), np.concatenate([np.empty(0, bool), *deleted]), names)
    if encoded.count == 0 and not source.is_names:
        raise SourceError(f"{source.path}: no triples in it")
    return encoded


def columns_look_swapped(encoded: Encoded, relations_known: int) -> bool:
    """Are there many more distinct relations than heads or tails? Then the columns are probably in another order.

    Only new relations count: a store that has such relations already has accepted them before.
    """
    triples = Triples.concat(list(encoded.splits))
    relations = distinct_rows(triples.relation)
    relations = relations[relations >= relations_known]
    if triples.count < SWAPPED_MINIMUM or relations.shape[0] <= SWAPPED_FACTOR:
        return False
    ends = min(distinct_rows(column).shape[0] for column in (triples.head, triples.tail))
    return bool(relations.shape[0] > SWAPPED_FACTOR * ends)


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

    Out of a first snapshot some are held out by default; if there are fewer than that, it is not reported.
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
