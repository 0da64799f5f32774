"""Validation while learning: on everything it is plain link prediction, and a sample is drawn once and for all."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask import ranks as link_prediction
from dkge_dist.ask.ranks import JointEmbedding, metrics, rank
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.measure.validation import STREAM, Validation, bottom_k
from dkge_dist.tables.index import ExactIndex
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
    st.sets(st.integers(0, ROWS - 1), min_size=1), st.integers(0, 99),
)  # fmt: skip
def test_on_everything_it_equals_link_prediction(
    asked: list[Triple], known: list[Triple], alive: set[int], seed: int
) -> None:
    entities, relations = vectors(seed)
    candidates = np.array(sorted(alive), ROW)
    valid, train = canonical(to_triples(asked)), canonical(to_triples(known))
    with mock.patch.object(link_prediction, "KNOWN_AT_ONCE", 1 + seed):
        validation = Validation(valid, Topology.of(train, ROWS), candidates)
    assert np.all(np.diff(validation.rows) > 0)
    expected = metrics(rank(JointEmbedding(ExactIndex(entities), relations, candidates), valid, train).both)
    assert measured(validation, entities, relations) == expected


@settings(max_examples=40)
@given(related_graphs(max_rows=12, max_triples=40), limits, st.integers(0, 99), st.integers(1, 14))
def test_with_evidence_it_equals_scoring_all_candidates_of_the_sample(
    random: RandomGraph, bounds: WalkLimits, seed: int, max_candidates: int
) -> None:
    rng = np.random.default_rng(seed)
    entities, relations = (rng.integers(-2, 3, (n, 3)).astype(np.float32) for n in (random.rows, random.relations))
    drawn = rng.integers(0, [random.rows, random.relations, random.rows], (8, 3))
    valid, train = (
        canonical(to_triples([tuple(line) for line in drawn.tolist()])),
        canonical(to_triples(random.triples)),
    )
    evidence = rounded(random.triples, random.rows, random.relations, bounds, seed)
    some = np.sort(rng.permutation(random.rows)[:max_candidates]).astype(ROW)
    known = set(random.triples)
    validation = Validation(valid, Topology.of(train, random.rows), some, evidence)
    alive = validation.rows[validation.candidates].tolist()
    assert alive == some.tolist()
    ranks = []
    for h, r, t in zip(*validation.triples, strict=True):
        head, tail = int(validation.rows[h]), int(validation.rows[t])
        for question, true in (((head, int(r), True), tail), ((tail, int(r), False), head)):
            scores = dense_scores((entities, relations), evidence, question)
            entity, kind, asks_tail = question
            answers = [row for row in range(random.rows)
                       if ((entity, kind, row) if asks_tail else (row, kind, entity)) in known]  # fmt: skip
            ranks.append(dense_rank(scores, true, answers, alive))
    assert len(ranks) == 2 * valid.count
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


def training_graph_of(valid: Triples) -> TrainingGraph:
    _, train, _ = graph()
    return graph_of_rows(to_list(train), ROWS + 5, RELATIONS, Sampling(1, 5, 1), valid=to_list(valid))


@settings(max_examples=30)
@given(st.integers(1, 60), st.integers(1, 40), st.integers(0, 9))
def test_a_sample_is_ranked_among_the_sampled_candidates(max_triples: int, max_candidates: int, stream: int) -> None:
    """Whatever was drawn: places inside stand for the rows outside, and known answers still do not compete."""
    made = training_graph_of(graph()[0])
    validation = Validation.of(made, made.valid, max_triples, max_candidates, stream=stream)
    drawn = to_list(validation.sampled)
    assert len(drawn) == len(set(drawn)) == min(max_triples, made.valid.count)
    assert set(drawn) <= set(to_list(made.valid))
    some = validation.rows[validation.candidates]
    assert len(set(some.tolist())) == some.shape[0] == min(max_candidates, made.entities.shape[0])
    assert set(some.tolist()) <= set(made.entities.tolist()), "only entities of the snapshot compete"
    entities, relations = vectors(stream)
    of_sample = JointEmbedding(ExactIndex(entities), relations, some)
    expected = metrics(rank(of_sample, to_triples(drawn), made.train).both)
    assert measured(validation, entities, relations) == expected


def test_a_sample_follows_from_the_stream() -> None:
    made = training_graph_of(graph()[0])
    one, same, other = (Validation.of(made, made.valid, 10, 8, stream=stream) for stream in (STREAM, STREAM, 9))
    assert to_list(one.sampled) == to_list(same.sampled) != to_list(other.sampled)
    assert np.array_equal(one.rows, same.rows)
    assert one.rows[one.candidates].tolist() != other.rows[other.candidates].tolist()


@settings(max_examples=60)
@given(st.sets(triples, min_size=12, max_size=40), st.data(), st.integers(1, 30))
def test_a_night_changes_no_more_of_the_sample_than_it_changes_of_validation(
    asked: set[Triple], data: st.DataObject, size: int
) -> None:
    """Also of the candidates: held-out triples bring entities alive."""
    added = data.draw(st.sets(triples, max_size=6)) - asked
    gone = data.draw(st.sets(st.sampled_from(sorted(asked)), max_size=6))
    before, after = (training_graph_of(canonical(to_triples(sorted(s)))) for s in (asked, (asked | added) - gone))
    one, two = (Validation.of(made, made.valid, size, size) for made in (before, after))
    sampled, now = set(to_list(one.sampled)), set(to_list(two.sampled))
    assert len(sampled - now) <= len(added) + len(gone)
    assert len(now - sampled) <= len(added) + len(gone)
    moved = set(before.entities.tolist()) ^ set(after.entities.tolist())
    competed, compete = (set(sample.rows[sample.candidates].tolist()) for sample in (one, two))
    assert len(competed ^ compete) <= 2 * len(moved)


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=40), st.integers(0, 45))
def test_bottom_k_are_the_smallest_in_their_order(hashes: list[int], k: int) -> None:
    kept = [hashes[at] for at in bottom_k(np.array(hashes, np.uint64), k)]
    smallest = set(sorted(hashes)[:k])
    assert kept == [value for value in hashes if value in smallest]


def test_only_the_vectors_that_it_asks_for_matter() -> None:
    made = training_graph_of(graph()[0])
    validation = Validation.of(made, made.valid, 3, 5)
    assert validation.rows.shape[0] <= 3 * 2 + 5
    entities, relations = vectors(1)
    before = measured(validation, entities, relations)
    others = np.setdiff1d(np.arange(ROWS), validation.rows)
    entities[others] = np.nan
    assert measured(validation, entities, relations) == before


def test_without_triples_nothing_is_measured_and_no_vector_needed() -> None:
    validation = Validation.of(training_graph_of(Triples.empty()), Triples.empty(), 10, 10)
    assert validation.rows.shape == (0,)
    assert validation.measure(np.empty((0, DIM), np.float32), np.empty((RELATIONS, DIM), np.float32)) == {}


@pytest.mark.parametrize("known", [Triples.empty(), canonical(to_triples([(0, 0, 1), (0, 0, 2), (2, 0, 1)]))])
def test_known_answers_do_not_compete(known: Triples) -> None:
    entities = np.array([[0.0], [5.0], [1.0], [3.0]], np.float32)
    relations = np.zeros((1, 1), np.float32)
    asked = to_triples([(0, 0, 3)])
    validation = Validation(asked, Topology.of(known, ROWS), np.arange(4, dtype=ROW))
    found = validation.measure(entities[validation.rows], relations)
    # From 0, tails 0 and 2 are nearer than 3, and 2 is known. To 3, heads 3 and 1 and 2 are nearer than 0.
    tail, head = (2 if known.count else 3), 4
    assert found["mr"] == (tail + head) / 2
