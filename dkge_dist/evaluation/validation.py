"""Validation while learning: a fixed sample of triples against a fixed sample of candidates.

Drawn once, so that epochs compare like with like and the cost does not follow the size of the graph. Train triples are
filtered. Evidence does not change while vectors learn, so it is looked up once.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evaluation.link_prediction import (
    JointEmbedding,
    SideEvidence,
    filter_known,
    find_evidence,
    metrics,
    rank_filtered,
)
from dkge_dist.evidence.scores import Evidence, ScoredCandidates
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.tables.table import joint_table
from dkge_dist.types import ROW, Array, Triples

SEED = 2
"""Apart from the other random choices of a training."""


class Validation:
    """What to rank. `rows` are the entities whose o* it needs, ascending; everything inside is an index into them."""

    def __init__(
        self,
        triples: Triples,
        known: Topology,
        candidates: Array,
        max_triples: int,
        max_candidates: int,
        rng: np.random.Generator,
        evidence: Evidence | None = None,
    ) -> None:
        triples = triples.take(_sample(triples.count, max_triples, rng))
        # Where nothing is ranked there are no candidates, and no o* is needed.
        candidates = candidates[_sample(candidates.shape[0], max_candidates if triples.count else 0, rng)]
        self.rows = np.unique(np.concatenate([triples.head, triples.tail, candidates])).astype(ROW)
        self.candidates = np.searchsorted(self.rows, candidates).astype(ROW)
        head, tail = (np.searchsorted(self.rows, column).astype(ROW) for column in (triples.head, triples.tail))
        self.triples = Triples(head, triples.relation, tail)
        tails, heads = filter_known(triples, known.outgoing, known.incoming)
        self.filtered = (self._indexed(tails), self._indexed(heads))
        found = find_evidence(evidence, triples) if evidence is not None and triples.count else None
        self.evidence = (self._with_evidence(found[0]), self._with_evidence(found[1])) if found else None

    @staticmethod
    def of(
        graph: TrainingGraph,
        triples: Triples,
        max_triples: int,
        max_candidates: int,
        seed: int,
        evidence: Evidence | None = None,
        stream: int = SEED,
    ) -> Validation:
        """A sample of held-out triples of a graph, the same for the same seed and stream of random numbers."""
        rng = np.random.default_rng([seed, stream])
        return Validation(triples, graph.topology, graph.entities, max_triples, max_candidates, rng, evidence)

    def _here(self, rows: Array) -> tuple[Array, Array]:
        """Which of some rows are in the sample (positions), and their indices. Indices rise with rows."""
        at = np.searchsorted(self.rows, rows)
        here = np.flatnonzero(self.rows[np.minimum(at, self.rows.shape[0] - 1)] == rows)
        return here, at[here].astype(ROW)

    def _indexed(self, filtered: FilteredCandidates) -> FilteredCandidates:
        """The same rows as indices, without those that are not in the sample."""
        if not self.rows.shape[0]:
            return filtered
        here, indices = self._here(filtered.rows)
        return FilteredCandidates(np.searchsorted(here, filtered.indptr), indices)

    def _with_evidence(self, side: SideEvidence) -> SideEvidence:
        """The same candidates as indices, without those that are not in the sample."""
        here, indices = self._here(side.candidates.rows)
        kept = side.candidates.take(here)
        return SideEvidence(ScoredCandidates(kept.indptr, indices, kept.scores), side.truth, side.near)

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        """Metrics by o* of the entities `rows` and of all relations; none if there is nothing to rank."""
        if not self.triples.count:
            return {}
        embedding = JointEmbedding(joint_table(entities), relations, self.candidates)
        return metrics(rank_filtered(embedding, self.triples, self.filtered, self.evidence).both)


def _sample(count: int, wanted: int, rng: np.random.Generator) -> Array:
    """Positions of a sample, ascending; all of them where there are no more than wanted."""
    if count <= wanted:
        return np.arange(count)
    return np.sort(rng.choice(count, wanted, replace=False))
