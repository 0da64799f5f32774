"""Ranks against sorting everything the slow way."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask import ranks as link_prediction
from dkge_dist.ask.ranks import (
    PROTOCOLS,
    JointEmbedding,
    Ranks,
    batches_of,
    filter_known,
    known_triples,
    metrics,
    rank,
    rank_by_protocol,
)
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.evidence.weights import EvidenceWeights
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.index import ExactIndex
from dkge_dist.types import ROW, Array, Triples
from tests.evidence.building import dense_rank, dense_scores, limits, rounded
from tests.reference import Triple
from tests.strategies import RandomGraph, related_graphs, to_triples

ROWS, RELATIONS = 12, 3
triple = st.tuples(st.integers(0, ROWS - 1), st.integers(0, RELATIONS - 1), st.integers(0, ROWS - 1))


def embedding(entities: Array, relations: Array, candidates: Array) -> JointEmbedding:
    return JointEmbedding(ExactIndex(entities), relations, candidates.astype(ROW))


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
    # Few known answers at a time, or all of them.
    with mock.patch.object(link_prediction, "KNOWN_AT_ONCE", 1 + seed % 9):
        found = rank(joint, to_triples(asked), canonical(to_triples(train)))
    assert found.tail.tolist() == [slow_rank(joint, one, set(train), True) for one in asked]
    assert found.head.tolist() == [slow_rank(joint, one, set(train), False) for one in asked]


@given(st.lists(triple, max_size=40), st.lists(triple, max_size=20), st.integers(1, 12), st.integers(1, 9))
def test_batches_bound_the_known_answers(train: list[Triple], asked: list[Triple], known: int, most: int) -> None:
    """Each triple once, in order; one that has too many by itself is a batch of its own."""
    topology, triples = Topology.of(canonical(to_triples(train)), ROWS), to_triples(asked)
    lists = (topology.outgoing, topology.incoming)
    with mock.patch.multiple(link_prediction, KNOWN_AT_ONCE=known, TRIPLES_AT_ONCE=most):
        batches = list(batches_of(triples, *lists))
    assert [number for batch in batches for number in range(batch.start, batch.stop)] == list(range(len(asked)))
    for batch in batches:
        listed = sum(side.rows.shape[0] for side in filter_known(triples.take(batch), *lists))
        assert 0 < batch.stop - batch.start <= most
        assert listed <= known or batch.stop - batch.start == 1


def whole_vectors(rows: int, relations: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    entities, kinds = (rng.integers(-2, 3, (count, 3)).astype(np.float32) for count in (rows, relations))
    return entities, kinds


def dense_ranks(
    vectors: tuple[Array, Array], asked: list[Triple], known: set[Triple], alive: list[int], evidence: Evidence | None
) -> tuple[list[float], list[float]]:
    """(of the tails, of the heads), by scoring every candidate of every question."""
    tails, heads, rows = [], [], range(vectors[0].shape[0])
    for head, relation, tail in asked:
        scores = dense_scores(vectors, evidence, (head, relation, True))
        tails.append(dense_rank(scores, tail, [row for row in rows if (head, relation, row) in known], alive))
        scores = dense_scores(vectors, evidence, (tail, relation, False))
        heads.append(dense_rank(scores, head, [row for row in rows if (row, relation, tail) in known], alive))
    return tails, heads


@settings(max_examples=60)
@given(graph=related_graphs(max_rows=12, max_triples=40), bounds=limits, seed=st.integers(0, 999))
def test_ranks_with_evidence_equal_scoring_everything(graph: RandomGraph, bounds: WalkLimits, seed: int) -> None:
    """By one protocol, and by both at once; of held-out triples, of train triples and of any others."""
    rng = np.random.default_rng(seed)
    vectors = whole_vectors(graph.rows, graph.relations, seed)
    drawn = rng.integers(0, [graph.rows, graph.relations, graph.rows], (8, 3))
    others = [(int(h), int(r), int(t)) for h, r, t in drawn]
    parts = (graph.triples, others[:3], others[3:5])
    splits = tuple(canonical(to_triples(part)) for part in parts)
    asked = [*others, *graph.triples[:2]]
    alive = np.flatnonzero(rng.random(graph.rows) < 0.8)
    joint = embedding(*vectors, alive)
    evidence = rounded(graph.triples, graph.rows, graph.relations, bounds, seed)
    triples = to_triples(asked)
    told: list[float] = []
    with mock.patch.object(link_prediction, "TRIPLES_AT_ONCE", 3):
        both = rank_by_protocol(joint, triples, splits, evidence, told.append)  # type: ignore[arg-type]
        by_vectors = rank_by_protocol(joint, triples, splits)  # type: ignore[arg-type]
    assert told == [min(1.0, 3 * part / len(asked)) for part in range(1, len(told) + 1)]
    assert told[-1] == 1.0
    for protocol in PROTOCOLS:
        known = {*parts[0], *(parts[1] + parts[2] if protocol == "filtered" else ())}
        expected = dense_ranks(vectors, asked, known, alive.tolist(), evidence)
        alone = rank(joint, triples, known_triples(splits, protocol), evidence)  # type: ignore[arg-type]
        for found in (both[protocol], alone):
            assert (found.tail.tolist(), found.head.tolist()) == expected
        found = by_vectors[protocol]
        assert (found.tail.tolist(), found.head.tolist()) == dense_ranks(vectors, asked, known, alive.tolist(), None)


def test_a_strong_answer_is_first_and_an_own_entity_is_not() -> None:
    """Evidence larger than every distance leaves no entity closer; without candidates everything is first."""
    triples = [(0, 0, 1), (2, 0, 1), (2, 1, 1), (3, 0, 4), (3, 1, 4), (0, 2, 5)]
    evidence = rounded(triples, 6, 3)
    strong = Evidence(evidence.graph, EvidenceWeights(*(np.full_like(part, 100) for part in (
        evidence.weights.relation_2RJ, evidence.weights.common_2J)), 1.0))  # fmt: skip
    vectors = whole_vectors(6, 3, 1)
    asked = to_triples([(0, 1, 1)])
    found = rank(embedding(*vectors, np.arange(6)), asked, canonical(to_triples(triples)), strong)
    assert (found.tail.tolist(), found.head.tolist()) == ([1.0], [1.0])
    nobody = rank(embedding(*vectors, np.empty(0)), asked, canonical(to_triples(triples)), strong)
    assert (nobody.tail.tolist(), nobody.head.tolist()) == ([1.0], [1.0])
    nothing = rank(embedding(*vectors, np.arange(6)), Triples.empty(), canonical(to_triples(triples)), strong)
    assert nothing.both.shape == (0,)


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
