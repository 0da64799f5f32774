"""Nights: exact sizes, new titles, few entities without triples, removed ones that return, answers that change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.sets import among, distinct
from dkge_dist.measure.fidelity import Replaced, night_triples
from dkge_dist.synthetic import PERSON, RELATIONS, EvolvingGraph, Night, SynthSpec
from dkge_dist.synthetic.casting import (
    REMOVABLE_DEGREE,
    REPLACED_SHARE,
    RETURN_SHARE,
    degrees,
    draw_additions,
    draw_base,
    draw_deletions,
    unpack,
)
from dkge_dist.synthetic.evolving import ABSENCE
from dkge_dist.synthetic.world import KNOWN_FOR, World, build_world
from dkge_dist.types import Array, Triples
from tests.synthetic.movies import DEMO, MEDIUM


def test_most_additions_come_with_new_titles() -> None:
    graph = EvolvingGraph(MEDIUM)
    known = graph.kinds.size
    night = graph.advance()
    new_titles = (night.added.head >= known) & (graph.kinds[night.added.head] != PERSON)
    new_people = (night.added.tail >= known) & (graph.kinds[night.added.tail] == PERSON)
    assert 0.55 < np.mean(new_titles) < 0.75
    assert np.unique(night.added.head[new_titles]).size > 100
    assert np.unique(night.added.tail[new_people]).size > 50


def test_deletions_leave_few_entities_without_triples() -> None:
    """Nearly all entities that vanish were removed on purpose: their triples are about the share of removals (20%)."""
    graph = EvolvingGraph(MEDIUM)
    for night in graph.nights():
        gone = ~graph.alive
        share = np.mean(gone[night.deleted.head] | gone[night.deleted.tail])
        assert 0.1 < share < 0.25


def test_some_of_the_removed_return_and_most_do_not() -> None:
    graph = EvolvingGraph(replace(MEDIUM, nights=8))
    alive = graph.alive.copy()
    vanished: dict[int, int] = {}
    absences: list[int] = []
    for _ in graph.nights():
        before = np.zeros(graph.alive.size, np.bool_)
        before[: alive.size] = alive
        alive = graph.alive.copy()
        absences += [graph.night - vanished[e] for e in np.flatnonzero(alive & ~before).tolist() if e in vanished]
        vanished |= dict.fromkeys(np.flatnonzero(before & ~alive).tolist(), graph.night)
    assert 0.05 * len(vanished) < len(absences) < 0.3 * len(vanished)
    assert set(absences) == {ABSENCE}, "no other removed entity gets a triple again"


def replaced_in(graph: EvolvingGraph, night: Night) -> Replaced:
    """What fidelity counts as replaced in the night that `graph` has just seen."""
    train, rows = graph.triples, graph.alive.size
    diff = Diff.of([Change(night.added, night.deleted), Change.none(), Change.none()])
    snapshot = Snapshot.full((train, Triples.empty(), Triples.empty()), rows, len(RELATIONS))
    return night_triples(diff, train, Topology.of(train, rows), snapshot, 0).replaced


@st.composite
def sizeable_nights(draw: st.DrawFn) -> SynthSpec:
    """At least 200 deletions, and a change of at most a twentieth of the graph, as those of the presets: in larger ones
    many an answer is replaced by accident."""
    entities = draw(st.integers(6_000, 15_000))
    triples = draw(st.integers(2 * entities, 4 * entities))
    deleted = draw(st.integers(200, triples // 60))
    added = draw(st.integers(deleted // 2, 2 * deleted))
    return SynthSpec(entities, triples, 2, added, deleted, draw(st.integers(0, 2**40)))


class TestReplacements:
    @settings(max_examples=25, deadline=None)
    @given(sizeable_nights())
    def test_a_tenth_of_the_deletions_makes_way_for_another_answer(self, spec: SynthSpec) -> None:
        graph = EvolvingGraph(spec)
        for night in graph.nights():
            assert 0.08 <= replaced_in(graph, night).new.count / spec.deleted <= 0.12

    def test_a_credit_goes_to_somebody_else(self) -> None:
        graph = EvolvingGraph(MEDIUM)
        found = replaced_in(graph, graph.advance())
        # What a person is known for changes by accident now and then.
        credits = found.take(found.asks_tail & (found.new.relation < KNOWN_FOR))
        new, old = credits.new, credits.old
        assert new.count >= round(MEDIUM.deleted * REPLACED_SHARE)
        assert np.unique(new.relation).size > 5
        assert (graph.kinds[new.tail] == PERSON).all() and (graph.kinds[old.tail] == PERSON).all()
        assert graph.alive[old.tail].all()

    @pytest.mark.parametrize("added", [0, 3])
    def test_no_more_are_replaced_than_are_added(self, added: int) -> None:
        graph = EvolvingGraph(replace(DEMO, added=added, deleted=200, nights=1))
        night = graph.advance()
        assert (night.added.count, night.deleted.count) == (added, 200)
        assert replaced_in(graph, night).new.count == added


@pytest.fixture
def base() -> tuple[World, Array]:
    rng = np.random.default_rng(7)
    world = build_world(rng, 3_000)
    return world, draw_base(rng, world, 7_500)


@pytest.mark.parametrize("count", [0, 1, 40, 1_800])
def test_deletions_are_exactly_as_many_keys_of_the_graph(base: tuple[World, Array], count: int) -> None:
    world, state = base
    deleted, returning, replaced = draw_deletions(np.random.default_rng(1), world, state, count)
    assert deleted.size == count
    assert among(state, deleted).all()
    assert np.array_equal(deleted, distinct(deleted))
    assert among(deleted, returning).all()
    assert among(deleted, replaced).all()
    assert replaced.size == round(count * REPLACED_SHARE)


def test_removed_entities_have_a_small_degree(base: tuple[World, Array]) -> None:
    world, state = base
    degree = degrees(state, world.kind.size)
    deleted, returning, _ = draw_deletions(np.random.default_rng(2), world, state, 400)
    remaining = np.setdiff1d(state, deleted)
    removed = np.flatnonzero((degree > 0) & (degrees(remaining, world.kind.size) == 0))
    assert removed.size > 0
    assert (degree[removed] <= REMOVABLE_DEGREE).all()
    head, _, tail = unpack(returning)
    back = np.intersect1d(removed, np.concatenate([head, tail]))
    assert 0 < back.size < 3 * RETURN_SHARE * removed.size


@pytest.mark.parametrize("count", [0, 1, 120, 1_800])
def test_additions_are_exactly_as_many_new_keys(base: tuple[World, Array], count: int) -> None:
    world, state = base
    rng = np.random.default_rng(3)
    deleted = draw_deletions(rng, world, state, 100)
    remaining = np.setdiff1d(state, deleted.keys)
    world.alive = degrees(remaining, world.kind.size) > 0
    added = draw_additions(rng, world, np.asarray(state), deleted, count, np.empty(0, np.int64))
    assert added.size == count
    assert not among(state, added).any(), "not even what was deleted tonight"
    head, _, tail = unpack(added)
    assert world.alive[head].all() and world.alive[tail].all()
    assert np.array_equal(added, distinct(added))
    assert deleted.returning.size > 0
