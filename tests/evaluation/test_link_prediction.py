"""Ranks against sorting everything the slow way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.evaluation.link_prediction import JointEmbedding, Ranks, known_triples, metrics, rank
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.table import joint_table
from dkge_dist.types import ROW, Array, Triples
from tests.reference import Triple
from tests.strategies import to_triples

ROWS, RELATIONS = 12, 3
triple = st.tuples(st.integers(0, ROWS - 1), st.integers(0, RELATIONS - 1), st.integers(0, ROWS - 1))


def embedding(entities: Array, relations: Array, candidates: Array) -> JointEmbedding:
    return JointEmbedding(joint_table(entities), relations, candidates.astype(ROW))


def slow_rank(joint: JointEmbedding, asked: Triple, known: set[Triple], tail_side: bool) -> float:
    head, relation, tail = asked
    entities = joint.vectors(np.arange(joint.entities.rows))
    distances = {}
    for row in joint.candidates.tolist():
        candidate = (head, relation, row) if tail_side else (row, relation, tail)
        if candidate in known and candidate != asked:
            continue
        vector = entities[candidate[0]] + joint.relations[relation] - entities[candidate[2]]
        distances[row] = float(np.abs(vector).sum())
    true = tail if tail_side else head
    vector = entities[head] + joint.relations[relation] - entities[tail]
    own = float(np.abs(vector).sum())
    others = [d for row, d in distances.items() if row != true]
    return 1 + sum(d < own for d in others) + sum(d == own for d in others) / 2


@given(
    st.lists(triple, max_size=30), st.lists(triple, min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 99),
    st.sets(st.integers(0, ROWS - 1), min_size=1),
)  # fmt: skip
def test_ranks_equal_counting_everything(
    train: list[Triple], asked: list[Triple], dim: int, seed: int, alive: set[int]
) -> None:
    rng = np.random.default_rng(seed)
    # Whole numbers are exact in 32 bits and make many ties.
    entities = rng.integers(-2, 3, (ROWS, dim)).astype(np.float32)
    relations = rng.integers(-2, 3, (RELATIONS, dim)).astype(np.float32)
    joint = embedding(entities, relations, np.array(sorted(alive)))
    found = rank(joint, to_triples(asked), canonical(to_triples(train)))
    assert found.tail.tolist() == [slow_rank(joint, one, set(train), True) for one in asked]
    assert found.head.tolist() == [slow_rank(joint, one, set(train), False) for one in asked]


def test_many_queries_and_tiles() -> None:
    rng = np.random.default_rng(0)
    entities = rng.integers(-3, 4, (300, 24)).astype(np.float32)
    relations = rng.integers(-3, 4, (2, 24)).astype(np.float32)
    joint = embedding(entities, relations, np.arange(300))
    asked = [(int(h), int(r), int(t)) for h, r, t in zip(*rng.integers(0, [[300], [2], [300]], (3, 70)), strict=True)]
    train = [(int(h), int(r), int(t)) for h, r, t in zip(*rng.integers(0, [[300], [2], [300]], (3, 900)), strict=True)]
    found = rank(joint, to_triples(asked), canonical(to_triples(train)))
    assert found.tail.tolist() == [slow_rank(joint, one, set(train), True) for one in asked]


def test_protocols_differ_in_what_is_known() -> None:
    splits = (to_triples([(0, 0, 1)]), to_triples([(0, 0, 2)]), Triples.empty())
    assert known_triples(splits, "paper").count == 1
    assert known_triples(splits, "filtered").count == 2


def test_metrics() -> None:
    found = metrics(np.array([1.0, 2.0, 4.0, 20.0]))
    assert found == {"mr": 6.75, "mrr": (1 + 0.5 + 0.25 + 0.05) / 4, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75}
    assert metrics(np.empty(0)) == {}


def test_vectors_come_in_the_order_asked_for_repeats_included() -> None:
    entities = np.arange(20, dtype=np.float32).reshape(10, 2)
    joint = embedding(entities, entities[:1], np.arange(10))
    rows = np.array([7, 0, 7, 9, 0])
    assert np.array_equal(joint.vectors(rows), entities[rows])
    assert joint.vectors(rows[:0]).shape == (0, 2)


def test_ranks_of_some_triples() -> None:
    ranks = Ranks(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    assert ranks.both.tolist() == [1, 2, 3, 4, 5, 6]
    assert ranks.take(np.array([True, False, True])).both.tolist() == [1, 3, 4, 6]


def test_the_mean_of_the_best_and_the_worst_rank_is_given_to_ties() -> None:
    """All entities stand at the same place: four others are just as close, so that the rank is 1 + 4 / 2."""
    joint = embedding(np.zeros((5, 3), np.float32), np.zeros((1, 3), np.float32), np.arange(5))
    found = rank(joint, to_triples([(0, 0, 1)]), Triples.empty())
    assert (found.tail.tolist(), found.head.tolist()) == ([3.0], [3.0])
    found = rank(joint, to_triples([(0, 0, 1)]), canonical(to_triples([(0, 0, 2), (3, 0, 1), (4, 0, 1)])))
    assert (found.tail.tolist(), found.head.tolist()) == ([2.5], [2.0])
