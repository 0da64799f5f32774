"""E(h, r, t): features times weights, and what a question's own entity gets. In: questions. Out: E of candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dkge_dist.evidence.features import features
from dkge_dist.evidence.questions import Distances, Questions
from dkge_dist.evidence.walks import GraphEvidence
from dkge_dist.evidence.weights import EvidenceWeights
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.evidence.lists import joined_by
from dkge_dist.types import OFFSET, ROW, Array, Triples

MEMORISATION_DAMPING = np.float32(12.0)
"""Evidence is divided by it where it would lift a candidate above train triples, which vectors know already."""


def combined_score(distance: Array, evidence: Array, near: float) -> Array:
    """s of candidates, from their distances and E, all in float32.

    s is −f + E down to the distance `near`, below which train triples lie; beyond it evidence counts a twelfth.
    Known facts have no evidence by themselves, and would else be outranked by every well-linked stranger.
    """
    left = distance - evidence
    bound = np.float32(near)
    lifted = np.where(left < bound, bound - (bound - left) / MEMORISATION_DAMPING, left)
    score: Array = -np.where(evidence > 0, np.minimum(distance, lifted), left)
    return score


class ScoredCandidates(NamedTuple):
    """Question i has the candidates `rows[indptr[i]:indptr[i + 1]]`, ascending, with evidence `scores` (float32)."""

    indptr: Array
    rows: Array
    scores: Array

    @staticmethod
    def none(questions: int) -> ScoredCandidates:
        """Nobody has any."""
        return ScoredCandidates(np.zeros(questions + 1, OFFSET), np.empty(0, ROW), np.empty(0, np.float32))

    @property
    def question(self) -> Array:
        """The number of the question of every candidate."""
        return np.repeat(np.arange(self.indptr.shape[0] - 1), np.diff(self.indptr))

    def take(self, where: Array) -> ScoredCandidates:
        """Some of the candidates (positions, ascending)."""
        return ScoredCandidates(np.searchsorted(where, self.indptr), self.rows[where], self.scores[where])


@dataclass(frozen=True)
class Evidence:
    """The evidence of a snapshot under the weights of a model."""

    graph: GraphEvidence
    weights: EvidenceWeights

    def beside(self, distances: Distances, train: Triples, new: Triples | None = None) -> Evidence:
        """The same beside vectors that bring some train triples as near as they do: it leaves above what they know.

        Those that are `new` lie farther away than old ones, and are known too; but they do not say it alone.
        """

        def nearer(triples: Triples, *shares: float) -> list[float]:
            found = distances(Questions.of(triples, asks_tail=True), np.arange(triples.count + 1), triples.tail)
            return [float(np.quantile(found, share)) for share in shares]

        settings = self.graph.limits.settings
        near, farthest = nearer(train, settings.learnt_share, settings.farthest_share)
        if new is not None and new.count:
            near = min(max(near, *nearer(new, settings.learnt_share)), farthest)
        return replace(self, weights=replace(self.weights, near=near))

    def candidates(self, questions: Questions) -> ScoredCandidates:
        """All candidates with evidence, known answers left out; a question's own entity is always one of them."""
        found = self.graph.candidates(questions)
        number = np.repeat(np.arange(questions.count), np.diff(found.indptr))
        scores = self._weigh(questions, number, found.values)
        indptr = found.indptr + np.arange(questions.count + 1)
        # A walk never comes back to its start, so that the own entity is not among the rows yet.
        order = np.lexsort((np.concatenate([found.rows, questions.entity]),
                            np.concatenate([number, np.arange(questions.count)])))  # fmt: skip
        rows = np.concatenate([found.rows, questions.entity])[order].astype(ROW)
        return ScoredCandidates(indptr, rows, np.concatenate([scores, self.of_own(questions)])[order])

    def of(self, questions: Questions, candidates: Array) -> Array:
        """E of one candidate of each question, known or not (float32)."""
        values = self.graph.of_pairs(questions, candidates)
        scores = self._weigh(questions, np.arange(questions.count), values)
        own = candidates == questions.entity
        scores[own] = self.of_own(questions.take(own))
        return scores

    def of_own(self, questions: Questions) -> Array:
        """E of the questions' own entities; a self loop that stands in train is not counted for itself."""
        loops = self.other_loops(questions)
        pairs = self.graph.counts.pairs[questions.relation] + loops
        scores: Array = self.graph.limits.settings.self_weight * np.log((loops + 1) / (pairs + 2))
        return scores.astype(np.float32)

    def other_loops(self, questions: Questions) -> Array:
        """How many entities besides the question's have the asked relation to themselves."""
        outgoing: Adjacency = self.graph.graph.full.outgoing
        own = joined_by(outgoing, questions.entity, questions.relation, questions.entity)
        others: Array = self.graph.counts.loops[questions.relation] - own
        return others

    def _weigh(self, questions: Questions, number: Array, values: Array) -> Array:
        """θ·φ of candidates of the questions `number`, summed in float64 and in one order: the same anywhere."""
        theta = self.weights.of(questions.relation, questions.asks_tail)[number]
        total: Array = np.zeros(values.shape[0])
        for column, phi in enumerate(features(values).T):
            total += theta[:, column].astype(np.float64) * phi
        return total.astype(np.float32)
