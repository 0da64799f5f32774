"""E of candidates and of given pairs: the same bits; the own entity by a formula, without its own loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.features import features
from dkge_dist.evidence.scores import MEMORISATION_DAMPING as DAMPING
from dkge_dist.evidence.scores import Evidence, ScoredCandidates, combined_score
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.evidence.weights import NOWHERE
from tests.evidence.building import every_pair, every_question, limits, questions_of, scored
from tests.reference_evidence import combined
from tests.strategies import RandomGraph, related_graphs


@settings(max_examples=50)
@given(graph=related_graphs(max_rows=12, max_triples=40), bounds=limits, seed=st.integers(0, 99))
def test_candidates_are_those_with_evidence_and_the_own_entity(
    graph: RandomGraph, bounds: WalkLimits, seed: int
) -> None:
    evidence = scored(graph.triples, graph.rows, graph.relations, bounds, seed)
    asked, known = every_question(graph), set(graph.triples)
    found = evidence.candidates(questions_of(asked))
    pairs = evidence.of(*every_pair(graph)).reshape(len(asked), graph.rows)
    walked = evidence.graph.candidates(questions_of(asked))
    for number, (entity, relation, asks_tail) in enumerate(asked):
        part = slice(found.indptr[number], found.indptr[number + 1])
        rows = found.rows[part].tolist()
        assert rows == sorted({entity, *walked.rows[walked.indptr[number] : walked.indptr[number + 1]].tolist()})
        assert found.scores[part].tobytes() == pairs[number, rows].tobytes()
        for row in set(range(graph.rows)) - set(rows):
            if ((entity, relation, row) if asks_tail else (row, relation, entity)) not in known:
                assert pairs[number, row] == 0
    assert found.question.tolist() == np.repeat(np.arange(len(asked)), np.diff(found.indptr)).tolist()


@settings(max_examples=30)
@given(graph=related_graphs(max_rows=10, max_triples=30), bounds=limits)
def test_a_score_is_the_weighted_sum_of_features(graph: RandomGraph, bounds: WalkLimits) -> None:
    evidence = scored(graph.triples, graph.rows, graph.relations, bounds)
    questions, candidates = every_pair(graph)
    phi = features(evidence.graph.of_pairs(questions, candidates)).astype(np.float64)
    expected = (evidence.weights.of(questions.relation, questions.asks_tail) * phi).sum(1)
    others = candidates != questions.entity
    np.testing.assert_allclose(evidence.of(questions, candidates)[others], expected[others], rtol=1e-5, atol=1e-5)


numbers = st.floats(-60, 60, width=32)


@given(st.lists(st.tuples(st.floats(0, 60, width=32), numbers), max_size=30), numbers | st.just(NOWHERE))
def test_combined_score_equals_the_slow_twin(pairs: list[tuple[float, float]], near: float) -> None:
    distance, evidence = np.array(pairs, np.float32).reshape(-1, 2).T
    found = combined_score(distance, evidence, near)
    assert found.dtype == np.float32
    assert found.tolist() == [combined(f, e, near, DAMPING) for f, e in zip(distance, evidence, strict=True)]


@given(numbers, st.floats(0, 60, width=32), st.floats(0, 60, width=32))
def test_evidence_for_a_candidate_never_lowers_it_and_more_never_less(
    near: float, distance: float, more: float
) -> None:
    """Below `near` it counts a part, so that a known fact without evidence stays above well-linked strangers."""
    evidence = np.array([0, more / 2, more], np.float32)
    score = combined_score(np.full(3, distance, np.float32), evidence, near)
    assert score[0] == -np.float32(distance)
    assert score[0] <= score[1] <= score[2] <= np.float32(more - distance) + 1e-4
    if distance <= near and more > 1:
        assert score[2] < -distance + more, "not in full"
    if distance - more > near + 1e-3:
        assert score[2] == pytest.approx(more - distance, abs=1e-4), "in full"


def test_evidence_counts_a_part_above_what_is_known_by_heart() -> None:
    distance, evidence = np.array([10, 10, 10, 2, 10], np.float32), np.array([4, 6, 6 + 3, 3, -5], np.float32)
    found = combined_score(distance, evidence, 4.0)
    expected = [-6, -4, -4 + 3 / DAMPING, max(-2, -4 + 5 / DAMPING), -15]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("asks_tail", [True, False])
def test_the_own_entity_as_answer(asks_tail: bool) -> None:
    """Relation 0 has two loops and one other pair, relation 1 has none. A loop does not count for itself."""
    triples = [(0, 0, 0), (1, 0, 1), (2, 0, 3), (2, 1, 3)]
    evidence = scored(triples, 5, 2)
    asked = questions_of([(4, 0, asks_tail), (0, 0, asks_tail), (4, 1, asks_tail)])
    expected = [10 * np.log(3 / 5), 10 * np.log(2 / 4), 10 * np.log(1 / 3)]
    assert evidence.of_own(asked).tolist() == pytest.approx(expected)
    assert evidence.of(asked, asked.entity).tobytes() == evidence.of_own(asked).tobytes()
    assert evidence.other_loops(asked).tolist() == [2, 1, 0]
    without = scored(triples[1:], 5, 2)
    assert without.of_own(asked.take(np.array([1]))).tobytes() == evidence.of_own(asked.take(np.array([1]))).tobytes()


def test_some_of_the_candidates_and_none() -> None:
    found = ScoredCandidates(np.array([0, 2, 2, 5]), np.array([3, 4, 1, 6, 9]), np.arange(5, dtype=np.float32))
    some = found.take(np.array([1, 2, 4]))
    assert (some.indptr.tolist(), some.rows.tolist(), some.scores.tolist()) == ([0, 1, 1, 3], [4, 1, 9], [1, 2, 4])
    assert some.question.tolist() == [0, 2, 2]
    none = ScoredCandidates.none(3)
    assert (none.indptr.tolist(), none.rows.shape, none.question.shape) == ([0, 0, 0, 0], (0,), (0,))


def test_no_questions() -> None:
    evidence: Evidence = scored([(0, 0, 1)], 3, 1)
    assert evidence.candidates(questions_of([])).indptr.tolist() == [0]
    assert evidence.of(questions_of([]), np.empty(0, np.int32)).shape == (0,)
