"""Validation while learning: a fixed sample of triples against a fixed sample of candidates.

Drawn once, so that epochs compare like with like and the cost does not follow the size of the graph. Train triples are
filtered.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evaluation.link_prediction import JointEmbedding, filter_known, metrics, rank_filtered
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

    @staticmethod
    def of(graph: TrainingGraph, max_triples: int, max_candidates: int, seed: int, stream: int = SEED) -> Validation:
        """A sample of the validation triples of a graph, the same for the same seed and stream of random numbers."""
        rng = np.random.default_rng([seed, stream])
        return Validation(graph.valid, graph.topology, graph.entities, max_triples, max_candidates, rng)

    def _indexed(self, filtered: FilteredCandidates) -> FilteredCandidates:
        """The same rows as indices, without those that are not in the sample. Indices rise with rows."""
        if not self.rows.shape[0]:
            return filtered
        at = np.searchsorted(self.rows, filtered.rows)
        here = np.flatnonzero(self.rows[np.minimum(at, self.rows.shape[0] - 1)] == filtered.rows)
        return FilteredCandidates(np.searchsorted(here, filtered.indptr), at[here].astype(ROW))

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        """Metrics by o* of the entities `rows` and of all relations; none if there is nothing to rank."""
        if not self.triples.count:
            return {}
        embedding = JointEmbedding(joint_table(entities), relations, self.candidates)
        return metrics(rank_filtered(embedding, self.triples, self.filtered).both)


def _sample(count: int, wanted: int, rng: np.random.Generator) -> Array:
    """Positions of a sample, ascending; all of them where there are no more than wanted."""
    if count <= wanted:
        return np.arange(count)
    return np.sort(rng.choice(count, wanted, replace=False))
