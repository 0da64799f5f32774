"""Validation while learning: a fixed sample of triples against a fixed sample of candidates.

Drawn once, so that epochs compare like with like and ranking does not follow the size of the graph. Drawn by hashes of
labels, so that versions compare like with like. Train triples are filtered. Evidence does not change while vectors
learn, so it is looked up once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.ask.ranks import (
    JointEmbedding,
    Ranks,
    SideEvidence,
    find_evidence,
    metrics,
    rank_filtered,
    runs_of,
)
from dkge_dist.evidence.fitting import validation_half
from dkge_dist.evidence.scores import Evidence, ScoredCandidates
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.hashing import triple_hashes
from dkge_dist.kernels.ranks import (
    FilteredCandidates,
    among_candidates,
    answer_counts,
    concatenated,
    known_answers,
    shared_lists,
)
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import pack
from dkge_dist.measure.comparison import RankedTriples
from dkge_dist.records import Estimate, Quality
from dkge_dist.settings import Settings
from dkge_dist.tables.index import ExactIndex
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, Array, Field, Triples

STREAM = 2
"""Of hashes, apart from those that other samples are drawn by."""


class Validation:
    """What to rank. `rows` are the entities whose o* it needs, ascending; everything inside is an index into them."""

    def __init__(self, triples: Triples, known: Topology, candidates: Array, evidence: Evidence | None = None) -> None:
        self.rows = distinct(triples.head, triples.tail, candidates).astype(ROW)
        self.candidates = np.searchsorted(self.rows, candidates).astype(ROW)
        head, tail = (np.searchsorted(self.rows, column).astype(ROW) for column in (triples.head, triples.tail))
        self.triples = Triples(head, triples.relation, tail)
        self.filtered = (
            self._filtered(known.outgoing, triples.head, triples.relation, tail),
            self._filtered(known.incoming, triples.tail, triples.relation, head),
        )
        found = find_evidence(evidence, triples) if evidence is not None and triples.count else None
        self.evidence = (self._with_evidence(found[0]), self._with_evidence(found[1])) if found else None

    @staticmethod
    def of(
        graph: TrainingGraph,
        triples: Triples,
        max_triples: int,
        max_candidates: int,
        evidence: Evidence | None = None,
        stream: int = STREAM,
    ) -> Validation:
        """A sample of held-out triples. It follows from labels, so that two nights share nearly all of it."""
        triples = triples.take(bottom_k(validation_hashes(graph, triples, stream), max_triples))
        if not triples.count:
            # Where nothing is ranked there are no candidates, and no o* is needed.
            return Validation(triples, graph.topology, graph.entities[:0], evidence)
        # Digests are hashes already; another stream orders them in another way.
        priorities = graph.digests[0][graph.entities] ^ np.random.default_rng(stream).integers(2**64, dtype=np.uint64)
        candidates = graph.entities[bottom_k(priorities, max_candidates)]
        return Validation(triples, graph.topology, candidates, evidence)

    @property
    def sampled(self) -> Triples:
        """The triples to rank, by rows of the graph."""
        return Triples(self.rows[self.triples.head], self.triples.relation, self.rows[self.triples.tail])

    def _here(self, rows: Array) -> tuple[Array, Array]:
        """Which of some rows are in the sample (positions), and their indices. Indices rise with rows."""
        at = np.searchsorted(self.rows, rows)
        here = np.flatnonzero(self.rows[np.minimum(at, self.rows.shape[0] - 1)] == rows)
        return here, at[here].astype(ROW)

    def _filtered(self, adjacency: Adjacency, entity: Array, relation: Array, true: Array) -> FilteredCandidates:
        """The known answers to questions that are candidates, and the true one (an index).

        Questions about a hub are many, and its known answers are: they are looked up once, and a few hubs at a time.
        """
        _, first, number = np.unique(pack(entity, relation), return_index=True, return_inverse=True)
        entity, relation, nobody = entity[first], relation[first], np.full(first.shape[0], -1, ROW)
        runs = runs_of(answer_counts(adjacency, entity, relation, nobody), first.shape[0])
        lists = [self._competing(known_answers(adjacency, entity[run], relation[run], nobody[run])) for run in runs]
        return shared_lists(concatenated(lists), number, true)

    def _competing(self, filtered: FilteredCandidates) -> FilteredCandidates:
        """The same rows as indices, without those that are no candidates in any case."""
        found = among_candidates(filtered, self.rows[self.candidates])
        return found._replace(rows=self.candidates[found.rows])

    def _with_evidence(self, side: SideEvidence) -> SideEvidence:
        """The same candidates as indices, without those that are not in the sample."""
        here, indices = self._here(side.candidates.rows)
        kept = side.candidates.take(here)
        return SideEvidence(ScoredCandidates(kept.indptr, indices, kept.scores), side.truth, side.near)

    def rank(self, entities: Array, relations: Array) -> Ranks:
        """Ranks by o* of the entities `rows` and of all relations."""
        embedding = JointEmbedding(ExactIndex(entities), relations, self.candidates)
        return rank_filtered(embedding, self.triples, self.filtered, self.evidence)

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        """Metrics of these ranks; none if there is nothing to rank."""
        return metrics(self.rank(entities, relations).both) if self.triples.count else {}


def validation_hashes(graph: TrainingGraph, triples: Triples, stream: int = STREAM) -> Array:
    """A hash of the labels of every triple: who is sampled, and under what name a version keeps its rank."""
    entity, relation = graph.digests
    return triple_hashes(stream, entity[triples.head], relation[triples.relation], entity[triples.tail])


def bottom_k(hashes: Array, k: int) -> Array:
    """Positions of the k smallest, ascending. One more or less in the set changes at most one of the sample."""
    if hashes.shape[0] <= k:
        return np.arange(hashes.shape[0])
    return np.sort(np.argpartition(hashes, k)[:k])


class MeasuredValidation(NamedTuple):
    """The quality, and the rank of every triple; neither where there are no validation triples."""

    quality: Quality
    ranked: RankedTriples | None


def measure_validation(
    graph: TrainingGraph, tables: Tables, settings: Settings, evidence: Evidence | None
) -> MeasuredValidation:
    """On a sample of all validation triples; with evidence, on a sample of those that θ is not fitted on."""
    triples = validation_half(graph) if evidence is not None else graph.valid
    if not triples.count:
        return MeasuredValidation(Quality(), None)
    max_candidates = settings.train.valid_candidates
    validation = Validation.of(graph, triples, settings.train.valid_triples, max_candidates, evidence)
    every = np.arange(graph.relation_rows, dtype=ROW)
    joint = [
        table.pull({Field.JOINT: rows})[Field.JOINT]
        for table, rows in zip(tables, (validation.rows, every), strict=True)
    ]
    ranks = validation.rank(*joint)
    ranked = RankedTriples.of(validation_hashes(graph, validation.sampled), ranks, max_candidates)
    mean = Estimate.of(ranked.reciprocal.astype(np.float64))
    quality = Quality.model_validate({**metrics(ranks.both), "mrr_error": mean.error, "triples": mean.triples})
    return MeasuredValidation(quality, ranked)
