"""Scores of triples by themselves: the mean of s on both sides. In: triples by rows. Out: one score each."""

from __future__ import annotations

import numpy as np

from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence, combined_score
from dkge_dist.kernels.ranks import distances_between
from dkge_dist.types import Array, Triples


def score_triples(embedding: JointEmbedding, triples: Triples, evidence: Evidence | None = None) -> Array:
    """s of triples, known or not; higher is better. A triple is no evidence for itself."""
    head, tail = embedding.vectors(triples.head), embedding.vectors(triples.tail)
    relation = embedding.relations[triples.relation]
    sides = []
    for asks_tail, query, true in ((True, head + relation, tail), (False, tail - relation, head)):
        distance = distances_between(query, true)
        if evidence is None:
            sides.append(-distance)
        else:
            answers = triples.tail if asks_tail else triples.head
            found = evidence.of(Questions.of(triples, asks_tail), answers)
            sides.append(combined_score(distance, found, evidence.weights.near))
    mean: Array = (sides[0] + sides[1]) / np.float32(2)
    return mean
