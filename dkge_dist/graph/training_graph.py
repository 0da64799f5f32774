"""The train graph of a snapshot as learning sees it (triples, contexts, rows alive), and what a change affects in it.

Arrays alone, which can be shared between the workers of a machine. Nothing that follows a change scans the graph.

An existing object is affected if its context changed; by default also if it stands in an added or deleted triple,
because such a triple may change no context and would otherwise never be learnt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import PathCounts, Toggles, Topology
from dkge_dist.kernels.contexts import Sampling, build_contexts, contexts_differ
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.walks import common_neighbours, near_both
from dkge_dist.settings import Settings
from dkge_dist.types import ROW, Array, DkgeError, Split, Triples


@dataclass(frozen=True)
class TrainingGraph:
    """`entities` and `relations` are the rows alive; `digests` those of all labels, by row."""

    train: Triples
    valid: Triples
    entities: Array
    relations: Array
    topology: Topology
    paths: PathCounts
    digests: tuple[Array, Array]
    sampling: Sampling

    @staticmethod
    def of(
        snapshot: Snapshot,
        digests: tuple[Array, Array],
        sampling: Sampling,
        path_length: int,
        kept_paths: Mapping[str, Array] | None = None,
    ) -> TrainingGraph:
        """Of a snapshot. `digests` may cover labels that came later: their rows have no triples.

        `kept_paths` are its counts of relation paths, if they are known.
        """
        train = snapshot.triples(Split.TRAIN)
        if not train.count:
            raise DkgeError("the snapshot has no train triples to learn from")
        topology = Topology.of(train, digests[0].shape[0])
        relations = digests[1].shape[0]
        paths = PathCounts.from_arrays(kept_paths, path_length, relations) if kept_paths is not None else None
        paths = paths or PathCounts.of(topology, train, relations, path_length)
        return TrainingGraph._at(snapshot, topology, paths, digests, sampling)

    @staticmethod
    def _at(
        snapshot: Snapshot, topology: Topology, paths: PathCounts, digests: tuple[Array, Array], sampling: Sampling
    ) -> TrainingGraph:
        return TrainingGraph(
            snapshot.triples(Split.TRAIN),
            snapshot.triples(Split.VALID),
            snapshot.alive_entities,
            snapshot.alive_relations,
            topology,
            paths,
            digests,
            sampling,
        )

    @property
    def entity_rows(self) -> int:
        """Rows of the entity tables, alive or not."""
        return int(self.digests[0].shape[0])

    @property
    def relation_rows(self) -> int:
        """Rows of the relation tables, alive or not."""
        return int(self.digests[1].shape[0])

    @property
    def loopless_relations(self) -> Array:
        """By relation: has it no self loop?"""
        loopless = np.ones(self.relation_rows, np.bool_)
        loopless[self.train.relation[self.train.head == self.train.tail]] = False
        return loopless

    def after(self, diff: Diff, snapshot: Snapshot) -> tuple[TrainingGraph, Toggles, Array]:
        """The graph that `diff` leads to, at `snapshot`; the toggled edges; the paths whose partners changed.

        Costs follow the change once the snapshot's triples are there.
        """
        topology, toggles = self.topology.after(diff.train)
        paths, turned = self.paths.after(self.topology, topology, diff.train, self.relation_rows)
        return TrainingGraph._at(snapshot, topology, paths, self.digests, self.sampling), toggles, turned


AffectedBy = Literal["context", "endpoints"]

BATCH = 1 << 15
"""Candidates compared at a time; bounds memory."""


@dataclass(frozen=True)
class Affected:
    """Existing rows, sorted: those with another context than before, and those that stand in a changed triple."""

    entities_by_context: Array
    relations_by_context: Array
    entities_by_triple: Array
    relations_by_triple: Array

    def entities(self, by: AffectedBy = "endpoints") -> Array:
        """All affected entities; by `context` is the published definition."""
        found = self.entities_by_context
        return found if by == "context" else distinct(found, self.entities_by_triple)

    def relations(self, by: AffectedBy = "endpoints") -> Array:
        """All affected relations."""
        found = self.relations_by_context
        return found if by == "context" else distinct(found, self.relations_by_triple)


def changed_entity_contexts(
    before: Adjacency, now: Adjacency, toggles: Toggles, digest: Array, sampling: Sampling
) -> Array:
    """Entities whose context differs between two simple graphs, given the edges in which they differ."""
    ends = [*toggles.come, *toggles.gone]
    if sampling.hops == 1:
        _, lost = common_neighbours(before, toggles.gone[0], before, toggles.gone[1])
        _, won = common_neighbours(now, toggles.come[0], now, toggles.come[1])
    else:
        lost, won = near_both(before, *toggles.gone, sampling.hops), near_both(now, *toggles.come, sampling.hops)
    candidates = distinct(np.concatenate([*ends, lost, won])).astype(ROW)
    changed = [np.empty(0, bool)]
    for begin in range(0, candidates.shape[0], BATCH):
        rows = candidates[begin : begin + BATCH]
        old, new = (build_contexts(graph, digest, sampling, rows) for graph in (before, now))
        changed.append(contexts_differ(old, new))
    rows_changed: Array = candidates[np.concatenate(changed)]
    return rows_changed


def changed_relation_contexts(
    before: PathCounts, now: PathCounts, turned: Array, digest: Array, sampling: Sampling
) -> Array:
    """Relations whose context differs, given the paths whose partners came or went."""
    rows = distinct(before.relations_with(turned), now.relations_with(turned)).astype(ROW)
    old, new = before.contexts(digest, sampling, rows), now.contexts(digest, sampling, rows)
    return rows[contexts_differ(old, new)]


def find_affected(before: TrainingGraph, diff: Diff, snapshot: Snapshot) -> tuple[Affected, TrainingGraph]:
    """The affected set of `diff`, which leads to `snapshot`; and the graph there."""
    now, toggles, turned = before.after(diff, snapshot)
    entities = changed_entity_contexts(
        before.topology.neighbours, now.topology.neighbours, toggles, now.digests[0], now.sampling
    )
    relations = changed_relation_contexts(before.paths, now.paths, turned, now.digests[1], now.sampling)
    changed = [diff.added, diff.deleted]
    ends = distinct(np.concatenate([column for side in changed for column in (side.head, side.tail)]))
    kinds = distinct(np.concatenate([side.relation for side in changed]))
    come_or_gone = distinct(diff.emerging_entities, diff.removed_entities)
    relations_come_or_gone = distinct(diff.emerging_relations, diff.removed_relations)
    affected = Affected(
        np.setdiff1d(entities, come_or_gone),
        np.setdiff1d(relations, relations_come_or_gone),
        np.setdiff1d(ends, come_or_gone),
        np.setdiff1d(kinds, relations_come_or_gone),
    )
    return affected, now


def training_graph(
    snapshot: Snapshot,
    digests: tuple[Array, Array],
    settings: Settings,
    kept_paths: Mapping[str, Array] | None = None,
) -> TrainingGraph:
    """The training graph of a snapshot; `digests` are those of all entity and relation labels, by row.

    `kept_paths`: what a model of the snapshot keeps of its relation paths.
    """
    context = settings.context
    sampling = Sampling(settings.seed, context.cap, context.hops)
    return TrainingGraph.of(snapshot, digests, sampling, context.path_length, kept_paths)
