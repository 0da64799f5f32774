"""A small night in memory: a graph, what a night made of it, its plan, and a run over tables of start values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.training_graph import AffectedBy, TrainingGraph, find_affected
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.learn.contexts import EntityContexts, RelationContexts
from dkge_dist.learn.courses import ChangedCourse, ValidatedCourse
from dkge_dist.learn.encode import CPU, TrainedObjects
from dkge_dist.learn.frozen import FrozenObjects
from dkge_dist.learn.loop import Learning
from dkge_dist.learn.plan import Plan, RelationIndex, plan_update
from dkge_dist.learn.task import LearnTask, learning_of
from dkge_dist.measure.fidelity import forgotten
from dkge_dist.model.dkge import Dkge
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.settings import load_settings
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import ROW, Array, Field
from tests.reference import Triple
from tests.strategies import to_triples
from tests.training_graphs import graph_of_rows, snapshot_of

ROWS, RELATIONS, DIM, SEED = 40, 5, 8, 7
SAMPLING = Sampling(SEED, 5, 1)


@dataclass(frozen=True)
class Night:
    """The change of a night, the graph after it, and its plan."""

    diff: Diff
    graph: TrainingGraph
    plan: Plan


def diff_between(before: Iterable[Triple], after: Iterable[Triple]) -> Diff:
    """With the rows that emerge and those that are removed."""
    old, new = set(before), set(after)
    alive = [
        ({end for h, _, t in triples for end in (h, t)}, {r for _, r, _ in triples}) for triples in (old, new)
    ]  # fmt: skip
    rows = []
    for kind in (0, 1):
        rows += [
            np.array(sorted(some), ROW) for some in (alive[1][kind] - alive[0][kind], alive[0][kind] - alive[1][kind])
        ]
    change = Change.between(canonical(to_triples(sorted(old))), canonical(to_triples(sorted(new))))
    return Diff.of([change, Change.none(), Change.none()], *rows)


def plan_of(
    before: list[Triple],
    after: list[Triple],
    rows: int,
    relations: int,
    affected_by: AffectedBy = "endpoints",
    limit: int = 0,
    valid: list[Triple] | None = None,
    hold_relations: bool = False,
) -> Night:
    diff = diff_between(before, after)
    old = graph_of_rows(before, rows, relations, SAMPLING)
    snapshot = snapshot_of(after, rows, relations, valid or [])
    affected, graph = find_affected(old, diff, snapshot)
    index = RelationIndex(graph.train, relations)
    gone = forgotten(diff.train.deleted, snapshot)
    return Night(diff, graph, plan_update(diff, affected, graph, index, affected_by, limit, gone, hold_relations))


def small_night() -> Night:
    """Two entities and a relation emerge, some triples come and some go; the last row stays without a triple."""
    rng = np.random.default_rng(3)
    before = sorted(
        {(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [ROWS - 3, RELATIONS - 1, ROWS - 3], (150, 3))}
    )
    new, other, fresh = ROWS - 3, ROWS - 2, RELATIONS - 1
    added = [(1, 0, new), (new, 1, 7), (other, 3, new), (5, 2, 9), (5, fresh, 9), (8, fresh, 3)]
    after = [*before[5:], *added]
    return plan_of(before, after, ROWS, RELATIONS, valid=[(2, 1, 11), (new, 0, 4), (13, 2, 6)])


def tables_of(night: Night, model: Dkge) -> Tables:
    """At start values, with o* of all objects materialised."""
    graph = night.graph
    starts = (
        RowInitializer((SEED, 0), graph.entity_rows, DIM, 1.0),
        RowInitializer((SEED, 1), graph.relation_rows, DIM, 1.0),
    )
    tables = Tables(*(LocalTable.initialized(start) for start in starts))
    for encoder, table, contexts in zip((model.entity, model.relation), tables, contexts_of(graph), strict=True):
        every = np.arange(table.rows, dtype=ROW)
        table.write(Field.JOINT, every, TrainedObjects(encoder, table, contexts).joint(every))
    return tables


def contexts_of(graph: TrainingGraph) -> tuple[EntityContexts, RelationContexts]:
    return (
        EntityContexts(graph.topology, graph.digests[0], graph.sampling),
        RelationContexts(graph.paths, graph.digests[1], graph.sampling),
    )


class NightLearning(Learning):
    """A run, with what tests look at."""

    course: ChangedCourse

    @property
    def entities(self) -> FrozenObjects:
        assert isinstance(self.step.entities, FrozenObjects)
        return self.step.entities

    @property
    def relations(self) -> FrozenObjects:
        assert isinstance(self.step.relations, FrozenObjects)
        return self.step.relations


def updater(
    night: Night,
    words: Iterable[str] = (),
    *,
    validation: Any = None,
    monitor: Monitor | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[NightLearning, Tables]:
    """A night with softmax loss, and its tables. Unless asked otherwise, it always passes over all that changed, and
    nowhere else."""
    fixed = [
        f"seed={SEED}", "online.batch_size=20", "online.narrow_after=0", "online.global_replay=0",
        "online.proximal_weight=0", "online.negatives=16", "online.hide_targets=1", "train.own_negative=false",
    ]  # fmt: skip
    model = Dkge(DIM, 1, 1, 3).requires_grad_(False)
    tables = tables_of(night, model)
    communicator = LocalCommunicator(monitor or Monitor())
    communicator.clock = clock  # type: ignore[method-assign]
    task = LearnTask(night.plan, night.graph, load_settings(None, [*fixed, *words]), night.graph.valid)
    made = learning_of(communicator, tables, task, model, CPU)
    if validation is not None and isinstance(made.course, ValidatedCourse):
        made.course.validation = validation
    made.__class__ = NightLearning
    assert isinstance(made, NightLearning)
    return made, tables


def values_of(tables: Tables) -> dict[str, dict[Field, Array]]:
    """All rows of every field, by kind of objects."""
    found = {}
    for kind, table in tables._asdict().items():
        found[kind] = table.pull({field: np.arange(table.rows, dtype=ROW) for field in Field})
    return found
