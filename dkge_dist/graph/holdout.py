"""Which triples are held out for validation and test. In: a change without splits. Out: the change by split. Pure.

Three promises, the first winning over the second: whoever is alive stands in train; a triple that is held out stays so;
a triple that was ever trained on is never held out later. Choices go by a hash of labels, never by order or chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.content import hash_triples
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.removable_triples import removable_triples
from dkge_dist.kernels.triples import canonical, minus, union
from dkge_dist.types import Array, Split, Triples

_SEED = 0x686F6C646F7574

Trained = Callable[[Triples], Array]
"""Tells of each triple whether it was in the train split of the parent or of a snapshot before it."""


@dataclass(frozen=True)
class HeldOut:
    """How many triples to hold out for each purpose; None leaves what the parent snapshot held out."""

    valid: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Placement:
    """The changes by split, how many held-out triples had to go back to train, and how many are missing to N."""

    changes: tuple[Change, Change, Change]
    returned: int
    missing: int


def place(
    parent: Snapshot,
    added: Triples,
    deleted: tuple[Triples, ...],
    wanted: HeldOut,
    names: tuple[Dictionary, Dictionary],
    trained: Trained,
) -> Placement:
    """Split a change of `parent`: `added` (canonical, in no split of it) and `deleted` (by split)."""
    changes = [Change(Triples.empty(), lost) for lost in deleted]
    changes[Split.TRAIN] = Change(added, deleted[Split.TRAIN])
    returned = _return_to_train(parent, changes, names)
    missing = 0
    for split, count in ((Split.TEST, wanted.test), (Split.VALID, wanted.valid)):
        if count is None:
            continue
        present = parent.count(split) + changes[split].added.count - changes[split].deleted.count
        chosen = _choose(parent, changes, added, max(0, count - present), names, trained)
        missing += max(0, count - present) - chosen.count
        _move(changes, chosen, Split.TRAIN, split)
    train, valid, test = changes
    return Placement((train, valid, test), returned, missing)


def _return_to_train(parent: Snapshot, changes: list[Change], names: tuple[Dictionary, Dictionary]) -> int:
    """Objects whose last train triple goes get one of their held-out triples for it, that of the smallest hash."""
    lost = changes[Split.TRAIN].deleted
    if not lost.count:
        return 0
    after = _after(parent, changes)
    entities = np.unique(np.concatenate([lost.head, lost.tail]))
    entities = entities[after.entity_degrees(entities).train == 0]
    relations = np.unique(lost.relation)
    relations = relations[after.relation_degrees(relations).train == 0]
    if not entities.shape[0] and not relations.shape[0]:
        return 0
    stranded = {}
    for split in (Split.VALID, Split.TEST):
        held = minus(parent.triples(split), changes[split].deleted)
        touched = np.isin(held.head, entities) | np.isin(held.tail, entities) | np.isin(held.relation, relations)
        stranded[split] = held.take(touched)
    both = Triples.concat(list(stranded.values()))
    needed = _cover(both, hash_triples(both, _SEED, *names), set(entities.tolist()), set(relations.tolist()))
    for split, part in zip(stranded, np.split(needed, [stranded[Split.VALID].count]), strict=True):
        _move(changes, stranded[split].take(part), split, Split.TRAIN)
    return int(needed.sum())


def _cover(triples: Triples, hashes: Array, entities: set[int], relations: set[int]) -> Array:
    """Flags of triples that together hold all of `entities` and `relations` that any holds. Empties both sets."""
    needed = np.zeros(triples.count, bool)
    for i in np.argsort(hashes, kind="stable").tolist():
        ends, relation = {int(triples.head[i]), int(triples.tail[i])}, int(triples.relation[i])
        needed[i] = bool(ends & entities) or relation in relations
        entities -= ends
        relations.discard(relation)
    return needed


def _move(changes: list[Change], triples: Triples, origin: Split, target: Split) -> None:
    if triples.count:
        changes[origin] = changes[origin].then(Change(Triples.empty(), triples))
        changes[target] = changes[target].then(Change(triples, Triples.empty()))


def _after(parent: Snapshot, changes: list[Change]) -> Snapshot:
    return parent.after(Diff.of(changes), parent.entity_rows, parent.relation_rows)


def _choose(
    parent: Snapshot,
    changes: list[Change],
    added: Triples,
    count: int,
    names: tuple[Dictionary, Dictionary],
    trained: Trained,
) -> Triples:
    """The `count` triples of `added`, never trained on, of the smallest hashes whose removal leaves all in train."""
    eligible = minus(added, union(changes[Split.VALID].added, changes[Split.TEST].added))
    if count == 0 or eligible.count == 0:
        return Triples.empty()
    after = _after(parent, changes)
    hashes = hash_triples(eligible, _SEED, *names)
    window = min(eligible.count, 4 * count + 1024)
    while True:
        # Only a window of the smallest hashes is sorted and asked for degrees: the whole may be the whole graph.
        near = np.argpartition(hashes, window - 1)[:window] if window < eligible.count else np.arange(eligible.count)
        candidates = eligible.take(near[np.argsort(hashes[near], kind="stable")])
        candidates = candidates.take(~trained(candidates))
        chosen = _spare(after, candidates, count)
        if chosen.shape[0] == count or window == eligible.count:
            return canonical(candidates.take(chosen))
        window = min(eligible.count, 4 * window)


def _spare(after: Snapshot, candidates: Triples, count: int) -> Array:
    """Positions of the first `count` candidates that everybody in them can spare."""
    entities, ends = np.unique(np.concatenate([candidates.head, candidates.tail]), return_inverse=True)
    relations, kinds = np.unique(candidates.relation, return_inverse=True)
    degrees = after.entity_degrees(entities).train, after.relation_degrees(relations).train
    return removable_triples(ends[: candidates.count], kinds, ends[candidates.count :], *degrees, count)
