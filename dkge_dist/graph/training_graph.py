"""The train graph of a snapshot as learning sees it: triples, contexts, and who is alive. Arrays alone.

Built here and nowhere else. Arrays alone can be shared between the workers of a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.diff import Diff
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Toggles, Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.types import Array, DkgeError, Split, Triples


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
