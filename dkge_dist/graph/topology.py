"""The train graph as neighbour lists, and how many entity pairs two relation paths both link.

Lists are directed and labelled both ways, and undirected and simple. Relation contexts are built from the counts of
paths: a symmetric table over evidence pairs, in which `support[r, path]` are the rows whose first path is the single
relation r, and `together[path, path]` all others. Its size follows the relations, not the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.diff import Change
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.contexts import Contexts, Sampling
from dkge_dist.kernels.csr import Adjacency, incoming, joined, outgoing, patch, undirected
from dkge_dist.kernels.jit import threads
from dkge_dist.kernels.paths import build_relation_contexts, count_path_sets, expand_pairs, path_bits
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import pack
from dkge_dist.kernels.walks import common_neighbours, longer_walk_pairs
from dkge_dist.types import OFFSET, ROW, Array, Split, Triples


@dataclass(frozen=True)
class Toggles:
    """Undirected edges (left < right) that a change brought (first parallel triple) and took (last one)."""

    come: tuple[Array, Array]
    gone: tuple[Array, Array]


@dataclass(frozen=True)
class Topology:
    """An immutable value; `after` gives the one that a change leads to, over the same arrays."""

    outgoing: Adjacency
    incoming: Adjacency
    neighbours: Adjacency

    @property
    def lists(self) -> tuple[Adjacency, Adjacency, Adjacency]:
        """All three, in their order."""
        return self.outgoing, self.incoming, self.neighbours

    @staticmethod
    def of(train: Triples, entity_rows: int) -> Topology:
        """From canonical train triples."""
        out, into = outgoing(train, entity_rows), incoming(train, entity_rows)
        return Topology(out, into, undirected(out, into))

    @staticmethod
    def of_snapshot(snapshot: Snapshot, base: Topology | None = None) -> Topology:
        """Of the train triples of a snapshot, without joining its base and the change since.

        `base` are the lists of its base, if they are known.
        """
        if base is None:
            base = Topology.of(snapshot.base.splits[Split.TRAIN], snapshot.base.entity_rows)
        return base.after(snapshot.diff.splits[Split.TRAIN])[0]

    @staticmethod
    def of_few(train: Triples) -> Topology:
        """The same of few triples among many rows, at a cost that follows the triples alone."""
        labelled, simple = (Adjacency.of(np.zeros(1, OFFSET), np.empty(0, dtype)) for dtype in (np.int64, ROW))
        return Topology(labelled, labelled, simple).after(Change(added=train, deleted=Triples.empty()))[0]

    def after(self, change: Change) -> tuple[Topology, Toggles]:
        """The topology after `change`, and the undirected edges that toggled, at a cost that follows the change."""
        (gone_out, gone_in), (come_out, come_in) = (_codes(side) for side in (change.deleted, change.added))
        out, into = patch(self.outgoing, gone_out, come_out), patch(self.incoming, gone_in, come_in)
        left, right = _changed_pairs(change)
        before, now = joined(self.outgoing, left, right), joined(out, left, right)
        toggles = Toggles(
            come=(left[now & ~before], right[now & ~before]), gone=(left[before & ~now], right[before & ~now])
        )
        neighbours = patch(self.neighbours, _both_ways(*toggles.gone), _both_ways(*toggles.come))
        return Topology(out, into, neighbours), toggles


def _codes(triples: Triples) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    head, relation, tail = triples
    return (head, pack(tail, relation)), (tail, pack(head, relation))


def _changed_pairs(change: Change) -> tuple[Array, Array]:
    """The different unordered pairs of ends of the changed triples, loops left out."""
    triples = Triples.concat([change.added, change.deleted])
    low, high = np.minimum(triples.head, triples.tail), np.maximum(triples.head, triples.tail)
    codes = distinct(pack(low, high)[low != high])
    return (codes >> 32).astype(ROW), (codes & 0xFFFFFFFF).astype(ROW)


def _both_ways(left: Array, right: Array) -> tuple[Array, Array]:
    return np.concatenate([left, right]), np.concatenate([right, left])


@dataclass(frozen=True)
class PathCounts:
    """`count[i]` evidence pairs are linked by both path `left[i]` and path `right[i]`; sorted, no zeros."""

    length: int
    bits: int
    left: Array
    right: Array
    count: Array

    @staticmethod
    def of(topology: Topology, train: Triples, relations: int, length: int = 2) -> PathCounts:
        """Counts over all evidence pairs of canonical train triples."""
        bits = path_bits(length, relations)
        first = np.ones(train.count, bool)
        first[1:] = (train.head[1:] != train.head[:-1]) | (train.tail[1:] != train.tail[:-1])
        table = _count(topology, train.head[first], train.tail[first], length, bits)
        return PathCounts(length, bits, *table)

    def to_arrays(self) -> dict[str, Array]:
        """As a model version keeps them."""
        length = np.array([self.length], np.int64)
        return {"length": length, "left": self.left, "right": self.right, "count": self.count}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Array], length: int, relations: int) -> PathCounts | None:
        """Counts that were kept; None if they are those of other paths."""
        if arrays["length"].tolist() != [length]:
            return None
        return PathCounts(length, path_bits(length, relations), arrays["left"], arrays["right"], arrays["count"])

    def after(self, before: Topology, now: Topology, change: Change, relations: int) -> tuple[PathCounts, Array]:
        """The counts after `change`, and the paths whose set of partners changed, at a cost that follows the change."""
        bits = path_bits(self.length, relations)
        deleted = touched_pairs(before, change.deleted, self.length)
        added = touched_pairs(now, change.added, self.length)
        pairs = distinct(deleted, added)
        left, right = (pairs >> 32).astype(ROW), (pairs & 0xFFFFFFFF).astype(ROW)
        old = _count(before, left, right, self.length, bits)
        new = _count(now, left, right, self.length, bits)
        delta = _summed([new, (old[0], old[1], -old[2])])
        table = _summed([(self.left, self.right, self.count), delta])
        # A pair of paths that is in one of the two tables alone was toggled.
        pieces = []
        for sign, (first, second, _) in ((-1, (self.left, self.right, self.count)), (1, table)):
            here = np.isin(first, delta[0])
            pieces.append((first[here], second[here], np.full(int(here.sum()), sign)))
        return PathCounts(self.length, self.bits, *table), distinct(_summed(pieces)[0])

    def contexts(self, digest: Array, sampling: Sampling, rows: Array) -> Contexts:
        """The contexts of relations `rows`; `digest` is that of every relation's label."""
        return build_relation_contexts((self.left, self.right), self.bits, digest, sampling, rows)

    def relations_with(self, paths: Array) -> Array:
        """The relations that are one of `paths`, or have one of them as a vertex of their context."""
        single = np.concatenate([self.right[np.isin(self.left, paths)], paths])
        return distinct(single[single < 1 << self.bits] - 1).astype(ROW)


def _count(topology: Topology, left: Array, right: Array, length: int, bits: int) -> tuple[Array, Array, Array]:
    """The table over some entity pairs, counted on all threads (the kernel releases the GIL)."""
    slices = np.array_split(np.arange(left.shape[0]), threads())

    def part(where: Array) -> tuple[Array, Array, Array]:
        sets = count_path_sets(topology.outgoing, topology.incoming, left[where], right[where], length, bits)
        return _summed([expand_pairs(sets)])

    with ThreadPoolExecutor(len(slices)) as pool:
        return _summed(list(pool.map(part, slices)))


def _summed(tables: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    """The sum of tables: equal pairs of paths added up, zeros dropped, sorted."""
    left, right, count = (np.concatenate(column) for column in zip(*tables, strict=True))
    order = np.lexsort((right, left))
    left, right, count = left[order], right[order], count[order]
    first = np.ones(left.shape[0], bool)
    first[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
    sums = np.add.reduceat(count, np.flatnonzero(first)) if left.shape[0] else count
    kept = sums != 0
    return left[first][kept], right[first][kept], sums[kept]


def touched_pairs(topology: Topology, triples: Triples, length: int) -> Array:
    """Evidence pairs, packed, with a path that may run over one of `triples`, in the graph that has these triples."""
    head, _, tail = triples
    pairs = [pack(head, tail)]
    if length >= 2:
        which, end = common_neighbours(topology.outgoing, head, topology.outgoing, tail)
        pairs.append(pack(head[which], end))
        which, start = common_neighbours(topology.incoming, head, topology.incoming, tail)
        pairs.append(pack(start, tail[which]))
    if length >= 3:
        pairs.append(longer_walk_pairs(topology.outgoing, topology.incoming, head, tail, length))
    return distinct(np.concatenate(pairs))
