"""The score of a triple by itself: the mean of both sides, whether it is known or not."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.ask.scores import score_triples
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.tables.index import ExactIndex
from dkge_dist.types import ROW
from tests.evidence.building import dense_scores, limits, rounded
from tests.strategies import RandomGraph, related_graphs, to_triples


@settings(max_examples=40)
@given(graph=related_graphs(max_rows=10, max_triples=30), bounds=limits, seed=st.integers(0, 999))
def test_it_is_the_mean_of_scoring_everything_on_both_sides(graph: RandomGraph, bounds: WalkLimits, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = tuple(rng.integers(-2, 3, (n, 3)).astype(np.float32) for n in (graph.rows, graph.relations))
    evidence = rounded(graph.triples, graph.rows, graph.relations, bounds, seed)
    embedding = JointEmbedding(ExactIndex(vectors[0]), vectors[1], np.arange(graph.rows, dtype=ROW))
    drawn = rng.integers(0, [graph.rows, graph.relations, graph.rows], (6, 3)).tolist()
    asked = [*graph.triples[:4], *(tuple(line) for line in drawn)]
    for by in (None, evidence):
        found = score_triples(embedding, to_triples(asked), by)
        for (head, relation, tail), score in zip(asked, found.tolist(), strict=True):
            for_tail = dense_scores(vectors, by, (head, relation, True))[tail]  # type: ignore[arg-type]
            for_head = dense_scores(vectors, by, (tail, relation, False))[head]  # type: ignore[arg-type]
            assert score == (for_tail + for_head) / np.float32(2)
