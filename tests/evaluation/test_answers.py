"""Answers: the entities nearest to h* + r* or to t* − r*, against a sort over all entities."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evaluation.answers import Questions, answer, known_answers
from dkge_dist.evaluation.link_prediction import JointEmbedding
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.table import joint_table
from dkge_dist.types import ROW
from tests import reference
from tests.strategies import to_list, to_triples

ROWS, RELATIONS = 30, 3


def questions_of(asked: list[tuple[int, int, bool]]) -> Questions:
    entity, relation, asks_tail = zip(*asked, strict=True)
    return Questions(np.array(entity, ROW), np.array(relation, ROW), np.array(asks_tail, bool))


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(0, RELATIONS - 1), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 40),
    st.integers(0, 999),
)
def test_the_nearest_candidates_of_each_question(asked: list[tuple[int, int, bool]], top: int, seed: int) -> None:
    """Whole numbers, so that sums are exact and many are equal: of those the smaller row comes first."""
    rng = np.random.default_rng(seed)
    entities, relations = (rng.integers(-2, 3, (count, 3)).astype(np.float32) for count in (ROWS, RELATIONS))
    alive = rng.random(ROWS) < 0.7
    embedding = JointEmbedding(joint_table(entities), relations, np.flatnonzero(alive).astype(ROW))
    found = answer(embedding, questions_of(asked), top)
    for number, (entity, relation, asks_tail) in enumerate(asked):
        query = entities[entity] + (1 if asks_tail else -1) * relations[relation]
        expected = reference.nearest(query, entities, alive.tolist(), top)
        assert list(zip(found.rows[number].tolist(), found.distances[number].tolist(), strict=True)) == expected


def test_a_distance_is_the_score_of_the_triple_that_the_answer_makes() -> None:
    rng = np.random.default_rng(0)
    entities, relations = (rng.normal(size=(count, 8)).astype(np.float32) for count in (ROWS, RELATIONS))
    embedding = JointEmbedding(joint_table(entities), relations, np.arange(ROWS, dtype=ROW))
    questions = questions_of([(4, 1, True), (7, 2, False)])
    found = answer(embedding, questions, 5)
    for number in range(2):
        head, relation, tail = questions.triples(number, found.rows[number])
        scores = np.abs(entities[head] + relations[relation] - entities[tail]).sum(1)
        np.testing.assert_allclose(found.distances[number], scores, rtol=1e-5)
        assert (np.diff(found.distances[number]) >= 0).all()


def test_the_triples_that_answers_make() -> None:
    questions = questions_of([(4, 1, True), (7, 2, False)])
    assert to_list(questions.triples(0, np.array([3, 9]))) == [(4, 1, 3), (4, 1, 9)]
    assert to_list(questions.triples(1, np.array([3, 9]))) == [(3, 2, 7), (9, 2, 7)]
    assert questions.triples(0, np.array([3, 9])).tail.dtype == ROW


def test_answers_are_known_in_whatever_split() -> None:
    splits = tuple(canonical(to_triples(some)) for some in ([(0, 0, 1), (5, 0, 2)], [(0, 0, 2)], [(0, 0, 3)]))
    snapshot = Snapshot.full(splits, 6, 2)  # type: ignore[arg-type]
    answers = np.array([1, 2, 3, 4, 0])
    questions = questions_of([(0, 0, True), (0, 1, True), (2, 0, False)])
    assert known_answers(snapshot, questions, 0, answers).tolist() == [True, True, True, False, False]
    assert not known_answers(snapshot, questions, 1, answers).any()
    assert known_answers(snapshot, questions, 2, np.array([0, 5, 1])).tolist() == [True, True, False]
