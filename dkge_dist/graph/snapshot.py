"""One state of the graph: a stored base plus the net diff since. Queries about a change cost what the change does.

An object is *alive* if it is in a triple of any split. Only such objects are candidates, negatives or answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dkge_dist.graph.diff import Diff
from dkge_dist.kernels.triples import apply_change, contains
from dkge_dist.types import ROW, Array, Split, Triples


@dataclass(frozen=True)
class Degrees:
    """Number of triples that each row is in: of the train split, and of all splits together."""

    train: Array
    total: Array


@dataclass(frozen=True)
class Base:
    """A snapshot stored in full: canonical triples by split, and the degrees computed from them."""

    splits: tuple[Triples, Triples, Triples]
    entities: Degrees
    relations: Degrees

    @staticmethod
    def of(splits: tuple[Triples, Triples, Triples], entities: int, relations: int) -> Base:
        """With degrees for so many dictionary rows."""

        def degrees(columns: list[list[Array]], rows: int) -> Degrees:
            counts = [sum(np.bincount(c, minlength=rows) for c in split).astype(ROW) for split in columns]  # type: ignore[union-attr]
            return Degrees(counts[Split.TRAIN], np.asarray(sum(counts), ROW))

        return Base(
            splits,
            degrees([[triples.head, triples.tail] for triples in splits], entities),
            degrees([[triples.relation] for triples in splits], relations),
        )

    @property
    def entity_rows(self) -> int:
        """How many entities there were when it was stored; the dictionary may have grown since."""
        return int(self.entities.total.shape[0])


class Snapshot:
    """`base` plus `diff`. Everything else is computed when it is needed."""

    def __init__(self, base: Base, diff: Diff, entity_rows: int, relation_rows: int) -> None:
        self.base = base
        self.diff = diff
        self.entity_rows = entity_rows
        self.relation_rows = relation_rows
        self._triples: dict[Split, Triples] = {}

    @staticmethod
    def full(splits: tuple[Triples, Triples, Triples], entity_rows: int, relation_rows: int) -> Snapshot:
        """A snapshot without a parent."""
        return Snapshot(Base.of(splits, entity_rows, relation_rows), Diff.none(), entity_rows, relation_rows)

    @staticmethod
    def empty() -> Snapshot:
        """The graph before its first snapshot: no triples, no rows."""
        return Snapshot.full((Triples.empty(), Triples.empty(), Triples.empty()), 0, 0)

    def after(self, diff: Diff, entity_rows: int, relation_rows: int) -> Snapshot:
        """The snapshot after `diff`, on the same base."""
        return Snapshot(self.base, self.diff.then(diff), entity_rows, relation_rows)

    def folded(self) -> Snapshot:
        """The same graph as a base of its own."""
        train, valid, test = (self.triples(split) for split in Split)
        return Snapshot.full((train, valid, test), self.entity_rows, self.relation_rows)

    def count(self, split: Split) -> int:
        """Triples of one split."""
        change = self.diff.splits[split]
        return self.base.splits[split].count + change.added.count - change.deleted.count

    @property
    def triple_count(self) -> int:
        """Triples of all splits."""
        return sum(self.count(split) for split in Split)

    def contains(self, split: Split, triples: Triples) -> Array:
        """For each triple: is it in `split`? Costs follow the number of triples asked about, not the graph."""
        change = self.diff.splits[split]
        in_base = contains(self.base.splits[split], triples) & ~contains(change.deleted, triples)
        return in_base | contains(change.added, triples)

    def triples(self, split: Split) -> Triples:
        """All triples of one split, canonical. Costs follow the size of the split."""
        if split not in self._triples:
            change = self.diff.splits[split]
            self._triples[split] = apply_change(self.base.splits[split], change.added, change.deleted)
        return self._triples[split]

    def entity_degrees(self, rows: Array) -> Degrees:
        """Degrees of some entities, at a cost that follows their number and the diff."""
        return self._degrees(self.base.entities, rows, (0, 2))

    def relation_degrees(self, rows: Array) -> Degrees:
        """Degrees of some relations."""
        return self._degrees(self.base.relations, rows, (1,))

    def _degrees(self, base: Degrees, rows: Array, columns: tuple[int, ...]) -> Degrees:
        order = np.argsort(rows)
        by_split = []
        for change in self.diff.splits:
            gained = sum(_occurrences(rows, order, change.added[column]) for column in columns)
            lost = sum(_occurrences(rows, order, change.deleted[column]) for column in columns)
            by_split.append(gained - lost)
        return Degrees(_at(base.train, rows) + by_split[Split.TRAIN], _at(base.total, rows) + sum(by_split))

    @cached_property
    def entities_alive(self) -> Array:
        """One flag per dictionary row."""
        return _alive(self.base.entities, self.entity_rows, self.diff.emerging_entities, self.diff.removed_entities)

    @cached_property
    def alive_entities(self) -> Array:
        """The rows of the entities alive, ascending."""
        return np.flatnonzero(self.entities_alive).astype(ROW)

    @cached_property
    def alive_relations(self) -> Array:
        """The rows of the relations alive, ascending."""
        return np.flatnonzero(self.relations_alive).astype(ROW)

    @cached_property
    def relations_alive(self) -> Array:
        """One flag per dictionary row."""
        return _alive(
            self.base.relations, self.relation_rows, self.diff.emerging_relations, self.diff.removed_relations
        )


def _occurrences(rows: Array, order: Array, values: Array) -> Array:
    """How often each of the distinct `rows` (sorted by `order`) is in `values`."""
    if rows.shape[0] and values.shape[0] > int(rows.max()) // 8:
        # A change as large as the graph: counting is faster than searching.
        return np.bincount(values, minlength=int(rows.max()) + 1)[rows]
    at = np.searchsorted(rows, values, sorter=order)
    at, values = at[at < rows.shape[0]], values[at < rows.shape[0]]
    hits = order[at]
    return np.bincount(hits[rows[hits] == values], minlength=rows.shape[0])


def _at(degrees: Array, rows: Array) -> Array:
    """Degrees of `rows` in the base; zero for rows that are newer than it."""
    known = rows < degrees.shape[0]
    out = np.zeros(rows.shape[0], np.int64)
    out[known] = degrees[rows[known]]
    return out


def _alive(degrees: Degrees, rows: int, emerging: Array, removed: Array) -> Array:
    alive = np.zeros(rows, bool)
    alive[: degrees.total.shape[0]] = degrees.total > 0
    alive[removed] = False
    alive[emerging] = True
    return alive
