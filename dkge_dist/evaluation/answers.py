"""Answers: the entities nearest to h* + r* (which tail?) or to t* − r* (which head?)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.evaluation.link_prediction import JointEmbedding
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.tables.nearest import Nearest
from dkge_dist.types import ROW, Array, Split, Triples


class Questions(NamedTuple):
    """(entity, relation, ?) where `asks_tail`, else (?, relation, entity); by rows."""

    entity: Array
    relation: Array
    asks_tail: Array

    def triples(self, number: int, answers: Array) -> Triples:
        """The triples that some answers make of one question."""
        entity = np.full(answers.shape[0], self.entity[number], ROW)
        relation = np.full(answers.shape[0], self.relation[number], ROW)
        others = answers.astype(ROW)
        return Triples(entity, relation, others) if self.asks_tail[number] else Triples(others, relation, entity)


def answer(embedding: JointEmbedding, questions: Questions, top: int) -> Nearest:
    """The `top` nearest candidates of each question."""
    sign = np.where(questions.asks_tail, np.float32(1), np.float32(-1))
    query = embedding.vectors(questions.entity) + sign[:, None] * embedding.relations[questions.relation]
    return embedding.entities.nearest(query, embedding.candidates, top)


def known_answers(snapshot: Snapshot, questions: Questions, number: int, answers: Array) -> Array:
    """Which answers to a question stand in the graph already, in whatever split."""
    asked = questions.triples(number, answers)
    known: Array = np.logical_or.reduce([snapshot.contains(split, asked) for split in Split])
    return known
