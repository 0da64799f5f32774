"""What is to be learnt. In: a graph, and of a night the diff that led to it with what it affects. Out: a `Plan`. Pure.

From scratch everything emerges; in a refresh everything is affected; a night is the diff. The plan is the whole write
set: a run writes the vectors that it names and no others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dkge_dist.graph.diff import Diff
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import Affected, AffectedBy, TrainingGraph
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import canonical, group, positions
from dkge_dist.kernels.walks import triples_of
from dkge_dist.types import OFFSET, ROW, Array, Field, Triples


@dataclass(frozen=True)
class ObjectPlan:
    """Rows of one kind of objects, sorted. Emerging ones get new vectors, affected ones go on from theirs.

    With `freezes_affected` the `^k` of affected ones stays as it is, and only their contexts change.
    """

    emerging: Array
    affected: Array
    removed: Array
    freezes_affected: bool = False

    @cached_property
    def refreshed(self) -> Array:
        """Rows whose o* is materialised again."""
        return distinct(self.emerging, self.affected).astype(ROW)

    @cached_property
    def trained(self) -> Array:
        """Rows whose `^k` is trained."""
        return self.emerging.astype(ROW) if self.freezes_affected else self.refreshed

    @cached_property
    def continued(self) -> Array:
        """Rows whose `^k` goes on from where it was."""
        return np.setdiff1d(self.trained, self.emerging, assume_unique=True).astype(ROW)

    @property
    def write_set(self) -> dict[Field, Array]:
        """The rows that an update writes, by field."""
        return {Field.KNOWLEDGE: self.trained, Field.CONTEXT: self.emerging.astype(ROW), Field.JOINT: self.refreshed}

    @staticmethod
    def empty() -> ObjectPlan:
        """No rows."""
        none = np.empty(0, ROW)
        return ObjectPlan(none, none, none)


@dataclass(frozen=True)
class Plan:
    """Emerging, affected and removed objects, the train triples to learn, and those to forget.

    `added`: positions in `triples` of what the change brought; the others are replayed. `global_replay` is a sample of
    the whole graph: its questions are asked too, so that what learns keeps away from them. Where a plan `is_whole`
    every vector and the dense parameters learn; else dense parameters and the `^c` of what existed are frozen.
    """

    entities: ObjectPlan
    relations: ObjectPlan
    triples: Triples
    added: Array
    deleted: Triples
    global_replay: Triples = field(default_factory=Triples.empty)
    is_whole: bool = False

    @staticmethod
    def empty() -> Plan:
        """Nothing to do."""
        return Plan(ObjectPlan.empty(), ObjectPlan.empty(), Triples.empty(), np.empty(0, OFFSET), Triples.empty())

    @staticmethod
    def from_scratch(graph: TrainingGraph) -> Plan:
        """Everything emerges."""
        entities, relations = (ObjectPlan(rows, rows[:0], rows[:0]) for rows in (graph.entities, graph.relations))
        return Plan(entities, relations, graph.train, np.empty(0, OFFSET), Triples.empty(), is_whole=True)

    @staticmethod
    def refresh(graph: TrainingGraph) -> Plan:
        """Everything is affected."""
        entities, relations = (ObjectPlan(rows[:0], rows, rows[:0]) for rows in (graph.entities, graph.relations))
        return Plan(entities, relations, graph.train, np.empty(0, OFFSET), Triples.empty(), is_whole=True)

    @property
    def changed(self) -> Triples:
        """What is to be learnt, and then what is to be forgotten."""
        return Triples.concat([self.triples.take(self.added), self.deleted])

    @property
    def stayed(self) -> Array:
        """Positions in `triples` of what the change did not bring."""
        is_added = np.zeros(self.triples.count, np.bool_)
        is_added[self.added] = True
        return np.flatnonzero(~is_added)

    def proximal_weights(
        self, weight: float, topology: Topology, stayed_per_changed: float = 3.0, deleted_weight: int = 3
    ) -> Array | None:
        """The weight of each of `entities.continued` in the proximal term: `weight`, and more where most of it stayed.

        An entity with more triples than `stayed_per_changed` for each one that changed is held more strongly, in
        proportion; a deleted triple counts as `deleted_weight`.

        A hub with a few new triples among thousands would else leave the thousands for the few; their other ends, which
        have little else, can come to it. Unlearning a deleted triple, though, must separate its endpoints.
        """
        if not weight:
            return None
        rows = self.entities.continued
        added = self.triples.take(self.added)
        changed = Triples.concat([added, *[self.deleted] * deleted_weight])
        ends = np.sort(np.concatenate([changed.head, changed.tail]))
        count = np.searchsorted(ends, rows, "right") - np.searchsorted(ends, rows, "left")
        degree = list_sizes(topology.outgoing, rows) + list_sizes(topology.incoming, rows)
        stayed = degree / np.maximum(count, 1) / stayed_per_changed
        weights: Array = (weight * np.maximum(stayed, 1)).astype(np.float32)
        return weights

    def blocks(self, block_rows: int) -> Array:
        """The blocks of the entity tables that hold rows of the write set."""
        return distinct(self.entities.refreshed // block_rows)

    def shards(self, block_rows: int, count: int) -> list[int]:
        """The shards that an update will write to, if there are `count` of them."""
        return [int(shard) for shard in distinct(self.blocks(block_rows) % count)]

    def summary(self) -> dict[str, Any]:
        """Sizes, for people and for JSON."""
        return {
            "emerging_entities": len(self.entities.emerging),
            "affected_entities": len(self.entities.affected),
            "removed_entities": len(self.entities.removed),
            "emerging_relations": len(self.relations.emerging),
            "affected_relations": len(self.relations.affected),
            "removed_relations": len(self.relations.removed),
            "trained_triples": self.triples.count,
            "forgotten_triples": self.deleted.count,
        }


class RelationIndex:
    """Train triples by relation, to take some of a relation without looking at the others."""

    def __init__(self, train: Triples, relations: int) -> None:
        self.train = train
        self.indptr, self.order = group(train.relation, np.arange(train.count), relations)

    def anywhere(self, count: int, rng: np.random.Generator) -> Triples:
        """So many triples of the whole graph, or all."""
        return self.train.take(np.sort(rng.choice(self.train.count, min(count, self.train.count), replace=False)))

    def sample(self, relation: int, limit: int, rng: np.random.Generator) -> Triples:
        """Up to `limit` triples of a relation."""
        begin, end = self.indptr[relation : relation + 2]
        if end - begin > limit:
            return self.train.take(self.order[begin + rng.choice(end - begin, limit, replace=False)])
        return self.train.take(self.order[begin:end])


def plan_update(
    diff: Diff,
    affected: Affected,
    graph: TrainingGraph,
    by_relation: RelationIndex,
    affected_by: AffectedBy,
    limit: int,
    deleted: Triples,
    freeze_relations: bool,
    global_sample: int = 20,
) -> Plan:
    """The plan for `diff`, which led to `graph`. `limit` bounds the triples of one object; 0 takes them all.

    `deleted` triples are to be forgotten; with `freeze_relations` only emerging relations are trained; `affected_by`
    context is the published definition of affected. `global_sample` triples of the whole graph are drawn for each one
    that changed, so that the cost of a night follows its change. Added triples of planned objects are always learnt.
    """
    entities = ObjectPlan(diff.emerging_entities, affected.entities(affected_by).astype(ROW), diff.removed_entities)
    affected_relations = affected.relations(affected_by).astype(ROW)
    relations = ObjectPlan(diff.emerging_relations, affected_relations, diff.removed_relations, freeze_relations)
    most = limit or np.iinfo(np.int64).max
    seed = graph.sampling.seed
    rng = np.random.default_rng([seed, 4])
    parts = [triples_of(graph.topology.outgoing, graph.topology.incoming, entities.trained, most, seed)]
    parts += [by_relation.sample(int(relation), most, rng) for relation in relations.trained]
    added = _touching(diff.added, entities.trained, relations.trained)
    triples = canonical(Triples.concat([*parts, added]))
    forgotten = _touching(deleted, entities.trained, relations.trained)
    global_replay = by_relation.anywhere(
        global_sample * (added.count + forgotten.count), np.random.default_rng([seed, 6])
    )
    return Plan(entities, relations, triples, positions(triples, canonical(added)), forgotten, global_replay)


def _touching(triples: Triples, entities: Array, relations: Array) -> Triples:
    """The triples with an object that is trained: the others cannot be learnt or forgotten."""
    touched = np.isin(triples.head, entities) | np.isin(triples.tail, entities) | np.isin(triples.relation, relations)
    return triples.take(touched)
