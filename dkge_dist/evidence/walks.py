"""What the train graph says about questions. In: a Topology and its changes. Out: candidates and what speaks for them.

Everything is a value: `after` gives the evidence that a change leads to, at a cost that follows the change, over the
same arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.thinning import ThinnedGraph
from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.evidence.hubs import HubCounts
from dkge_dist.kernels.evidence.lists import EvidenceCounts, EvidenceGraph, EvidenceLimits
from dkge_dist.kernels.evidence.walks import COLUMNS, Found, WalkInputs, link_pairs, walk, weigh_pairs
from dkge_dist.kernels.jit import as_readonly, threads
from dkge_dist.kernels.sets import distinct, runs
from dkge_dist.settings import EvidenceSettings, Settings
from dkge_dist.types import OFFSET, ROW, Array

SLICES_A_THREAD = 4
"""Questions differ in cost: more slices than threads keep all of them busy to the end."""

Result = TypeVar("Result")


KINDS = 4
"""Of walks that bring candidates: links, company, similar answers, paths. Each may bring an equal share of them."""


class WalkLimits(NamedTuple):
    """What bounds a walk. It belongs to the model version: other bounds would give other evidence.

    An entity is known by at most `max_neighbours` of its neighbours, and a question has at most `max_candidates`.
    """

    seed: int
    max_neighbours: int
    max_candidates: int
    settings: EvidenceSettings = EvidenceSettings()
    """What else was tuned."""

    @staticmethod
    def of(settings: Settings) -> WalkLimits:
        """Those of a model that was learnt under some settings."""
        evidence = settings.evidence
        return WalkLimits(settings.seed, evidence.max_neighbours, evidence.max_candidates, evidence)


@dataclass(frozen=True)
class GraphEvidence:
    """Evidence at one snapshot; `digest` is that of every entity's label."""

    graph: ThinnedGraph
    counts: RelationCounts
    paths: PathShares
    digest: Array
    limits: WalkLimits

    @staticmethod
    def of(graph: TrainingGraph, limits: WalkLimits) -> GraphEvidence:
        """Counted over a graph from nothing."""
        counts = RelationCounts.of(graph.topology, graph.train, graph.relation_rows)
        return GraphEvidence.counted(graph.topology, counts, PathShares.of(graph.paths), graph.digests[0], limits)

    @staticmethod
    def counted(
        topology: Topology, counts: RelationCounts, paths: PathShares, digest: Array, limits: WalkLimits
    ) -> GraphEvidence:
        """Of a graph whose relations and paths were counted before."""
        # One neighbour more than walks start with: the spare.
        thinned = ThinnedGraph.of(topology, digest, limits.seed, limits.max_neighbours + 1)
        return GraphEvidence(thinned, counts, paths, digest, limits)

    def after(self, graph: TrainingGraph, change: Change) -> GraphEvidence:
        """The evidence after `change`, which led to `graph`."""
        counts = self.counts.after(self.graph.full, graph.topology, change, graph.relation_rows)
        thinned = self.graph.after(graph.topology, change, graph.digests[0])
        return GraphEvidence(thinned, counts, PathShares.of(graph.paths), graph.digests[0], self.limits)

    def candidates(self, questions: Questions) -> Found:
        """The candidates of each question with evidence, known answers left out, and what speaks for each."""
        sizes, found = np.zeros(questions.count, OFFSET), []
        for where, inputs in self._sides(questions):
            one, number = _walk_once(inputs, *questions.take(where)[:2])
            sizes[where] = np.diff(one.indptr)[number]
            found.append((where, one, number))
        indptr = np.concatenate([np.zeros(1, OFFSET), np.cumsum(sizes)])
        rows, values = np.empty(indptr[-1], ROW), np.empty((indptr[-1], COLUMNS), np.float32)
        for where, one, number in found:
            places, sources = runs(indptr[where], sizes[where]), runs(one.indptr[number], sizes[where])
            rows[places], values[places] = one.rows[sources], one.values[sources]
        return Found(indptr, rows, values)

    def of_pairs(self, questions: Questions, candidates: Array) -> Array:
        """What speaks for one candidate of each question, known or not; zeros for none and for the entity itself."""
        values = np.empty((questions.count, COLUMNS), np.float32)
        for where, inputs in self._sides(questions):
            asked = (*questions.take(where)[:2], candidates[where])
            parts = _in_slices(where.shape[0], lambda part: weigh_pairs(inputs, *(column[part] for column in asked)))  # noqa: B023
            values[where] = np.concatenate([np.empty((0, COLUMNS), np.float32), *parts])
        return values

    def links_of_pairs(self, questions: Questions, candidates: Array) -> Array:
        """How strong the best link to one candidate of each question is: a column of `of_pairs`, for many of them."""
        values = np.empty(questions.count, np.float32)
        for where, inputs in self._sides(questions):
            asked = (*questions.take(where)[:2], candidates[where])
            parts = _in_slices(where.shape[0], lambda part: link_pairs(inputs, *(column[part] for column in asked)))  # noqa: B023
            values[where] = np.concatenate([np.empty(0, np.float32), *parts])
        return values

    def _sides(self, questions: Questions) -> Iterator[tuple[Array, WalkInputs]]:
        """Which questions ask for tails and which for heads, each with what the kernels read."""
        # Kernels look relations up without a check.
        assert questions.relation.max(initial=-1) < self.counts.pairs.shape[0], "a relation beyond those counted"
        for asks_tail in (True, False):
            where = np.flatnonzero(questions.asks_tail == asks_tail)
            if where.shape[0]:
                yield where, self._inputs(asks_tail)

    @property
    def kernel_limits(self) -> EvidenceLimits:
        """The limits as kernels have them: each kind of walks may bring an equal share of the candidates.

        A kind may bring one more than its `walks`, but not links.
        """
        each = self.limits.max_candidates // KINDS
        return EvidenceLimits(self.limits.seed, self.limits.max_neighbours, max(1, each), max(1, each - 1))

    def _inputs(self, asks_tail: bool) -> WalkInputs:
        """What the kernels read."""
        full, thin = self.graph.full, self.graph.thin
        ahead, behind, thin_ahead = (
            (full.outgoing, full.incoming, thin.outgoing)
            if asks_tail
            else (full.incoming, full.outgoing, thin.incoming)
        )
        lists = (ahead, behind, full.neighbours, thin_ahead, thin.neighbours)
        hubs = self.graph.hubs
        counts, paths = self.counts, self.paths
        pairs, codes, joint, *by_path = (
            as_readonly(table, np.int64) for table in (counts.pairs, counts.codes, counts.joint, *paths)
        )
        frozen = HubCounts(as_readonly(hubs.rows, ROW), *(as_readonly(column, np.int64) for column in hubs[1:]))
        return WalkInputs(
            EvidenceGraph(0 if asks_tail else 1, *lists, as_readonly(self.digest)),
            EvidenceCounts(pairs, codes, joint, by_path[0], by_path[1], by_path[2], frozen),
            self.kernel_limits,
        )


def _walk_once(inputs: WalkInputs, entity: Array, relation: Array) -> tuple[Found, Array]:
    """The candidates of the distinct questions of one side, and the number of each question among these.

    The triples of a hub ask the same again and again, and a hub's walk takes longest. Those of one relation come after
    each other: what a walk counts for one of them serves the next.
    """
    codes = (relation.astype(np.int64) << 32) | entity
    asked, number = np.unique(codes, return_inverse=True)
    rows, relations = (asked & 0xFFFFFFFF).astype(ROW), (asked >> 32).astype(ROW)
    parts = _in_slices(asked.shape[0], lambda part: walk(inputs, rows[part], relations[part]))
    sizes = np.concatenate([np.zeros(1, OFFSET), *(np.diff(part.indptr) for part in parts)])
    found = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
    return Found(np.cumsum(sizes), *found), number


def _in_slices(count: int, work: Callable[[slice], Result]) -> list[Result]:
    """`work` on runs of indices, on all threads (kernels release the GIL); the results in order."""
    edges = distinct(np.linspace(0, count, SLICES_A_THREAD * threads() + 1).astype(int)).tolist()
    runs = [slice(*run) for run in pairwise(edges)]
    if len(runs) < 2 or threads() == 1:
        # One question takes less time than to start a thread for it.
        return [work(run) for run in runs]
    with ThreadPoolExecutor(threads()) as pool:
        return list(pool.map(work, runs))
