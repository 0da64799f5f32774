"""Batches: everything a step needs of the graph, made of the graph alone, so that the next one can be made meanwhile.

In: positions of train triples and a random generator. Out: a `Batch`. No vectors are touched here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.walks import GraphEvidence
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.batches import RowNumbering, bernoulli_head_chance, corrupt, known_among, links
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.kernels.sets import among, distinct
from dkge_dist.learn.contexts import HiddenPairs
from dkge_dist.types import OFFSET, ROW, Array, Triples

Objects = TypeVar("Objects")
Objects_co = TypeVar("Objects_co", covariant=True)

Sampler = Literal["bernoulli", "shared"]

LEAST_EXPLAINED = 0.03
"""A link of no more confidence explains nothing."""

TRIES = 16
"""Draws of one corruption before its other side is tried."""


@dataclass(frozen=True)
class Batch(Generic[Objects]):
    """Positives as numbers into the objects, and their negatives.

    `shared`: numbers of entities that serve every positive on both sides. `known_tail_mask` and `known_head_mask`
    (positives × shared) mark those that make a known triple; `log_weight` is the logarithm of how many entities each of
    them stands for. `tail_offset` and `head_offset` are the evidence that the logit of a positive begins with;
    those of the `unlearn_mask` are no triples any more, and are pushed away. `own_is_negative` where the question's own
    entity competes too, without being drawn.
    Otherwise `negative` is one entity a positive and `corrupts_head` says which side it replaces.
    """

    entities: Objects
    relations: Objects
    head: Array
    relation: Array
    tail: Array
    shared: Array
    log_weight: Array
    known_tail_mask: Array
    known_head_mask: Array
    tail_offset: Array
    head_offset: Array
    unlearn_mask: Array
    own_is_negative: Array
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


@dataclass(frozen=True)
class NegativeSampling:
    """How negatives are drawn from `candidates` (rows).

    `shared`: `count` of them serve a whole batch, half uniform, half as often as they stand in the triples `frequent`:
    common answers are hard. `in_batch`: the latter are ends of the batch's own triples, as many as there are. Where
    batches are random samples of `frequent`, they are as good as any, and encoded anyway. With `logq_correction` each
    weighs as many entities as it stands for, so that the softmax estimates the one over all entities. `bernoulli`: one
    a positive, on the head with the relation's `head_chance`.

    Of `moving` entities (ascending), where few of all learn, as many shared ones again: they would hardly be drawn, and
    nothing would keep them away from the questions of others.
    """

    sampler: Sampler
    candidates: Array
    frequent: Triples
    count: int = 1
    logq_correction: bool = False
    head_chance: Array | None = None
    moving: Array = field(default_factory=lambda: np.empty(0, ROW))
    in_batch: bool = False

    @staticmethod
    def of(
        graph: TrainingGraph,
        sampler: Sampler,
        count: int,
        logq_correction: bool,
        moving: Array | None = None,
        in_batch: bool = False,
    ) -> NegativeSampling:
        """Negatives from all entities of a graph. Only Bernoulli sampling needs head chances, which cost a sort."""
        is_bernoulli = sampler == "bernoulli"
        head_chance = bernoulli_head_chance(*graph.train, graph.relation_rows) if is_bernoulli else None
        moving = distinct(moving) if moving is not None else np.empty(0, ROW)
        return NegativeSampling(
            sampler, graph.entities, graph.train, count, logq_correction, head_chance, moving, in_batch
        )

    def draw_shared(self, rng: np.random.Generator, batch: Triples) -> Array:
        """Rows of shared negatives for the triples of a whole batch, perhaps with repeats."""
        frequent, some = self._frequent_count(batch.count), batch if self.in_batch else self.frequent
        uniform = self.candidates[rng.integers(0, self.candidates.shape[0], self.count - frequent)]
        ends = 2 * some.count
        positions = rng.permutation(ends)[:frequent] if self.in_batch else rng.integers(0, ends, frequent)
        heads, tails = positions[positions < some.count], positions[positions >= some.count]
        moving = self.moving[rng.integers(0, self.moving.shape[0], self.count)] if self.moving.shape[0] else self.moving
        return np.concatenate([uniform, some.head[heads], some.tail[tails - some.count], moving])

    def _frequent_count(self, batch_size: int) -> int:
        """How many are drawn by how often they stand in triples; all others are uniform."""
        return min(self.count // 2, 2 * batch_size) if self.in_batch else self.count // 2

    def log_weights(self, topology: Topology, rows: Array, batch_size: int) -> Array:
        """Of negatives drawn for a batch: −log of the chance that an entity is drawn at all."""
        if not self.logq_correction:
            return np.zeros(rows.shape[0], np.float32)
        degree = list_sizes(topology.outgoing, rows) + list_sizes(topology.incoming, rows)
        frequent = self._frequent_count(batch_size)
        uniform = (self.count - frequent) / self.candidates.shape[0]
        expected = uniform + frequent * degree / (2 * self.frequent.count)
        if self.moving.shape[0]:
            expected = expected + among(self.moving, rows) * (self.count / self.moving.shape[0])
        weight: Array = -np.log(-np.expm1(-expected))
        return weight.astype(np.float32)


class EvidenceOffsets(NamedTuple):
    """What is added to the logit of each triple to learn, among tails and among heads, because a link explains it.

    With it vectors learn what the graph does not say already.
    """

    tail: Array
    head: Array

    @staticmethod
    def of(evidence: GraphEvidence, triples: Triples, logit: float) -> EvidenceOffsets:
        """`logit` for a certain link, and less by the logarithm of its confidence: nothing below one of 3%."""
        tail, head = (
            logit * _explained(evidence.links_of_pairs(Questions.of(triples, asks_tail), answers))
            for asks_tail, answers in ((True, triples.tail), (False, triples.head))
        )
        return EvidenceOffsets(tail, head)


def _explained(confidence: Array) -> Array:
    share: Array = np.maximum(1 + np.log(np.maximum(confidence, LEAST_EXPLAINED)) / -np.log(LEAST_EXPLAINED), 0)
    return share.astype(np.float32)


class BatchMaker(Generic[Objects]):
    """Positives, negatives and their contexts. Deterministic in the generator it is given.

    A share `hide_targets` of the positives of a batch does not show in contexts: a head whose context names the very
    tail that it is asked for learns to copy, and has nothing to copy from when it matters. Not all are hidden, because
    an entity with one triple would never learn with the context that it is asked with. A pair that a triple outside the
    batch links too stays visible, as it does when held-out triples are asked for. Known triples are never negatives.

    `own_negative` says by relation whether the question's own entity is always a negative. It is seldom drawn, and
    nearer than the truth if the relation's vector is short.

    Positions beyond `triples` are those of `deleted` ones, which stand in no context any more.

    Rank r of `world` workers makes its run of the positives of every batch. Negatives and hidden targets are those of
    the whole batch, so that the workers' gradients add up to those of one worker.
    """

    def __init__(
        self,
        triples: Triples,
        entities: EntitySource[Objects],
        relations: RelationSource[Objects],
        negatives: NegativeSampling,
        hide_targets: float = 0.0,
        offsets: EvidenceOffsets | None = None,
        deleted: Triples | None = None,
        own_negative: Array | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.triples, self.entities, self.relations = triples, entities, relations
        self._every = triples if deleted is None else Triples.concat([triples, deleted])
        self.negatives, self.hide_targets, self.offsets = negatives, hide_targets, offsets
        self.rank, self.world = rank, world
        self._own_negative = own_negative if own_negative is not None else np.zeros(relations.count, np.bool_)
        self._entity_numbers = RowNumbering(entities.count)
        self._relation_numbers = RowNumbering(relations.count)

    def make(self, positions: Array, rng: np.random.Generator) -> Batch[Objects]:
        """The batch of the triples at `positions`."""
        whole, unlearn = self._every.take(positions), positions >= self.triples.count
        mine = slice(whole.count * self.rank // self.world, whole.count * (self.rank + 1) // self.world)
        triples = whole.take(mine)
        count = triples.count
        topology = self.entities.topology
        is_shared = self.negatives.sampler == "shared"
        if is_shared:
            drawn, side = self.negatives.draw_shared(rng, whole), np.empty(0, np.int8)
        else:
            draws = rng.random((whole.count, TRIES + 1))[mine]
            head_chance = self.negatives.head_chance
            assert head_chance is not None, "Bernoulli sampling goes by the relations' head chance"
            side, drawn = corrupt(topology.outgoing, triples, self.negatives.candidates, head_chance, draws)
        rows, numbers = self._entity_numbers.number(np.concatenate([triples.head, triples.tail, drawn]))
        relation_rows, relation = self._relation_numbers.number(triples.relation)
        head, tail, negative = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        none = np.empty(0, OFFSET)
        shared, negative = (distinct(negative), none) if is_shared else (none, negative)
        known = (rows, shared, self._entity_numbers)
        tail_offset, head_offset = self._offsets(positions[mine])
        return Batch(
            entities=self.entities.batch(rows, self._targets(whole.take(~unlearn), rng)),
            relations=self.relations.batch(relation_rows),
            head=head,
            relation=relation,
            tail=tail,
            shared=shared,
            log_weight=self.negatives.log_weights(topology, rows[shared], whole.count),
            known_tail_mask=known_among(topology.outgoing, triples.head, triples.relation, *known),
            known_head_mask=known_among(topology.incoming, triples.tail, triples.relation, *known),
            tail_offset=tail_offset,
            head_offset=head_offset,
            unlearn_mask=unlearn[mine],
            own_is_negative=self._own_negative[triples.relation],
            negative=negative,
            corrupts_head=side == 0,
        )

    def _offsets(self, positions: Array) -> tuple[Array, Array]:
        """E of the tails and heads. Vectors unlearn what was deleted, whatever evidence still says for it."""
        tail, head = np.zeros((2, positions.shape[0]), np.float32)
        if self.offsets is not None:
            learnt = np.flatnonzero(positions < self.triples.count)
            tail[learnt], head[learnt] = (side[positions[learnt]] for side in self.offsets)
        return tail, head

    def _targets(self, triples: Triples, rng: np.random.Generator) -> HiddenPairs | None:
        """Pairs that only hidden triples of this batch link."""
        if not self.hide_targets:
            return None
        if self.hide_targets < 1:
            triples = triples.take(np.flatnonzero(rng.random(triples.count) < self.hide_targets))
        low = np.minimum(triples.head, triples.tail).astype(OFFSET)
        high = np.maximum(triples.head, triples.tail)
        pairs, count = np.unique((low << 32) | high, return_counts=True)
        one, other = (pairs >> 32).astype(ROW), (pairs & 0xFFFFFFFF).astype(ROW)
        gone = links(self.entities.topology.outgoing, one, other) == count
        return HiddenPairs(one[gone], other[gone])
