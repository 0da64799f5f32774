"""Validation while learning: a fixed sample of triples against a fixed sample of candidates.

Drawn once, so that epochs compare like with like and the cost does not follow the size of the graph. Train triples do
not compete.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evaluation.link_prediction import Joint, filter_known, metrics, rank_without
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.types import ROW, Array, Triples


class Validation:
    """What to rank. `rows` are the entities whose o* it needs, ascending; everything inside counts by place in them."""

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
        # Where nothing is ranked nobody competes, and no o* is needed.
        candidates = candidates[_sample(candidates.shape[0], max_candidates if triples.count else 0, rng)]
        self.rows = np.unique(np.concatenate([triples.head, triples.tail, candidates])).astype(ROW)
        self.candidates = np.searchsorted(self.rows, candidates).astype(ROW)
        head, tail = (np.searchsorted(self.rows, column).astype(ROW) for column in (triples.head, triples.tail))
        self.triples = Triples(head, triples.relation, tail)
        tails, heads = filter_known(triples, known.outgoing, known.incoming)
        self.filtered = (self._placed(tails), self._placed(heads))

    def _placed(self, filtered: FilteredCandidates) -> FilteredCandidates:
        """The same rows by place, those left away that are not here. Places rise with rows, so order is kept."""
        if not self.rows.shape[0]:
            return filtered
        at = np.searchsorted(self.rows, filtered.rows)
        here = np.flatnonzero(self.rows[np.minimum(at, self.rows.shape[0] - 1)] == filtered.rows)
        return FilteredCandidates(np.searchsorted(here, filtered.indptr), at[here].astype(ROW))

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        """Metrics by o* of the entities `rows` and of all relations; none if there is nothing to rank."""
        if not self.triples.count:
            return {}
        return metrics(rank_without(Joint(entities, relations, self.candidates), self.triples, self.filtered).both)


def _sample(count: int, wanted: int, rng: np.random.Generator) -> Array:
    """Places of a sample, ascending; all of them where no more are there than wanted."""
    if count <= wanted:
        return np.arange(count)
    return np.sort(rng.choice(count, wanted, replace=False))
