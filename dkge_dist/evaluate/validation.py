"""Validation while learning: a fixed sample of triples against a fixed sample of candidates.

Drawn once, so that epochs compare like with like and the cost does not follow the size of the graph.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evaluate.link_prediction import Joint, metrics, rank
from dkge_dist.types import ROW, Array, Triples


class Validation:
    """What to rank. `rows` are the entities whose o* it needs, ascending; everything inside counts by place in them."""

    def __init__(
        self,
        triples: Triples,
        known: Triples,
        candidates: Array,
        max_triples: int,
        max_candidates: int,
        rng: np.random.Generator,
    ) -> None:
        triples = triples.take(_sample(triples.count, max_triples, rng))
        # Where nothing is ranked nobody competes, and no o* is needed.
        candidates = candidates[_sample(candidates.shape[0], max_candidates if triples.count else 0, rng)]
        self.rows = np.unique(np.concatenate([triples.head, triples.tail, candidates])).astype(ROW)
        self.triples = self._placed(triples)
        self.candidates = np.searchsorted(self.rows, candidates).astype(ROW)
        near = np.isin(known.head, self.rows) & np.isin(known.tail, self.rows)
        # Places rise with rows, so what is in canonical order stays in it.
        self.known = self._placed(known.take(near))

    def _placed(self, triples: Triples) -> Triples:
        head, tail = (np.searchsorted(self.rows, column).astype(ROW) for column in (triples.head, triples.tail))
        return Triples(head, triples.relation, tail)

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        """Metrics by o* of the entities `rows` and of all relations; none if there is nothing to rank."""
        if not self.triples.count:
            return {}
        return metrics(rank(Joint(entities, relations, self.candidates), self.triples, self.known).both)


def _sample(count: int, wanted: int, rng: np.random.Generator) -> Array:
    """Places of a sample, ascending; all of them where no more are there than wanted."""
    if count <= wanted:
        return np.arange(count)
    return np.sort(rng.choice(count, wanted, replace=False))
