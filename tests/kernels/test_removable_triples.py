"""Removable triples, against removing them one by one from a list."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.removable_triples import removable_triples
from tests import reference
from tests.strategies import RandomGraph, graphs, to_triples


@given(graphs(max_rows=8, max_triples=24), st.integers(0, 20))
def test_every_object_keeps_a_triple(graph: RandomGraph, count: int) -> None:
    triples = to_triples(graph.triples)
    entities = np.bincount(triples.head, minlength=graph.rows) + np.bincount(triples.tail, minlength=graph.rows)
    relations = np.bincount(triples.relation, minlength=graph.relations)
    found = removable_triples(triples.head, triples.relation, triples.tail, entities, relations, count)
    assert found.tolist() == reference.removable_triples(graph.triples, count)
    left = [triple for i, triple in enumerate(graph.triples) if i not in set(found.tolist())]
    assert {e for h, _, t in left for e in (h, t)} == {e for h, _, t in graph.triples for e in (h, t)}
    assert {r for _, r, _ in left} == {r for _, r, _ in graph.triples}
