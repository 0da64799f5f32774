"""Diffs as values (composed, inverted and applied) against Python sets; content checksums, additive over changes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import EMPTY_CONTENT, Change, Diff, content_after, hash_triples
from dkge_dist.kernels.triples import apply_change, canonical
from dkge_dist.types import Split, Triples
from tests.graphs import Chain, Labelled, rows
from tests.strategies import to_list, to_triples

Triple = tuple[int, int, int]
State = tuple[frozenset[Triple], frozenset[Triple], frozenset[Triple]]

triples = st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4))
sets = st.frozensets(triples, max_size=14)
states = st.lists(st.tuples(sets, sets, sets), min_size=2, max_size=5)

# One example is several snapshots.
examples = settings(max_examples=50)


def made(state: frozenset[Triple]) -> Triples:
    return canonical(to_triples(sorted(state)))


def pair(change: Change) -> tuple[set[Triple], set[Triple]]:
    """As sets; both sides have to be canonical, and no triple in both."""
    for side in (change.added, change.deleted):
        assert to_list(side) == to_list(canonical(side))
    added, deleted = set(to_list(change.added)), set(to_list(change.deleted))
    assert not added & deleted
    return added, deleted


def entities(state: State) -> set[int]:
    return {row for split in state for head, _, tail in split for row in (head, tail)}


def relations(state: State) -> set[int]:
    return {relation for split in state for _, relation, _ in split}


def diff(old: State, new: State) -> Diff:
    changes = [Change.between(made(a), made(b)) for a, b in zip(old, new, strict=True)]
    groups = []
    for objects in (entities, relations):
        groups += [objects(new) - objects(old), objects(old) - objects(new)]
    return Diff.of(changes, *(np.array(sorted(group), np.int32) for group in groups))


def plain(value: Diff) -> list[Any]:
    groups = (value.emerging_entities, value.removed_entities, value.emerging_relations, value.removed_relations)
    for group in groups:
        assert group.tolist() == sorted(set(group.tolist()))
    return [*(pair(change) for change in value.splits), *(group.tolist() for group in groups)]


@given(sets, sets)
def test_applied_change_gives_the_new_set(old: frozenset[Triple], new: frozenset[Triple]) -> None:
    change = Change.between(made(old), made(new))
    assert to_list(apply_change(made(old), change.added, change.deleted)) == to_list(made(new))
    back = change.inverted()
    assert to_list(apply_change(made(new), back.added, back.deleted)) == to_list(made(old))


@examples
@given(states)
def test_composed_diffs_are_the_diff_from_first_to_last(states: list[State]) -> None:
    net = Diff.none()
    for old, new in itertools.pairwise(states):
        net = net.then(diff(old, new))
    assert plain(net) == plain(diff(states[0], states[-1]))


@examples
@given(states)
def test_composition_is_associative(states: list[State]) -> None:
    steps = [diff(old, new) for old, new in itertools.pairwise(states)]
    backwards = Diff.none()
    for step in reversed(steps):
        backwards = step.then(backwards)
    assert plain(backwards) == plain(diff(states[0], states[-1]))


@examples
@given(states)
def test_diff_and_its_inverse_cancel(states: list[State]) -> None:
    there = diff(states[0], states[1])
    assert plain(there.inverted()) == plain(diff(states[1], states[0]))
    nothing = there.then(there.inverted())
    assert nothing.is_empty
    assert plain(nothing) == plain(Diff.none())


@examples
@given(states)
def test_counts_are_the_sizes(states: list[State]) -> None:
    old, new = states[:2]
    expected = {
        "emerging_entities": len(entities(new) - entities(old)),
        "removed_entities": len(entities(old) - entities(new)),
        "emerging_relations": len(relations(new) - relations(old)),
        "removed_relations": len(relations(old) - relations(new)),
    }
    for split, suffix in ((Split.TRAIN, ""), (Split.VALID, "_valid"), (Split.TEST, "_test")):
        if split is Split.TRAIN or old[split] != new[split]:
            expected[f"added{suffix}"] = len(new[split] - old[split])
            expected[f"deleted{suffix}"] = len(old[split] - new[split])
    assert diff(old, new).counts() == expected


named_triples = st.tuples(st.sampled_from("abcdef"), st.sampled_from("rs"), st.sampled_from("abcdef"))
named_sets = st.frozensets(named_triples, max_size=15)
examples = settings(max_examples=50)


def names() -> tuple[Dictionary, Dictionary]:
    return Dictionary(noun="entity"), Dictionary(noun="relation")


@examples
@given(st.lists(named_sets, min_size=1, max_size=5))
def test_content_depends_on_the_last_state_and_not_on_the_way_there(states: list[frozenset[Labelled]]) -> None:
    chain, direct = Chain(), Chain()
    for state in states:
        chain.full(sorted(state))
    direct.full(sorted(states[-1], reverse=True))
    assert chain.content == direct.content
    assert (chain.content == EMPTY_CONTENT) == (not states[-1])


@examples
@given(st.sets(named_triples, min_size=1, max_size=15))
def test_hashes_are_of_labels_and_not_of_rows(given_triples: set[Labelled]) -> None:
    hashes = []
    for order in (sorted(given_triples), sorted(given_triples, reverse=True)):
        known = names()
        rows(order, known)
        found = hash_triples(rows(sorted(given_triples), known), 7, *known)
        hashes.append(found.tolist())
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == len(given_triples)


def test_undone_change_restores_the_content() -> None:
    chain = Chain()
    chain.full([("a", "r", "b"), ("b", "r", "c")])
    diff = chain.full([("a", "r", "b"), ("c", "s", "d")]).diff
    back = content_after(chain.content, diff.inverted(), *chain.names)
    assert content_after(back, diff, *chain.names) == chain.content
    first = Chain()
    first.full([("b", "r", "c"), ("a", "r", "b")])
    assert back == first.content
