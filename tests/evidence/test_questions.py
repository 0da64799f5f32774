"""Questions by rows, and the triples that answers make of them."""

from __future__ import annotations

import numpy as np

from dkge_dist.evidence.questions import Questions
from dkge_dist.types import ROW, Triples
from tests.evidence.building import questions_of
from tests.strategies import to_list, to_triples


def test_the_triples_that_answers_make() -> None:
    questions = questions_of([(4, 1, True), (7, 2, False)])
    assert to_list(questions.triples(0, np.array([3, 9]))) == [(4, 1, 3), (4, 1, 9)]
    assert to_list(questions.triples(1, np.array([3, 9]))) == [(3, 2, 7), (9, 2, 7)]
    assert questions.triples(0, np.array([3, 9])).tail.dtype == ROW


def test_both_sides_of_triples() -> None:
    triples = [(0, 1, 2), (3, 0, 4)]
    questions, answers = Questions.both_sides(to_triples(triples))
    assert questions.count == 4
    assert questions.asks_tail.tolist() == [True, True, False, False]
    made = [to_list(questions.triples(i, answers[i : i + 1]))[0] for i in range(4)]
    assert made == [*triples, *triples]
    assert to_list(Questions.of(to_triples(triples), False).triples(1, np.array([9]))) == [(9, 0, 4)]
    nothing, none = Questions.both_sides(Triples.empty())
    assert (nothing.count, none.shape) == (0, (0,))


def test_some_of_them_in_the_order_asked_for() -> None:
    questions = questions_of([(4, 1, True), (7, 2, False), (5, 0, True)]).take(np.array([2, 0, 2]))
    assert questions.entity.tolist() == [5, 4, 5]
    assert questions.count == 3
