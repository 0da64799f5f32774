"""What is counted over the train graph for evidence. In: a Topology, or a change of it. Out: counts by relation.

n(a) is the number of pairs that relation a joins, n(a, r) the number that both join, with a in the same or in the
opposite direction. They grow with the relations, not with the graph, and a night updates them at the cost of its
change. What is counted by entity is read off neighbour lists when it is asked for.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.kernels.evidence.counts import count_joint, joined_twice
from dkge_dist.kernels.evidence.paths import path_codes
from dkge_dist.kernels.jit import threads
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import pack
from dkge_dist.types import OFFSET, ROW, Array, Triples


@dataclass(frozen=True)
class RelationCounts:
    """By relation: `pairs` of different entities that it joins, and self `loops`.

    `joint[i]` ordered pairs are joined by both relations of `codes[i]` (see `kernels.evidence.counts`); sorted by code,
    no zeros.
    """

    pairs: Array
    loops: Array
    codes: Array
    joint: Array

    @staticmethod
    def of(topology: Topology, train: Triples, relations: int) -> RelationCounts:
        """Counted over canonical train triples."""
        rows = 1 + max(int(train.head.max(initial=-1)), int(train.tail.max(initial=-1)))
        edges = np.linspace(0, rows, 8 * threads() + 1).astype(int)

        def part(at: int) -> tuple[Array, Array]:
            left, right = joined_twice(topology.outgoing, topology.incoming, edges[at], edges[at + 1])
            return count_joint(topology.outgoing, left, right)

        with ThreadPoolExecutor(threads()) as pool:
            tables = list(pool.map(part, range(edges.shape[0] - 1)))
        return RelationCounts(*_by_relation(train, relations), *_summed(tables))

    def after(self, before: Topology, now: Topology, change: Change, relations: int) -> RelationCounts:
        """The counts after `change`, at a cost that follows the change."""
        added, deleted = _by_relation(change.added, relations), _by_relation(change.deleted, relations)
        pairs, loops = (
            np.pad(mine, (0, relations - mine.shape[0])) + gained - lost
            for mine, gained, lost in zip((self.pairs, self.loops), added, deleted, strict=True)
        )
        touched = _unordered_pairs(Triples.concat([change.added, change.deleted]))
        won, (codes, lost) = count_joint(now.outgoing, *touched), count_joint(before.outgoing, *touched)
        return RelationCounts(pairs, loops, *_summed([(self.codes, self.joint), won, (codes, -lost)]))


def _by_relation(triples: Triples, relations: int) -> tuple[Array, Array]:
    """(pairs of different entities, self loops) by relation."""
    loop = triples.head == triples.tail
    loops = np.bincount(triples.relation[loop], minlength=relations)
    return np.bincount(triples.relation, minlength=relations) - loops, loops


def _unordered_pairs(triples: Triples) -> tuple[Array, Array]:
    """The different pairs (left < right) of different ends."""
    low, high = np.minimum(triples.head, triples.tail), np.maximum(triples.head, triples.tail)
    codes = distinct(pack(low, high)[low != high])
    return (codes >> 32).astype(ROW), (codes & 0xFFFFFFFF).astype(ROW)


def _summed(tables: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Equal codes added up, zeros dropped, sorted."""
    codes, counts = (np.concatenate(column) for column in zip(*tables, strict=True))
    distinct, inverse = np.unique(codes, return_inverse=True)
    sums = np.zeros(distinct.shape[0], OFFSET)
    np.add.at(sums, inverse, counts)
    return distinct[sums != 0], sums[sums != 0]


class PathShares(NamedTuple):
    """Two-step paths that support a relation: `support` pairs have both, `total` adds up all relations of the path."""

    codes: Array
    support: Array
    total: Array

    @staticmethod
    def of(paths: PathCounts) -> PathShares:
        """From the counts that relation contexts keep."""
        one, two = 1 << paths.bits, 1 << 2 * paths.bits
        where = (paths.left < one) & (paths.right >= one) & (paths.right < two)
        relation, path, support = paths.left[where] - 1, paths.right[where], paths.count[where]
        _, inverse = np.unique(path, return_inverse=True)
        total = np.zeros(path.shape[0], OFFSET)
        np.add.at(total, inverse, support)
        codes = path_codes(relation, (path & (one - 1)) - 1, (path >> paths.bits) - 1)
        order = np.argsort(codes)
        return PathShares(codes[order], support[order], total[inverse][order])
