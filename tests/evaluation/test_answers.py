"""Answers: known ones apart, then the candidates of the best scores, against a sort over all entities."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evaluation.answers import answer, known_answers
from dkge_dist.evaluation.link_prediction import JointEmbedding
from dkge_dist.evidence.questions import Questions
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.table import joint_table
from dkge_dist.types import ROW
from tests import reference
from tests.strategies import to_triples

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
    known = [np.flatnonzero(rng.random(ROWS) < 0.2).astype(ROW) for _ in asked]
    found = answer(embedding, questions_of(asked), top, known)
    assert len(found) == len(asked)
    for number, (entity, relation, asks_tail) in enumerate(asked):
        query = entities[entity] + (1 if asks_tail else -1) * relations[relation]
        is_known = np.isin(np.arange(ROWS), known[number])
        facts = reference.nearest(query, entities, is_known.tolist(), ROWS)
        others = reference.nearest(query, entities, (alive & ~is_known).tolist(), top)
        for mine, expected in zip(found[number], (facts, others), strict=True):
            assert list(zip(mine.rows.tolist(), (-mine.scores).tolist(), strict=True)) == expected


def test_a_score_is_that_of_the_triple_that_the_answer_makes() -> None:
    rng = np.random.default_rng(0)
    entities, relations = (rng.normal(size=(count, 8)).astype(np.float32) for count in (ROWS, RELATIONS))
    embedding = JointEmbedding(joint_table(entities), relations, np.arange(ROWS, dtype=ROW))
    questions = questions_of([(4, 1, True), (7, 2, False)])
    found = answer(embedding, questions, 5, [np.array([3, 9], ROW), np.empty(0, ROW)])
    assert [part.rows.shape[0] for parts in found for part in parts] == [2, 5, 0, 5]
    for number, parts in enumerate(found):
        for part in parts:
            head, relation, tail = questions.triples(number, part.rows)
            distances = np.abs(entities[head] + relations[relation] - entities[tail]).sum(1)
            np.testing.assert_allclose(-part.scores, distances, rtol=1e-5)
            assert (np.diff(part.scores) <= 0).all()


def test_answers_are_known_in_whatever_split() -> None:
    splits = tuple(canonical(to_triples(some)) for some in ([(0, 0, 1), (5, 0, 2)], [(0, 0, 2)], [(0, 0, 3)]))
    snapshot = Snapshot.full(splits, 6, 2)  # type: ignore[arg-type]
    questions = questions_of([(0, 0, True), (0, 1, True), (2, 0, False), (0, 0, True), (4, 1, False)])
    found = known_answers(snapshot, questions)
    assert [rows.tolist() for rows in found] == [[1, 2, 3], [], [0, 5], [1, 2, 3], []]
    assert known_answers(snapshot, questions.take(np.empty(0, int))) == []
