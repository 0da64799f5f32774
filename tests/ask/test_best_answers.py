"""Answers: known ones apart, then the candidates of the best scores, against a sort over all entities."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask.answers import KnownLists, best_answers
from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.index import ExactIndex
from dkge_dist.types import ROW
from tests import reference
from tests.evidence.building import dense_scores, every_question, limits, questions_of, rounded
from tests.strategies import RandomGraph, related_graphs, to_triples

ROWS, RELATIONS = 30, 3


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
    embedding = JointEmbedding(ExactIndex(entities), relations, np.flatnonzero(alive).astype(ROW))
    known = [np.flatnonzero(rng.random(ROWS) < 0.2).astype(ROW) for _ in asked]
    found = best_answers(embedding, questions_of(asked), top, known)
    assert len(found) == len(asked)
    for number, (entity, relation, asks_tail) in enumerate(asked):
        query = entities[entity] + (1 if asks_tail else -1) * relations[relation]
        is_known = np.isin(np.arange(ROWS), known[number])
        facts = reference.nearest(query, entities, is_known.tolist(), ROWS)
        others = reference.nearest(query, entities, (alive & ~is_known).tolist(), top)
        for mine, expected in zip(found[number], (facts, others), strict=True):
            assert list(zip(mine.rows.tolist(), (-mine.scores).tolist(), strict=True)) == expected


@settings(max_examples=60)
@given(
    graph=related_graphs(max_rows=12, max_triples=40), bounds=limits, top=st.integers(1, 15), seed=st.integers(0, 999)
)
def test_with_evidence_the_best_are_those_of_scoring_everything(
    graph: RandomGraph, bounds: WalkLimits, top: int, seed: int
) -> None:
    """Known facts apart: they are scored as if their triples were not there."""
    rng = np.random.default_rng(seed)
    entities, relations = (rng.integers(-2, 3, (n, 3)).astype(np.float32) for n in (graph.rows, graph.relations))
    evidence = rounded(graph.triples, graph.rows, graph.relations, bounds, seed)
    asked = [every_question(graph)[i] for i in rng.integers(0, 2 * graph.rows * graph.relations, 5)]
    alive = np.flatnonzero(rng.random(graph.rows) < 0.8).astype(ROW)
    none = np.empty((0, 3), int)
    held_out = rng.integers(0, [graph.rows, graph.relations, graph.rows], (6, 3)) if seed % 2 else none
    splits = (graph.triples, [tuple(line) for line in held_out.tolist()], [])
    snapshot = Snapshot.full(tuple(canonical(to_triples(part)) for part in splits), graph.rows, graph.relations)
    questions = questions_of(asked)
    known = known_lists(snapshot).answers(questions)
    found = best_answers(JointEmbedding(ExactIndex(entities), relations, alive), questions, top, known, evidence)
    for number, question in enumerate(asked):
        scores = dense_scores((entities, relations), evidence, question)
        others = np.setdiff1d(alive, known[number])
        for mine, rows, count in zip(found[number], (known[number], others), (graph.rows, top), strict=True):
            order = sorted(rows.tolist(), key=lambda row: (-scores[row], row))[:count]
            assert mine.rows.tolist() == order
            assert mine.scores.tolist() == scores[order].tolist()


def test_a_score_is_that_of_the_triple_that_the_answer_makes() -> None:
    rng = np.random.default_rng(0)
    entities, relations = (rng.normal(size=(count, 8)).astype(np.float32) for count in (ROWS, RELATIONS))
    embedding = JointEmbedding(ExactIndex(entities), relations, np.arange(ROWS, dtype=ROW))
    questions = questions_of([(4, 1, True), (7, 2, False)])
    found = best_answers(embedding, questions, 5, [np.array([3, 9], ROW), np.empty(0, ROW)])
    assert [part.rows.shape[0] for parts in found for part in parts] == [2, 5, 0, 5]
    for number, parts in enumerate(found):
        for part in parts:
            head, relation, tail = questions.triples(number, part.rows)
            distances = np.abs(entities[head] + relations[relation] - entities[tail]).sum(1)
            np.testing.assert_allclose(-part.scores, distances, rtol=1e-5)
            assert (np.diff(part.scores) <= 0).all()


def known_lists(snapshot: Snapshot) -> KnownLists:
    return KnownLists.of(Topology.of_snapshot(snapshot), snapshot)


@settings(max_examples=40)
@given(graph=related_graphs(max_rows=12, max_triples=40), seed=st.integers(0, 999))
def test_answers_and_facts_are_known_in_whatever_split(graph: RandomGraph, seed: int) -> None:
    """As a pass over all triples finds them."""
    drawn = np.random.default_rng(seed).integers(0, [graph.rows, graph.relations, graph.rows], (9, 3)).tolist()
    given = [tuple(some) for some in (graph.triples, drawn[:6], drawn[3:])]
    splits = tuple(canonical(to_triples(list(some))) for some in given)
    lists = known_lists(Snapshot.full(splits, graph.rows, graph.relations))  # type: ignore[arg-type]
    every = {tuple(triple) for some in given for triple in some}
    questions = every_question(graph)
    for (entity, relation, asks_tail), found in zip(questions, lists.answers(questions_of(questions)), strict=True):
        here, there = (0, 2) if asks_tail else (2, 0)
        assert found.tolist() == sorted(
            {triple[there] for triple in every if (triple[here], triple[1]) == (entity, relation)}
        )
    for entity in range(graph.rows):
        facts = list(zip(*(column.tolist() for column in lists.facts(entity)), strict=True))
        assert len(facts) == len(set(facts)) and set(facts) == {t for t in every if entity in (t[0], t[2])}
        begun = [fact[0] == entity for fact in facts]
        assert begun == sorted(begun, reverse=True), "those that it begins come first"
