"""Content checksums: of labels and splits alone, additive over changes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import EMPTY_CONTENT, content_after, content_of, hash_triples
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Split, Triples
from tests.graphs import Chain, Labelled, rows

triples = st.tuples(st.sampled_from("abcdef"), st.sampled_from("rs"), st.sampled_from("abcdef"))
sets = st.frozensets(triples, max_size=15)
few = settings(max_examples=50)


def names() -> tuple[Dictionary, Dictionary]:
    return Dictionary(noun="entity"), Dictionary(noun="relation")


@few
@given(st.lists(sets, min_size=1, max_size=5))
def test_content_depends_on_the_last_state_and_not_on_the_way_there(states: list[frozenset[Labelled]]) -> None:
    chain, direct = Chain(), Chain()
    for state in states:
        chain.full(sorted(state))
    direct.full(sorted(states[-1], reverse=True))
    assert chain.content == direct.content
    assert (chain.content == EMPTY_CONTENT) == (not states[-1])


@few
@given(sets, sets)
def test_sums_of_disjoint_sets_add_up(one: frozenset[Labelled], other: frozenset[Labelled]) -> None:
    known = names()
    parts = [canonical(rows(sorted(some), known)) for some in (one, other - one, one | other)]
    first, second, both = (content_of(part, Split.TRAIN, *known) for part in parts)
    assert np.array_equal(first + second, both)


@few
@given(st.sets(triples, min_size=1, max_size=15))
def test_hashes_are_of_labels_and_not_of_rows(given_triples: set[Labelled]) -> None:
    hashes = []
    for order in (sorted(given_triples), sorted(given_triples, reverse=True)):
        known = names()
        rows(order, known)
        found = hash_triples(rows(sorted(given_triples), known), 7, *known)
        hashes.append(found.tolist())
    assert hashes[0] == hashes[1]
    assert len(set(hashes[0])) == len(given_triples)


def test_splits_have_different_content() -> None:
    known = names()
    some = rows([("a", "r", "b")], known)
    contents = [content_of(some, split, *known).tolist() for split in Split]
    assert len({tuple(content) for content in contents}) == 3


def test_undone_change_restores_the_content() -> None:
    chain = Chain()
    chain.full([("a", "r", "b"), ("b", "r", "c")])
    diff = chain.full([("a", "r", "b"), ("c", "s", "d")]).diff
    back = content_after(chain.content, diff.inverted(), *chain.names)
    assert content_after(back, diff, *chain.names) == chain.content
    first = Chain()
    first.full([("b", "r", "c"), ("a", "r", "b")])
    assert back == first.content


def test_no_triples_have_no_content() -> None:
    assert content_of(Triples.empty(), Split.TEST, *names()).tolist() == [0, 0]
    assert EMPTY_CONTENT == "0" * 32
