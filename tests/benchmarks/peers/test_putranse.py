"""puTransE on small graphs: walks, energies by hand, and what a change does to the spaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers.putranse import PuTransE, Ranges, Space, Walks
from benchmarks.peers.ranking import filters_of, measure_held_out, rank_scores
from dkge_dist.ask.ranks import metrics
from dkge_dist.kernels.triples import canonical, contains
from dkge_dist.types import ROW, Triples
from tests.benchmarks.peers.graphs import graph_with, teams, triples_of

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = Ranges(triples=(60, 120), epochs=(80, 120))


def test_walks_stay_in_the_component_and_find_all_of_it() -> None:
    chain = triples_of([(0, 0, 1), (2, 0, 1), (2, 0, 3), (4, 0, 5)])
    walks = Walks(chain, 6)
    found = chain.take(walks.sample(np.array([0]), 10, np.random.default_rng(0)))
    assert set(found.head.tolist() + found.tail.tolist()) == {0, 1, 2, 3}, "either way along an edge, and no further"
    assert found.count == 3


def test_a_sample_has_its_size_and_its_start() -> None:
    train, _ = teams()
    start = np.array([3, 17])
    found = Walks(train, 200).sample(start, 20, np.random.default_rng(1))
    assert found.shape == (20,)
    assert (np.diff(found) > 0).all()
    assert np.isin(start, found).all()


def by_hand(spaces: list[Space], head: int, relation: int, tail: int) -> float:
    """The slow twin: the best energy, one space after the other."""
    best = -np.inf
    for space in spaces:
        e, r = space.entities.tolist(), space.relations.tolist()
        if head in e and tail in e and relation in r:
            difference = space.entity_ND[e.index(head)] + space.relation_MD[r.index(relation)]
            energy = np.linalg.norm(difference - space.entity_ND[e.index(tail)], ord=space.norm)
            best = max(best, -float(energy))
    return best


@pytest.mark.parametrize("asks_tail", [True, False])
def test_scores_are_the_best_energy_over_spaces(asks_tail: bool) -> None:
    train, _ = teams(4, 5)
    system = PuTransE(6, 4, 0, Ranges((10, 20), (1, 2)))
    graph = graph_with(train)
    # Not every row is a candidate: the places of scores are those of the candidates.
    graph = graph._replace(candidates=graph.candidates[1:])
    system.fit(graph, 60)
    assert {space.norm for space in system.spaces} == {1, 2}, "both norms are compared"
    entity, relation = np.array([5, 9, 20], ROW), np.array([0, 1, 2], ROW)
    found = system.scores(entity, relation, asks_tail)
    for q in range(3):
        for c, candidate in enumerate(graph.candidates.tolist()):
            ends = (int(entity[q]), candidate) if asks_tail else (candidate, int(entity[q]))
            assert found[q, c] == pytest.approx(by_hand(system.spaces, ends[0], int(relation[q]), ends[1]), rel=1e-4)


def test_towns_follow_from_teams() -> None:
    train, held_out = teams()
    graph = graph_with(train, held_out)
    system = PuTransE(30, 20, 0, SMALL)
    report = system.fit(graph, 120)
    assert report.facts == {"spaces": 30, "learnt": 30, "wanted": 30}
    ranks = rank_scores(system, graph, held_out, {"": filters_of(graph, held_out, "paper")})[""]
    assert metrics(ranks.tail)["hits@3"] > 0.8, "of 120 candidates"
    assert measure_held_out(system, graph, held_out)["leaked"] == 0


def test_a_change_drops_what_is_wrong_and_learns_what_is_new() -> None:
    train, _ = teams(30, 8)
    graph = graph_with(train)
    system = PuTransE(40, 20, 1, Ranges((30, 60), (80, 120)))
    system.fit(graph, 120)
    before = list(system.spaces)
    gone = train.take(np.array([5, 100]))
    newcomer = graph.entity_rows
    new = triples_of([(newcomer, 0, 3), (newcomer, 1, 33), (newcomer + 1, 0, 3)])
    later = graph_with(canonical(Triples.concat([train.take(~contains(gone, train)), new])))
    report = system.update(graph, later, 120)
    hurt = [space for space in before if contains(space.triples, gone).any()]
    kept = [space for space in before if not contains(space.triples, gone).any()]
    assert report.facts["dropped"] == len(hurt)
    assert 0 < len(hurt) < len(before)
    assert all(mine is theirs for mine, theirs in zip(system.spaces, kept, strict=False)), "others are untouched"
    for space in system.spaces:
        assert not contains(space.triples, gone).any()
        assert contains(later.train, space.triples).all()
    assert contains(canonical(Triples.concat([space.triples for space in system.spaces])), new).all()
    ranks = rank_scores(system, later, new, {"": filters_of(later, new, "paper")})[""]
    assert metrics(ranks.tail)["mrr"] > 0.5, "newcomers are known now"


def test_without_additions_new_spaces_begin_anywhere() -> None:
    train, _ = teams(6, 5)
    graph = graph_with(train)
    system = PuTransE(8, 4, 0, Ranges((20, 40), (1, 2)))
    system.fit(graph, 60)
    less = graph_with(train.take(np.arange(1, train.count)), entities=graph.entity_rows)
    system.update(graph, less, 60)
    assert len(system.spaces) == 8


def test_what_is_saved_scores_as_before(tmp_path: Path) -> None:
    train, _ = teams(4, 5)
    system = PuTransE(5, 4, 0, Ranges((10, 20), (1, 2)))
    system.fit(graph_with(train), 60)
    system.save(tmp_path / "spaces.npz")
    other = PuTransE()
    other.load(tmp_path / "spaces.npz")
    asked = (train.head[:7], train.relation[:7], True)
    np.testing.assert_array_equal(other.scores(*asked), system.scores(*asked))


def test_a_budget_of_nothing_still_gives_a_group() -> None:
    train, _ = teams(4, 5)
    system = PuTransE(500, 4, 0, Ranges((10, 20), (1, 1)))
    report = system.fit(graph_with(train), 0.0)
    assert (report.stopped_by, report.facts["spaces"]) == ("budget", 64)
