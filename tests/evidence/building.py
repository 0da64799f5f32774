"""Evidence of small graphs given by rows, and questions about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.evidence.features import FEATURES
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import MEMORISATION_DAMPING as DAMPING
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.evidence.weights import NOWHERE, EvidenceWeights
from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.kernels.triples import canonical
from dkge_dist.settings import EvidenceSettings
from dkge_dist.types import ROW, Array
from tests.reference import Triple
from tests.reference_evidence import combined
from tests.strategies import RandomGraph, digests, to_triples

limits = st.builds(
    WalkLimits,
    st.integers(0, 2**63 - 1),
    st.integers(1, 4),
    st.sampled_from([8, 12, 20, 40, 1000]),
    st.just(EvidenceSettings()),
)
"""Few neighbours, so that small graphs have hubs; few candidates, so that some are left out."""


def evidence_of(
    triples: Iterable[Triple], rows: int, relations: int, bounds: WalkLimits, digest: Array | None = None
) -> GraphEvidence:
    """Counted from nothing; also of a graph without triples."""
    train = canonical(to_triples(list(triples)))
    topology = Topology.of(train, rows)
    counts = RelationCounts.of(topology, train, relations)
    paths = PathShares.of(PathCounts.of(topology, train, relations))
    return GraphEvidence.counted(topology, counts, paths, digests(rows) if digest is None else digest, bounds)


def questions_of(asked: Sequence[tuple[int, int, bool]]) -> Questions:
    columns = list(zip(*asked, strict=True)) or [(), (), ()]
    return Questions(np.array(columns[0], ROW), np.array(columns[1], ROW), np.array(columns[2], bool))


def every_question(graph: RandomGraph) -> list[tuple[int, int, bool]]:
    """(entity, relation, asks for the tail) for all entities and relations, also those without triples."""
    return [(e, r, side) for side in (True, False) for e in range(graph.rows) for r in range(graph.relations)]


def every_pair(graph: RandomGraph) -> tuple[Questions, Array]:
    """All questions with all candidates."""
    questions = questions_of(every_question(graph))
    number = np.repeat(np.arange(questions.count), graph.rows)
    return questions.take(number), np.tile(np.arange(graph.rows, dtype=ROW), questions.count)


def weights_of(relations: int, seed: int = 0) -> EvidenceWeights:
    """Whole numbers and halves, so that scores often tie with each other and with distances.

    Every other seed has a distance below which evidence counts less.
    """
    rng = np.random.default_rng(seed)
    by_relation, common = (
        rng.integers(-2, 5, shape).astype(np.float32) / 2
        for shape in ((2, relations, len(FEATURES)), (2, len(FEATURES)))
    )
    return EvidenceWeights(by_relation, common, 1.0, float(rng.integers(-2, 8)) if seed % 2 else NOWHERE)


def scored(
    triples: Iterable[Triple], rows: int, relations: int, bounds: WalkLimits | None = None, seed: int = 0
) -> Evidence:
    """Evidence under random weights."""
    graph = evidence_of(triples, rows, relations, bounds or WalkLimits(5, 4, 40))
    return Evidence(graph, weights_of(relations, seed))


class RoundedEvidence(Evidence):
    """In whole numbers, as the distances of whole vectors are: everything ties with everything."""

    def _weigh(self, questions: Questions, number: Array, values: Array) -> Array:
        return np.round(super()._weigh(questions, number, values))

    def of_own(self, questions: Questions) -> Array:
        return np.round(super().of_own(questions) / 10)


def rounded(
    triples: Iterable[Triple], rows: int, relations: int, bounds: WalkLimits | None = None, seed: int = 0
) -> RoundedEvidence:
    """Evidence under random weights, rounded."""
    made = scored(triples, rows, relations, bounds, seed)
    return RoundedEvidence(made.graph, made.weights)


def dense_scores(vectors: tuple[Array, Array], evidence: Evidence | None, question: tuple[int, int, bool]) -> Array:
    """s of every entity as an answer to one question, from all distances and all evidence."""
    (entities, relations), (entity, relation, asks_tail) = vectors, question
    query = entities[entity] + (1 if asks_tail else -1) * relations[relation]
    rows = entities.shape[0]
    distances: Array = np.abs(query - entities).sum(1)
    if evidence is None:
        return -distances
    spoken = evidence.of(questions_of([question] * rows), np.arange(rows, dtype=ROW))
    near = evidence.weights.near
    return np.array([combined(f, e, near, DAMPING) for f, e in zip(distances, spoken, strict=True)], np.float32)


def dense_rank(scores: Array, true: int, removed: Iterable[int], alive: Iterable[int]) -> float:
    """The rank of one answer among those alive that are not removed; ties get the mean of best and worst."""
    others = [scores[row] for row in set(alive) - set(removed) - {true}]
    return 1 + sum(score > scores[true] for score in others) + sum(score == scores[true] for score in others) / 2
