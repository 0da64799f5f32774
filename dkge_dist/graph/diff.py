"""The difference between two snapshots as a value, which can be composed with the next one, inverted and applied.

A checksum of the content of a snapshot follows from it: independent of row numbers, so of the store, and additive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.kernels.hashing import triple_hashes
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import differences, minus, union
from dkge_dist.types import ROW, Array, Split, Triples


@dataclass(frozen=True)
class Change:
    """Triples that one split gained and lost. Both are canonical, and no triple is in both."""

    added: Triples
    deleted: Triples

    @staticmethod
    def none() -> Change:
        """The empty change."""
        return Change(Triples.empty(), Triples.empty())

    @staticmethod
    def between(old: Triples, new: Triples) -> Change:
        """From one canonical set to another."""
        deleted, added = differences(old, new)
        return Change(added, deleted)

    def then(self, later: Change) -> Change:
        """The net effect of this and then `later`."""
        if not self.size or not later.size:
            return later if later.size else self
        added = union(minus(self.added, later.deleted), minus(later.added, self.deleted))
        deleted = union(minus(self.deleted, later.added), minus(later.deleted, self.added))
        return Change(added, deleted)

    def inverted(self) -> Change:
        """The change that undoes this one."""
        return Change(added=self.deleted, deleted=self.added)

    @property
    def size(self) -> int:
        """Triples gained plus triples lost."""
        return self.added.count + self.deleted.count


@dataclass(frozen=True)
class Diff:
    """From one snapshot to another: triples by split; rows alive only after it (`emerging`) or before (`removed`)."""

    train: Change
    valid: Change
    test: Change
    emerging_entities: Array
    removed_entities: Array
    emerging_relations: Array
    removed_relations: Array

    @staticmethod
    def none() -> Diff:
        """The empty diff."""
        return Diff.of([Change.none()] * 3)

    @staticmethod
    def of(changes: Sequence[Change], *rows: Array) -> Diff:
        """From the changes by split and the four groups of rows, empty by default."""
        train, valid, test = changes
        emerging, removed, new, old = rows or [np.empty(0, ROW)] * 4
        return Diff(train, valid, test, emerging, removed, new, old)

    @property
    def splits(self) -> tuple[Change, Change, Change]:
        """The changes, indexed by `Split`."""
        return self.train, self.valid, self.test

    @property
    def added(self) -> Triples:
        """Train triples gained."""
        return self.train.added

    @property
    def deleted(self) -> Triples:
        """Train triples lost."""
        return self.train.deleted

    @property
    def is_empty(self) -> bool:
        """No triple of any split changed, and hence no row emerged or was removed."""
        return not any(change.size for change in self.splits)

    def then(self, later: Diff) -> Diff:
        """The net effect of this and then `later`: what was added and deleted again is in neither side."""
        entities = _net(self.emerging_entities, self.removed_entities, later.emerging_entities, later.removed_entities)
        relations = _net(
            self.emerging_relations, self.removed_relations, later.emerging_relations, later.removed_relations
        )
        splits = [mine.then(theirs) for mine, theirs in zip(self.splits, later.splits, strict=True)]
        return Diff.of(splits, *entities, *relations)

    def inverted(self) -> Diff:
        """The diff that undoes this one."""
        return Diff.of(
            [change.inverted() for change in self.splits],
            self.removed_entities,
            self.emerging_entities,
            self.removed_relations,
            self.emerging_relations,
        )

    def counts(self) -> dict[str, int]:
        """Sizes for reports; held-out splits only where they changed."""
        out = {"added": self.added.count, "deleted": self.deleted.count}
        for split in (Split.VALID, Split.TEST):
            change = self.splits[split]
            if change.size:
                out[f"added_{split.label}"] = change.added.count
                out[f"deleted_{split.label}"] = change.deleted.count
        for column in fields(self)[3:]:
            out[column.name] = int(getattr(self, column.name).shape[0])
        return out


def _net(emerging: Array, removed: Array, emerging_later: Array, removed_later: Array) -> tuple[Array, Array]:
    net_emerging = _joined(_without(emerging, removed_later), _without(emerging_later, removed))
    net_removed = _joined(_without(removed, emerging_later), _without(removed_later, emerging))
    return net_emerging, net_removed


def _without(rows: Array, others: Array) -> Array:
    return rows[~np.isin(rows, others, assume_unique=True)] if others.shape[0] else rows


def _joined(rows: Array, others: Array) -> Array:
    if not rows.shape[0] or not others.shape[0]:
        return rows if rows.shape[0] else others
    return distinct(rows, others).astype(ROW)


LANES = 2
_SEED = 0x636F6E74656E74
EMPTY_CONTENT = "0" * 16 * LANES
"""The content of a snapshot without triples."""


def hash_triples(triples: Triples, seed: int, entities: Dictionary, relations: Dictionary) -> Array:
    """A 64-bit hash of every triple, of its labels and not of its rows."""
    head, tail = entities.digests_of(triples.head), entities.digests_of(triples.tail)
    return triple_hashes(seed, head, relations.digests_of(triples.relation), tail)


def content_of(triples: Triples, split: Split, entities: Dictionary, relations: Dictionary) -> Array:
    """Sums of the hashes of triples in independent lanes; the sums of disjoint sets add up to that of their union."""
    seeds = [_SEED + LANES * split + lane for lane in range(LANES)]
    sums = [hash_triples(triples, seed, entities, relations).sum(dtype=np.uint64) for seed in seeds]
    return np.array(sums, np.uint64)


def content_after(content: str, diff: Diff, entities: Dictionary, relations: Dictionary) -> str:
    """The content after `diff`, computed from the change alone."""
    lanes = np.array([int(content[16 * i : 16 * i + 16], 16) for i in range(LANES)], np.uint64)
    for split in Split:
        change = diff.splits[split]
        lanes = lanes + content_of(change.added, split, entities, relations)
        lanes = lanes - content_of(change.deleted, split, entities, relations)
    return "".join(f"{int(lane):016x}" for lane in lanes)
