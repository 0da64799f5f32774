"""Contexts, batches, tables and steps of small graphs, for the tests of learning; and batches read back."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.kernels.triples import canonical
from dkge_dist.learn.batches import Batch, BatchMaker, EvidenceOffsets, NegativeSampling
from dkge_dist.learn.contexts import EntityContexts, Form, ObjectBatch, RelationContexts
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.step import DenseParameters, Loss, Step
from dkge_dist.model.dkge import Dkge
from dkge_dist.runtime import Communicator, LocalCommunicator, Monitor
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import Array, Triples
from tests.reference import Context, Triple
from tests.strategies import digests, to_list, to_triples
from tests.training_graphs import graph_of_rows

ROWS, RELATIONS, DIM = 40, 4, 12
SAMPLING = Sampling(5, 6, 1)
Sampler = Literal["shared", "bernoulli"]
LOSSES: list[tuple[Sampler, Loss]] = [
    ("bernoulli", Loss("margin", 10.0)),
    ("shared", Loss("softmax", 0.0, unlearn_offset=1.5)),
    ("shared", Loss("self_adversarial", 3.0)),
]


def small_graph(seed: int = 0, sampling: Sampling = SAMPLING, triples: int = 160) -> TrainingGraph:
    """Random triples over few entities, so that each is in some of them."""
    columns = np.random.default_rng(seed).integers(0, [[ROWS], [RELATIONS], [ROWS]], (3, triples))
    return graph_of_rows([(int(h), int(r), int(t)) for h, r, t in columns.T], ROWS, RELATIONS, sampling)


def contexts_of(
    triples: list[Triple], rows: int, relations: int, sampling: Sampling, form: Form = "ragged"
) -> tuple[EntityContexts, RelationContexts]:
    """Also of a graph without triples."""
    train = canonical(to_triples(triples))
    topology = Topology.of(train, rows)
    paths = PathCounts.of(topology, train, relations)
    return (
        EntityContexts(topology, digests(rows), sampling, form),
        RelationContexts(paths, digests(relations, 1), sampling, form),
    )


def negatives_of(graph: TrainingGraph, sampler: Sampler, **options: Any) -> NegativeSampling:
    """16 shared negatives, or one by Bernoulli sampling; options replace the fields of `NegativeSampling`."""
    head_chance = bernoulli_head_chance(*graph.train, graph.relation_rows)
    fields = {"candidates": np.arange(graph.entity_rows, dtype=np.int32), "count": 16, "head_chance": head_chance}
    return NegativeSampling(sampler=sampler, frequent=graph.train, **{**fields, **options})


def maker_of(
    graph: TrainingGraph,
    negatives: NegativeSampling,
    hide_targets: float = 0.0,
    form: Form = "ragged",
    rank: int = 0,
    world: int = 1,
    offsets: EvidenceOffsets | None = None,
    deleted: Triples | None = None,
    own_negative: Array | None = None,
) -> BatchMaker[ObjectBatch]:
    entities = EntityContexts(graph.topology, graph.digests[0], graph.sampling, form)
    relations = RelationContexts(graph.paths, graph.digests[1], graph.sampling, form)
    return BatchMaker(
        graph.train, entities, relations, negatives, hide_targets, offsets, deleted, own_negative, rank, world
    )


def offsets_of(graph: TrainingGraph, seed: int = 0) -> EvidenceOffsets:
    """Any offsets: random numbers will do."""
    return EvidenceOffsets(*np.random.default_rng(seed).random((2, graph.train.count)).astype(np.float32))


def deleted_of(graph: TrainingGraph, count: int = 20) -> Triples:
    """Triples of existing objects that the graph does not have."""
    known = set(to_list(graph.train))
    every = [(h, r, t) for h in range(ROWS) for r in range(RELATIONS) for t in range(ROWS) if (h, r, t) not in known]
    return canonical(to_triples(every[:: len(every) // count][:count]))


def table_of(rows: int, dim: int = DIM, seed: int = 0) -> LocalTable:
    """At start values."""
    return LocalTable.initialized(RowInitializer((seed, 0), rows, dim, 1.0))


def tables_of(graph: TrainingGraph, dim: int = DIM, seed: int = 0) -> Tables:
    return Tables(table_of(graph.entity_rows, dim, seed), table_of(graph.relation_rows, dim, seed + 1))


NOTHING: Any = None
"""For encoders that are only given batches."""


def step_of(
    model: Dkge,
    tables: Tables,
    loss: Loss,
    dense: torch.optim.Optimizer,
    communicator: Communicator | None = None,
) -> Step[ObjectBatch]:
    """A step of a training from scratch, of the only worker unless a communicator is given."""
    return Step(
        TrainedObjects(model.entity, tables.entities, NOTHING),
        TrainedObjects(model.relation, tables.relations, NOTHING),
        loss,
        communicator or LocalCommunicator(Monitor()),
        DenseParameters(model, dense),
    )


def positives(batch: Batch[ObjectBatch]) -> list[Triple]:
    """The positives of a batch by rows."""
    rows, kinds = batch.entities.rows, batch.relations.rows
    columns = rows[batch.head], kinds[batch.relation], rows[batch.tail]
    return [(int(h), int(r), int(t)) for h, r, t in zip(*columns, strict=True)]


def shown_contexts(objects: ObjectBatch) -> dict[int, Context]:
    """The context of every entity of a batch, read back from its ragged form: vertices in order, and edges."""
    contexts = objects.contexts
    assert isinstance(contexts, RaggedBatch)
    found = {}
    for number, row in enumerate(objects.rows.tolist()):
        first, end = contexts.indptr[number], contexts.indptr[number + 1]
        vertices = objects.vertex_rows[contexts.slot_row[first:end]].tolist()
        edges = set()
        for place in range(first, end):
            others = contexts.entry_slot[contexts.entry_ptr[place] : contexts.entry_ptr[place + 1]]
            edges |= {(vertices[place - first], vertices[other - first]) for other in others if other != place}
        found[row] = (vertices, frozenset(edges))
    return found


BATCH_COLUMNS = (
    "head",
    "relation",
    "tail",
    "shared",
    "log_weight",
    "known_tail_mask",
    "known_head_mask",
    "tail_offset",
    "head_offset",
    "unlearn_mask",
    "own_is_negative",
    "negative",
    "corrupts_head",
)


def assert_same_batch(one: Batch[ObjectBatch], other: Batch[ObjectBatch]) -> None:
    """In every array, the contexts of entities included."""
    for name in BATCH_COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for mine, theirs in ((one.entities, other.entities), (one.relations, other.relations)):
        assert np.array_equal(mine.rows, theirs.rows)
        assert np.array_equal(mine.vertex_rows, theirs.vertex_rows)
        assert isinstance(mine.contexts, RaggedBatch) and isinstance(theirs.contexts, RaggedBatch)
        assert all(np.array_equal(*columns) for columns in zip(mine.contexts, theirs.contexts, strict=True))


def values_of(tables: Tables, field: Any) -> list[Array]:
    """All rows of a field, of entities and of relations."""
    return [table.pull({field: np.arange(table.rows, dtype=np.int32)})[field] for table in tables]
