"""Which triples are held out for validation and test. In: a change without splits. Out: the change by split. Pure.

Three invariants, of which the first takes precedence over the second: every object that is alive has a train triple; a
held-out triple stays held out; a triple that was ever in train is never held out later. Choices depend on a hash of
labels, never on order or chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Change, Diff, hash_triples
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import canonical, minus, removable_triples, union
from dkge_dist.types import Array, Split, Triples

_SEED = 0x686F6C646F7574

DEFAULT_SHARE, FEWEST, MOST = 0.01, 100, 3000
SMALLEST_GRAPH = 2000
"""With fewer triples none is held out by default: what measures anything would be over a twentieth of them."""

Trained = Callable[[Triples], Array]
"""For each triple: was it in the train split of the parent or of an earlier snapshot?"""


@dataclass(frozen=True)
class HeldOut:
    """How many triples to hold out; None keeps what the parent snapshot holds out."""

    valid: int | None = None
    test: int | None = None


def default_held_out(triples: int) -> HeldOut:
    """What a first snapshot holds out by default: without held-out triples nothing can be measured."""
    if triples < SMALLEST_GRAPH:
        return HeldOut()
    count = min(max(round(DEFAULT_SHARE * triples), FEWEST), MOST)
    return HeldOut(count, count)


@dataclass(frozen=True)
class SplitChange:
    """The changes by split; how many held-out triples returned to train, and how many fewer than wanted there are."""

    changes: tuple[Change, Change, Change]
    returned: int
    missing: int


def split_change(
    parent: Snapshot,
    added: Triples,
    deleted: tuple[Triples, ...],
    wanted: HeldOut,
    names: tuple[Dictionary, Dictionary],
    trained: Trained,
) -> SplitChange:
    """Split a change of `parent`: `added` (canonical, in none of its splits) and `deleted` (by split)."""
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
    return SplitChange((train, valid, test), returned, missing)


def _return_to_train(parent: Snapshot, changes: list[Change], names: tuple[Dictionary, Dictionary]) -> int:
    """For each object that loses its last train triple, return its held-out triple of the smallest hash to train."""
    lost = changes[Split.TRAIN].deleted
    if not lost.count:
        return 0
    after = _after(parent, changes)
    entities = distinct(lost.head, lost.tail)
    entities = entities[after.entity_degrees(entities).train == 0]
    relations = distinct(lost.relation)
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
    """Flags of triples that cover those of `entities` and `relations` that any triple covers. Consumes both sets."""
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
    """The `count` triples of `added` of the smallest hashes that were never in train and that train can do without."""
    eligible = minus(added, union(changes[Split.VALID].added, changes[Split.TEST].added))
    if count == 0 or eligible.count == 0:
        return Triples.empty()
    after = _after(parent, changes)
    hashes = hash_triples(eligible, _SEED, *names)
    window = min(eligible.count, 4 * count + 1024)
    while True:
        # Only a window of the smallest hashes is sorted and looked up: `added` may be the whole graph.
        near = np.argpartition(hashes, window - 1)[:window] if window < eligible.count else np.arange(eligible.count)
        candidates = eligible.take(near[np.argsort(hashes[near], kind="stable")])
        candidates = candidates.take(~trained(candidates))
        chosen = _removable(after, candidates, count)
        if chosen.shape[0] == count or window == eligible.count:
            return canonical(candidates.take(chosen))
        window = min(eligible.count, 4 * window)


def _removable(after: Snapshot, candidates: Triples, count: int) -> Array:
    """Positions of the first `count` candidates that can be removed with every object keeping a train triple."""
    entities, ends = np.unique(np.concatenate([candidates.head, candidates.tail]), return_inverse=True)
    relations, kinds = np.unique(candidates.relation, return_inverse=True)
    degrees = after.entity_degrees(entities).train, after.relation_degrees(relations).train
    return removable_triples(ends[: candidates.count], kinds, ends[candidates.count :], *degrees, count)
