"""Who is affected by a change. In: the graph before and after, the change. Out: rows. Pure, and never scans the graph.

An existing object is affected if its context changed; by default also if it stands in an added or deleted triple,
because such a triple may change no context and would otherwise never be learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.graph.diff import Diff
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Toggles
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling, build_contexts, contexts_differ
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.walks import common_neighbours, near_both
from dkge_dist.types import ROW, Array

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
        return (
            self.entities_by_context if by == "context" else distinct(self.entities_by_context, self.entities_by_triple)
        )

    def relations(self, by: AffectedBy = "endpoints") -> Array:
        """All affected relations."""
        return (
            self.relations_by_context
            if by == "context"
            else distinct(self.relations_by_context, self.relations_by_triple)
        )


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
    """Who is affected by `diff`, which leads to `snapshot`; and the graph there."""
    now, toggles, turned = before.after(diff, snapshot)
    entities = changed_entity_contexts(
        before.topology.neighbours, now.topology.neighbours, toggles, now.digests[0], now.sampling
    )
    relations = changed_relation_contexts(before.paths, now.paths, turned, now.digests[1], now.sampling)
    changed = [diff.added, diff.deleted]
    ends = distinct(np.concatenate([column for side in changed for column in (side.head, side.tail)]))
    kinds = distinct(np.concatenate([side.relation for side in changed]))
    strangers = distinct(diff.emerging_entities, diff.removed_entities)
    new_kinds = distinct(diff.emerging_relations, diff.removed_relations)
    affected = Affected(
        np.setdiff1d(entities, strangers),
        np.setdiff1d(relations, new_kinds),
        np.setdiff1d(ends, strangers),
        np.setdiff1d(kinds, new_kinds),
    )
    return affected, now
