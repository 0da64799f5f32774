"""Batches: everything a step needs of the graph, made of the graph alone, so that the next one can be made meanwhile.

In: positions of train triples and a random generator. Out: a `Batch`. No vectors are touched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import RowNumbering, corrupt, known_among, links
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.learning.contexts import HiddenPairs
from dkge_dist.types import OFFSET, ROW, Array, Triples

Objects = TypeVar("Objects")
Objects_co = TypeVar("Objects_co", covariant=True)

TRIES = 16
"""Draws of one corruption before its other side is tried."""


@dataclass(frozen=True)
class Batch(Generic[Objects]):
    """Positives as numbers into the objects, and their negatives.

    `shared`: numbers of entities that serve every positive on both sides, with `known_tail_mask` and `known_head_mask`
    (positives × shared) marking those that take no part, and the logarithm of how many entities each of them stands
    for (`weight`). Otherwise `negative` is one entity a positive and
    `corrupts_head` says which side it replaces.
    """

    entities: Objects
    relations: Objects
    head: Array
    relation: Array
    tail: Array
    shared: Array
    weight: Array
    known_tail_mask: Array
    known_head_mask: Array
    negative: Array
    corrupts_head: Array


class EntitySource(Protocol[Objects_co]):
    """Makes what a step encodes entities from, over a graph that knows which triples are there."""

    topology: Topology
    count: int

    def batch(self, rows: Array, hidden: HiddenPairs | None = None) -> Objects_co:
        """Distinct entities."""


class RelationSource(Protocol[Objects_co]):
    """The same for relations."""

    count: int

    def batch(self, rows: Array) -> Objects_co:
        """Distinct relations."""


class BatchMaker(Generic[Objects]):
    """Positives, negatives and their contexts. Deterministic in the generator it is given.

    With `hide_targets` the positives of a batch do not show in contexts: a head whose context names the very tail that
    it is asked for learns to copy, and has nothing to copy from when it matters. A pair that a triple outside the batch
    links too stays visible, as it does when held-out triples are asked for. Entities that stand in many of the triples
    `frequent` (all of train, if they are not given) are drawn more often.

    Known triples are never negatives. With `logq_correction`, a negative weighs as many entities as it stands for.

    One of several workers makes a `part` of every batch (its rank, of so many): a run of the positives. Negatives and
    what is hidden are those of the whole batch, so that the parts add up to it.
    """

    def __init__(
        self,
        train: Triples,
        entities: EntitySource[Objects],
        relations: RelationSource[Objects],
        candidates: Array,
        head_chance: Array,
        sampler: Literal["bernoulli", "shared"],
        negatives: int,
        hide_targets: bool = False,
        frequent: Triples | None = None,
        logq_correction: bool = False,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self.train, self.entities, self.relations = train, entities, relations
        self.candidates, self.head_chance = candidates, head_chance
        self.sampler, self.negatives, self.hide_targets = sampler, negatives, hide_targets
        self.frequent = train if frequent is None else frequent
        self.logq_correction, self.part = logq_correction, part
        self._numbers = RowNumbering(entities.count)
        self._kinds = RowNumbering(relations.count)

    def make(self, positions: Array, rng: np.random.Generator) -> Batch[Objects]:
        """The batch of the train triples at `positions`."""
        whole = self.train.take(positions)
        rank, world = self.part
        mine = slice(whole.count * rank // world, whole.count * (rank + 1) // world)
        triples = whole.take(mine)
        count = triples.count
        topology = self.entities.topology
        if self.sampler == "shared":
            drawn = self._draw_shared(rng)
            side = np.empty(0, np.int8)
        else:
            draws = rng.random((whole.count, TRIES + 1))[mine]
            side, drawn = corrupt(topology.outgoing, triples, self.candidates, self.head_chance, draws)
        rows, numbers = self._numbers.number(np.concatenate([triples.head, triples.tail, drawn]))
        kinds, kind = self._kinds.number(triples.relation)
        head, tail, negative = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        nothing = np.empty(0, OFFSET)
        shared = np.unique(negative) if self.sampler == "shared" else nothing
        if self.sampler == "shared":
            negative = nothing
        known_tail_mask = known_among(topology.outgoing, triples.head, triples.relation, rows, shared, self._numbers)
        known_head_mask = known_among(topology.incoming, triples.tail, triples.relation, rows, shared, self._numbers)
        return Batch(
            self.entities.batch(rows, self._targets(whole) if self.hide_targets else None),
            self.relations.batch(kinds),
            head,
            kind,
            tail,
            shared,
            self._weights(rows[shared]),
            known_tail_mask,
            known_head_mask,
            negative,
            side == 0,
        )

    def _targets(self, triples: Triples) -> HiddenPairs:
        """Pairs that only triples of this batch link."""
        low = np.minimum(triples.head, triples.tail).astype(OFFSET)
        high = np.maximum(triples.head, triples.tail)
        pairs, count = np.unique((low << 32) | high, return_counts=True)
        one, other = (pairs >> 32).astype(ROW), (pairs & 0xFFFFFFFF).astype(ROW)
        gone = links(self.entities.topology.outgoing, one, other) == count
        return HiddenPairs(one[gone], other[gone])

    def _weights(self, rows: Array) -> Array:
        """Of drawn negatives: −log of the chance that an entity is drawn at all."""
        if not self.logq_correction:
            return np.zeros(rows.shape[0], np.float32)
        topology = self.entities.topology
        stands_in = list_sizes(topology.outgoing, rows) + list_sizes(topology.incoming, rows)
        frequent = self.negatives // 2
        uniform = (self.negatives - frequent) / self.candidates.shape[0]
        expected = uniform + frequent * stands_in / (2 * self.frequent.count)
        weight: Array = -np.log(-np.expm1(-expected))
        return weight.astype(np.float32)

    def _draw_shared(self, rng: np.random.Generator) -> Array:
        """Half of the negatives uniformly, half as often as they stand in triples: common answers are hard."""
        uniform = self.candidates[rng.integers(0, self.candidates.shape[0], self.negatives - self.negatives // 2)]
        positions = rng.integers(0, 2 * self.frequent.count, self.negatives // 2)
        heads, tails = positions[positions < self.frequent.count], positions[positions >= self.frequent.count]
        return np.concatenate([uniform, self.frequent.head[heads], self.frequent.tail[tails - self.frequent.count]])
