"""Snapshots: a base and the net diff since answer as plain sets do, after any number of changes."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Split
from tests.graph.test_diff import State, Triple, diff, entities, examples, made, relations, states
from tests.strategies import to_list, to_triples

ENTITIES, RELATIONS = 5, 3


def evolved(states: list[State]) -> Snapshot:
    """The last state, reached from the first by one change after the other."""
    train, valid, test = (made(split) for split in states[0])
    snapshot = Snapshot.full((train, valid, test), ENTITIES, RELATIONS)
    for old, new in itertools.pairwise(states):
        snapshot = snapshot.after(diff(old, new), ENTITIES, RELATIONS)
    return snapshot


def degrees(triples: list[Triple]) -> tuple[Counter[int], Counter[int]]:
    """How often every entity and every relation stands in some triples; a loop counts twice."""
    by_entity = Counter(row for head, _, tail in triples for row in (head, tail))
    return by_entity, Counter(relation for _, relation, _ in triples)


@examples
@given(states)
def test_triples_and_counts_equal_the_last_state(states: list[State]) -> None:
    snapshot = evolved(states)
    for split in Split:
        expected = to_list(made(states[-1][split]))
        assert to_list(snapshot.triples(split)) == expected
        assert to_list(snapshot.triples(split)) == expected
        assert snapshot.count(split) == len(expected)
    assert snapshot.triple_count == sum(map(len, states[-1]))


@examples
@given(states, st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 6)), max_size=30))
def test_contains_equals_set_membership(states: list[State], queries: list[Triple]) -> None:
    snapshot = evolved(states)
    for split in Split:
        asked = queries + sorted(states[0][split])
        assert snapshot.contains(split, to_triples(asked)).tolist() == [query in states[-1][split] for query in asked]


@examples
@given(states, st.permutations(range(ENTITIES)), st.permutations(range(RELATIONS)))
def test_degrees_of_rows_in_any_order(states: list[State], rows: list[int], kinds: list[int]) -> None:
    snapshot = evolved(states)
    train = degrees(sorted(states[-1][Split.TRAIN]))
    total = degrees([triple for split in states[-1] for triple in sorted(split)])
    for asked in (rows, rows[:2], []):
        found = snapshot.entity_degrees(np.array(asked, np.int32))
        assert found.train.tolist() == [train[0][row] for row in asked]
        assert found.total.tolist() == [total[0][row] for row in asked]
    for asked in (kinds, kinds[:1], []):
        found = snapshot.relation_degrees(np.array(asked, np.int32))
        assert found.train.tolist() == [train[1][row] for row in asked]
        assert found.total.tolist() == [total[1][row] for row in asked]


@examples
@given(states)
def test_objects_of_any_split_are_alive(states: list[State]) -> None:
    snapshot = evolved(states)
    assert set(np.flatnonzero(snapshot.entities_alive)) == entities(states[-1])
    assert set(np.flatnonzero(snapshot.relations_alive)) == relations(states[-1])
    assert snapshot.alive_entities.tolist() == sorted(entities(states[-1]))
    assert snapshot.alive_relations.tolist() == sorted(relations(states[-1]))


def test_degrees_by_search_equal_those_by_counting() -> None:
    """A small change in a large graph is searched, others are counted."""
    many = [(row, 0, row + 1) for row in range(2000)]
    base = Snapshot.full((canonical(to_triples(many)), to_triples([]), to_triples([])), 2001, 1)
    old: State = (frozenset(many), frozenset(), frozenset())
    new: State = (frozenset(many) - {(1998, 0, 1999)} | {(1999, 0, 5)}, frozenset(), frozenset())
    snapshot = base.after(diff(old, new), 2001, 1)
    asked = np.array([2000, 1999, 5, 0, 1998], np.int32)
    expected = degrees(sorted(new[Split.TRAIN]))[0]
    assert snapshot.entity_degrees(asked).train.tolist() == [expected[row] for row in asked.tolist()]
    others = np.array([2000, 6, 1997], np.int32)
    assert snapshot.entity_degrees(others).train.tolist() == [1, 2, 2]


def test_rows_newer_than_the_base() -> None:
    snapshot = Snapshot.full((to_triples([(0, 0, 1)]), to_triples([]), to_triples([])), 2, 1)
    old: State = (frozenset({(0, 0, 1)}), frozenset(), frozenset())
    new: State = (old[0] | {(7, 3, 1)}, frozenset(), frozenset())
    grown = snapshot.after(diff(old, new), 9, 4)
    assert np.flatnonzero(grown.entities_alive).tolist() == [0, 1, 7]
    assert grown.entities_alive.shape == (9,)
    assert np.flatnonzero(grown.relations_alive).tolist() == [0, 3]
    assert grown.entity_degrees(np.array([8, 7, 1], np.int32)).train.tolist() == [0, 1, 2]
    assert grown.relation_degrees(np.array([3, 2], np.int32)).total.tolist() == [1, 0]
