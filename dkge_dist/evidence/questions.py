"""Questions by rows: (entity, relation, ?) and (?, relation, entity)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dkge_dist.types import ROW, Array, Triples


class Questions(NamedTuple):
    """(entity, relation, ?) where `asks_tail`, else (?, relation, entity); by rows."""

    entity: Array
    relation: Array
    asks_tail: Array

    @property
    def count(self) -> int:  # type: ignore[override]
        """How many there are."""
        return int(self.entity.shape[0])

    @staticmethod
    def of(triples: Triples, asks_tail: bool) -> Questions:
        """Triples with the ends on one side asked for."""
        entity = triples.head if asks_tail else triples.tail
        return Questions(entity, triples.relation, np.full(triples.count, asks_tail))

    @staticmethod
    def both_sides(triples: Triples) -> tuple[Questions, Array]:
        """The questions for all tails, then those for all heads; and their answers."""
        sides = (Questions.of(triples, True), Questions.of(triples, False))
        answers = np.concatenate([triples.tail, triples.head])
        return Questions(*(np.concatenate(columns) for columns in zip(*sides, strict=True))), answers

    def take(self, where: Array) -> Questions:
        """Some of them."""
        return Questions(*(column[where] for column in self))

    def triples(self, number: int, answers: Array) -> Triples:
        """The triples that some answers make of one question."""
        entity = np.full(answers.shape[0], self.entity[number], ROW)
        relation = np.full(answers.shape[0], self.relation[number], ROW)
        others = answers.astype(ROW)
        return Triples(entity, relation, others) if self.asks_tail[number] else Triples(others, relation, entity)


Distances = Callable[[Questions, Array, Array], Array]
"""Distances of the vectors: of question i to the rows `rows[indptr[i]:indptr[i + 1]]`."""
