"""Batches: everything a step needs of the graph, made of the graph alone, so that the next one can be made meanwhile.

In: positions of train triples and a random generator. Out: a `Batch`. No vectors are touched here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.adjacency import ragged
from dkge_dist.kernels.batches import RowNumbering, corrupt, known_among
from dkge_dist.kernels.contexts import Contexts, Sampling, build_contexts
from dkge_dist.kernels.ragged import Places, resolve_places
from dkge_dist.types import OFFSET, ROW, Array, Triples

TRIES = 16
"""Draws of one corruption before its other side is tried."""


@dataclass(frozen=True)
class ObjectBatch:
    """Distinct objects to encode: their rows, the distinct rows whose `^c` their contexts show, and where.

    For relations the places show paths: `bag` lists the numbers (into `vertex_rows`) of each path's relations, from
    `bag_offsets` on. For entities a place shows one row and there is no bag.
    """

    rows: Array
    vertex_rows: Array
    places: Places
    bag: Array | None = None
    bag_offsets: Array | None = None


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


class EntityContexts:
    """Entity batches, with contexts built on demand."""

    def __init__(self, topology: Topology, digest: Array, sampling: Sampling) -> None:
        self.topology, self.digest, self.sampling = topology, digest, sampling
        self._vertices = RowNumbering(digest.shape[0])

    def batch(self, rows: Array) -> ObjectBatch:
        """Distinct entities with their contexts."""
        contexts = ragged(build_contexts(self.topology.neighbours, self.digest, self.sampling, rows))
        vertex_rows, place_row = self._vertices.number(contexts.vertices)
        return ObjectBatch(rows, vertex_rows, resolve_places(contexts, place_row, vertex_rows.shape[0]))


class RelationContexts:
    """Relation batches; the contexts of all relations are few and built once."""

    def __init__(self, paths: PathCounts, digest: Array, sampling: Sampling) -> None:
        rows = np.arange(digest.shape[0], dtype=ROW)
        self.contexts = paths.contexts(digest, sampling, rows)
        self.bits = paths.bits
        self._relations = RowNumbering(digest.shape[0])

    def batch(self, rows: Array) -> ObjectBatch:
        """Distinct relations with their contexts."""
        contexts = ragged(Contexts(*(np.ascontiguousarray(column[rows]) for column in self.contexts)))
        relations, lengths = unpack_paths(contexts.vertices, self.bits)
        vertex_rows, bag = self._relations.number(relations)
        offsets = np.zeros(lengths.shape[0], OFFSET)
        np.cumsum(lengths[:-1], out=offsets[1:])
        places = resolve_places(contexts, np.arange(lengths.shape[0], dtype=ROW), lengths.shape[0])
        return ObjectBatch(rows, vertex_rows, places, bag.astype(OFFSET), offsets)


def unpack_paths(codes: Array, bits: int) -> tuple[Array, Array]:
    """(the relations of all paths, one path after the other; how many each path has)."""
    columns = []
    rest = codes.copy()
    while rest.any():
        columns.append((rest & ((1 << bits) - 1)) - 1)
        rest >>= bits
    table = np.stack(columns, axis=1)
    return table[table >= 0].astype(ROW), (table >= 0).sum(1)


class BatchMaker:
    """Positives, negatives and their contexts. Deterministic in the generator it is given."""

    def __init__(
        self,
        train: Triples,
        entities: EntityContexts,
        relations: RelationContexts,
        candidates: Array,
        head_chance: Array,
        sampler: Literal["bernoulli", "shared"],
        negatives: int,
    ) -> None:
        self.train, self.entities, self.relations = train, entities, relations
        self.candidates, self.head_chance = candidates, head_chance
        self.sampler, self.negatives = sampler, negatives
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
            self.entities.batch(rows),
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

    def _draw_shared(self, rng: np.random.Generator) -> Array:
        """Half of the negatives uniformly, half as often as they stand in train: common answers are hard negatives."""
        uniform = self.candidates[rng.integers(0, self.candidates.shape[0], self.negatives - self.negatives // 2)]
        positions = rng.integers(0, 2 * self.train.count, self.negatives // 2)
        heads, tails = positions[positions < self.train.count], positions[positions >= self.train.count]
        return np.concatenate([uniform, self.train.head[heads], self.train.tail[tails - self.train.count]])
