"""Validation while learning: on everything it is plain link prediction, and a sample is drawn once and for all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evaluation.link_prediction import JointEmbedding, metrics, rank
from dkge_dist.evaluation.validation import SEED, Validation
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.table import joint_table
from dkge_dist.types import ROW, Triples
from tests.evidence.building import dense_rank, dense_scores, limits, rounded
from tests.reference import Triple
from tests.strategies import RandomGraph, related_graphs, to_list, to_triples
from tests.training_graphs import graph_of_rows

ROWS, RELATIONS, DIM = 30, 3, 6
triples = st.tuples(st.integers(0, ROWS - 1), st.integers(0, RELATIONS - 1), st.integers(0, ROWS - 1))


def vectors(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers: exact in 32 bits, and many ties."""
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(-2, 3, (count, DIM)).astype(np.float32) for count in (ROWS, RELATIONS))  # type: ignore[return-value]


def measured(validation: Validation, entities: np.ndarray, relations: np.ndarray) -> dict[str, float]:
    return validation.measure(entities[validation.rows], relations)


@settings(max_examples=50)
@given(
    st.lists(triples, min_size=1, max_size=12), st.lists(triples, max_size=60),
    st.sets(st.integers(0, ROWS - 1), min_size=1), st.integers(0, 99), st.integers(0, 5),
)  # fmt: skip
def test_on_everything_it_equals_link_prediction(
    asked: list[Triple], known: list[Triple], alive: set[int], seed: int, more: int
) -> None:
    entities, relations = vectors(seed)
    candidates = np.array(sorted(alive), ROW)
    valid, train = canonical(to_triples(asked)), canonical(to_triples(known))
    limits = (valid.count + more, candidates.shape[0] + more)
    validation = Validation(valid, Topology.of(train, ROWS), candidates, *limits, np.random.default_rng(seed))
    assert np.all(np.diff(validation.rows) > 0)
    expected = metrics(rank(JointEmbedding(joint_table(entities), relations, candidates), valid, train).both)
    assert measured(validation, entities, relations) == expected


@settings(max_examples=40)
@given(related_graphs(max_rows=12, max_triples=40), limits, st.integers(0, 99), st.integers(1, 12), st.integers(1, 14))
def test_with_evidence_it_equals_scoring_all_candidates_of_the_sample(
    random: RandomGraph, bounds: WalkLimits, seed: int, max_triples: int, max_candidates: int
) -> None:
    rng = np.random.default_rng(seed)
    entities, relations = (rng.integers(-2, 3, (n, 3)).astype(np.float32) for n in (random.rows, random.relations))
    drawn = rng.integers(0, [random.rows, random.relations, random.rows], (8, 3))
    valid, train = (
        canonical(to_triples([tuple(line) for line in drawn.tolist()])),
        canonical(to_triples(random.triples)),
    )
    evidence = rounded(random.triples, random.rows, random.relations, bounds, seed)
    every, known = np.arange(random.rows, dtype=ROW), set(random.triples)
    validation = Validation(valid, Topology.of(train, random.rows), every, max_triples, max_candidates, rng, evidence)
    alive = validation.rows[validation.candidates].tolist()
    assert len(alive) == min(max_candidates, random.rows)
    ranks = []
    for h, r, t in zip(*validation.triples, strict=True):
        head, tail = int(validation.rows[h]), int(validation.rows[t])
        for question, true in (((head, int(r), True), tail), ((tail, int(r), False), head)):
            scores = dense_scores((entities, relations), evidence, question)
            entity, kind, asks_tail = question
            answers = [row for row in range(random.rows)
                       if ((entity, kind, row) if asks_tail else (row, kind, entity)) in known]  # fmt: skip
            ranks.append(dense_rank(scores, true, answers, alive))
    assert len(ranks) == 2 * min(max_triples, valid.count)
    assert measured(validation, entities, relations) == pytest.approx(metrics(np.array(ranks)))


def graph(seed: int = 0) -> tuple[Triples, Triples, np.ndarray]:
    rng = np.random.default_rng(seed)
    valid, train = (
        canonical(
            to_triples([(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [ROWS, RELATIONS, ROWS], (n, 3))])
        )
        for n in (40, 150)
    )
    return valid, train, np.arange(0, ROWS, dtype=ROW)


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 999))
def test_a_sample_is_ranked_among_the_sampled_candidates(max_triples: int, max_candidates: int, seed: int) -> None:
    """Whatever was drawn: places inside stand for the rows outside, and known answers still do not compete."""
    valid, train, candidates = graph()
    validation = Validation(
        valid, Topology.of(train, ROWS), candidates, max_triples, max_candidates, np.random.default_rng(seed)
    )
    drawn = to_list(Triples(*(validation.rows[validation.triples.head], validation.triples.relation,
                              validation.rows[validation.triples.tail])))  # fmt: skip
    assert len(drawn) == len(set(drawn)) == min(max_triples, valid.count)
    assert set(drawn) <= set(to_list(valid))
    some = validation.rows[validation.candidates]
    assert len(set(some.tolist())) == some.shape[0] == min(max_candidates, candidates.shape[0])
    entities, relations = vectors(seed)
    expected = metrics(rank(JointEmbedding(joint_table(entities), relations, some), to_triples(drawn), train).both)
    assert measured(validation, entities, relations) == expected


def test_the_same_generator_draws_the_same_sample() -> None:
    valid, train, candidates = graph()
    one, same, other = (
        Validation(valid, Topology.of(train, ROWS), candidates, 10, 8, np.random.default_rng([seed, 2]))
        for seed in (7, 7, 8)
    )
    entities, relations = vectors(1)
    assert np.array_equal(one.rows, same.rows)
    assert np.array_equal(one.candidates, same.candidates)
    assert measured(one, entities, relations) == measured(same, entities, relations)
    assert measured(one, entities, relations) == measured(one, entities, relations)
    assert one.rows.tolist() != other.rows.tolist()


def test_only_the_vectors_that_it_asks_for_matter() -> None:
    valid, train, candidates = graph()
    validation = Validation(valid, Topology.of(train, ROWS), candidates, 3, 5, np.random.default_rng(0))
    assert validation.rows.shape[0] <= 3 * 2 + 5
    entities, relations = vectors(1)
    before = measured(validation, entities, relations)
    others = np.setdiff1d(np.arange(ROWS), validation.rows)
    entities[others] = np.nan
    assert measured(validation, entities, relations) == before


def test_without_triples_nothing_is_measured_and_no_vector_needed() -> None:
    _, train, candidates = graph()
    validation = Validation(Triples.empty(), Topology.of(train, ROWS), candidates, 10, 10, np.random.default_rng(0))
    assert validation.rows.shape == (0,)
    assert validation.measure(np.empty((0, DIM), np.float32), np.empty((RELATIONS, DIM), np.float32)) == {}


@pytest.mark.parametrize("known", [Triples.empty(), canonical(to_triples([(0, 0, 1), (0, 0, 2), (2, 0, 1)]))])
def test_known_answers_do_not_compete(known: Triples) -> None:
    entities = np.array([[0.0], [5.0], [1.0], [3.0]], np.float32)
    relations = np.zeros((1, 1), np.float32)
    asked = to_triples([(0, 0, 3)])
    validation = Validation(asked, Topology.of(known, ROWS), np.arange(4, dtype=ROW), 9, 9, np.random.default_rng(0))
    found = validation.measure(entities[validation.rows], relations)
    # From 0, tails 0 and 2 are nearer than 3, and 2 is known. To 3, heads 3 and 1 and 2 are nearer than 0.
    tail, head = (2 if known.count else 3), 4
    assert found["mr"] == (tail + head) / 2


def test_a_sample_of_a_training_graph_follows_from_seed_and_stream() -> None:
    valid, train, _ = graph()
    made = graph_of_rows(to_list(train), ROWS + 5, RELATIONS, Sampling(1, 5, 1), valid=to_list(valid))
    one = Validation.of(made, made.valid, 10, 8, 7)
    by_hand = Validation(made.valid, made.topology, made.entities, 10, 8, np.random.default_rng([7, SEED]))
    entities, relations = vectors(1)
    assert np.array_equal(one.rows, by_hand.rows)
    assert measured(one, entities, relations) == measured(by_hand, entities, relations)
    assert set(one.rows.tolist()) <= set(made.entities.tolist()), "only entities of the snapshot compete"
    others = (Validation.of(made, made.valid, 10, 8, 8), Validation.of(made, made.valid, 10, 8, 7, stream=SEED + 1))
    for other in others:
        assert one.rows.tolist() != other.rows.tolist()
