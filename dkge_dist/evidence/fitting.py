"""Which triples fit θ and which judge a training. In: a training graph. Out: weights beside its vectors.

Validation is halved by a hash of labels: one half fits, the other stops training and chooses settings. Without
validation triples θ is fitted on train triples, whose own part in the graph does not count for them, and only without
vectors: those have seen the triples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.evidence.fit import FitProblem, fit_problem, fit_weights, fitting_half
from dkge_dist.evidence.questions import Distances
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Triples

SAMPLE_STREAM, TRAIN_STREAM = 12, 14
"""Of random numbers, apart from the other streams of a seed."""


def validation_half(graph: TrainingGraph) -> Triples:
    """The validation triples that stop training and choose settings: those that θ is not fitted on."""
    return graph.valid.take(np.flatnonzero(~fitting_half(graph.valid, graph.digests)))


def sampled(triples: Triples, limits: WalkLimits) -> Triples:
    """The train triples whose distances tell how near vectors bring what they learnt."""
    rng = np.random.default_rng([limits.seed, TRAIN_STREAM])
    count = limits.settings.fit_triples
    return triples.take(distinct(rng.integers(0, triples.count, count))) if triples.count else triples


@dataclass(frozen=True)
class EvidenceFitting:
    """The evidence of a graph with the triples that θ is fitted on, and a sample of the train triples."""

    graph: GraphEvidence
    problem: FitProblem
    fitted_on: Literal["valid", "train"]
    relations: int
    train: Triples

    @staticmethod
    def of(graph: TrainingGraph, limits: WalkLimits, counted: GraphEvidence | None = None) -> EvidenceFitting:
        """Counted from nothing, unless somebody did that already."""
        evidence = counted or GraphEvidence.of(graph, limits)
        triples = graph.valid.take(np.flatnonzero(fitting_half(graph.valid, graph.digests)))
        fitted_on: Literal["valid", "train"] = "valid" if triples.count else "train"
        triples = triples if triples.count else graph.train
        rng = np.random.default_rng([limits.seed, SAMPLE_STREAM])
        if triples.count > limits.settings.fit_triples:
            chosen = rng.choice(triples.count, limits.settings.fit_triples, replace=False)
            triples = triples.take(np.sort(chosen))
        known = canonical(Triples.concat([graph.train, graph.valid]))
        problem = fit_problem(evidence, triples, known, graph.entities, limits.seed)
        return EvidenceFitting(evidence, problem, fitted_on, graph.relation_rows, sampled(graph.train, limits))

    def fitted(self, distances: Distances) -> Evidence:
        """Evidence beside the vectors that were learnt."""
        weights = fit_weights(self.problem, self.relations, distances if self.fitted_on == "valid" else None)
        return Evidence(self.graph, weights).beside(distances, self.train)
