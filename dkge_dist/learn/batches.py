"""Batches: everything a step needs of the graph, made of the graph alone, so that the next one can be made meanwhile.

In: positions of train triples and a random generator. Out: a `Batch`. No vectors are touched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.kernels.batches import RowNumbering, corrupt, known_among, links
from dkge_dist.learn.objects import EntityContexts, HiddenPairs, ObjectBatch, RelationContexts
from dkge_dist.types import OFFSET, ROW, Array, Triples

TRIES = 16
"""Draws of one corruption before its other side is tried."""


@dataclass(frozen=True)
class Batch:
    """Positives as numbers into the objects, and their negatives.

    `shared`: numbers of entities that serve every positive on both sides, with `blocked_tails` and `blocked_heads`
    (positives × shared) marking those that make a known triple. Otherwise `negative` is one entity a positive and
    `corrupts_head` says which side it replaces.
    """

    entities: ObjectBatch
    relations: ObjectBatch
    head: Array
    relation: Array
    tail: Array
    shared: Array
    blocked_tails: Array
    blocked_heads: Array
    negative: Array
    corrupts_head: Array


class BatchMaker:
    """Positives, negatives and their contexts. Deterministic in the generator it is given.

    With `hide_targets` the positives of a batch do not show in contexts: a head whose context names the very tail that
    it is asked for learns to copy, and has nothing to copy from when it matters. A pair that a triple outside the batch
    links too stays visible, as it does when held-out triples are asked for.
    """

    def __init__(
        self,
        train: Triples,
        entities: EntityContexts,
        relations: RelationContexts,
        candidates: Array,
        head_chance: Array,
        sampler: Literal["bernoulli", "shared"],
        negatives: int,
        hide_targets: bool = False,
    ) -> None:
        self.train, self.entities, self.relations = train, entities, relations
        self.candidates, self.head_chance = candidates, head_chance
        self.sampler, self.negatives, self.hide_targets = sampler, negatives, hide_targets
        self._numbers = RowNumbering(entities.digest.shape[0])
        self._kinds = RowNumbering(relations.contexts.size.shape[0])

    def make(self, positions: Array, rng: np.random.Generator) -> Batch:
        """The batch of the train triples at `positions`."""
        triples = self.train.take(positions)
        count = triples.count
        topology = self.entities.topology
        if self.sampler == "shared":
            drawn = self._draw_shared(rng)
            side = np.empty(0, np.int8)
        else:
            draws = rng.random((count, TRIES + 1))
            side, drawn = corrupt(topology.outgoing, triples, self.candidates, self.head_chance, draws)
        rows, numbers = self._numbers.number(np.concatenate([triples.head, triples.tail, drawn]))
        kinds, kind = self._kinds.number(triples.relation)
        head, tail, negative = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        nothing = np.empty(0, OFFSET)
        shared = np.unique(negative) if self.sampler == "shared" else nothing
        if self.sampler == "shared":
            negative = nothing
        blocked_tails = known_among(topology.outgoing, triples.head, triples.relation, rows, shared, self._numbers)
        blocked_heads = known_among(topology.incoming, triples.tail, triples.relation, rows, shared, self._numbers)
        return Batch(
            self.entities.batch(rows, self._targets(triples) if self.hide_targets else None),
            self.relations.batch(kinds),
            head,
            kind,
            tail,
            shared,
            blocked_tails,
            blocked_heads,
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

    def _draw_shared(self, rng: np.random.Generator) -> Array:
        """Half of the negatives uniformly, half as often as they stand in train: common answers are hard negatives."""
        uniform = self.candidates[rng.integers(0, self.candidates.shape[0], self.negatives - self.negatives // 2)]
        positions = rng.integers(0, 2 * self.train.count, self.negatives // 2)
        heads, tails = positions[positions < self.train.count], positions[positions >= self.train.count]
        return np.concatenate([uniform, self.train.head[heads], self.train.tail[tails - self.train.count]])
