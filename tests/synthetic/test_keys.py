"""Sets of triples as sorted integers, against Python sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.synthetic.keys import collect, contains, count_before, distinct, pack, questions, union, unpack

keys = st.lists(st.integers(-(2**62), 2**62), max_size=40)
triples = st.lists(st.tuples(st.integers(0, 2**28 - 1), st.integers(0, 13), st.integers(0, 2**28 - 1)))


@given(triples)
def test_pack_round_trips_and_sorts_canonically(triples: list[tuple[int, int, int]]) -> None:
    head, relation, tail = np.array(triples, np.int64).reshape(-1, 3).T
    keys = pack(head, relation, tail)
    assert list(zip(*(column.tolist() for column in unpack(keys)), strict=True)) == triples
    in_order = [triples[i] for i in np.argsort(keys, kind="stable")]
    assert in_order == sorted(triples, key=lambda triple: (triple[0], triple[2], triple[1]))


@given(triples)
def test_questions_are_triples_without_their_tails(triples: list[tuple[int, int, int]]) -> None:
    head, relation, tail = np.array(triples, np.int64).reshape(-1, 3).T
    assert questions(pack(head, relation, tail)).tolist() == pack(head, relation, np.zeros_like(tail)).tolist()


@given(st.lists(st.integers(0, 5)))
def test_count_before_counts_equal_elements(groups: list[int]) -> None:
    expected = [groups[:i].count(group) for i, group in enumerate(groups)]
    assert count_before(np.array(groups, np.int64)).tolist() == expected


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_contains_equals_set_membership(keys: list[int], wanted: list[int]) -> None:
    found = contains(np.array(sorted(keys), np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [key in keys for key in wanted]


def test_collect_fails_when_there_are_not_enough() -> None:
    rng = np.random.default_rng(0)
    taken = np.arange(5)
    draw = lambda count: rng.integers(0, 20, count)  # noqa: E731
    assert collect(rng, 15, draw, taken).tolist() == list(range(5, 20))
    with pytest.raises(ValueError, match="only 15 of 16"):
        collect(rng, 16, draw, taken)


@given(keys, keys)
def test_union_is_sorted_and_distinct(one: list[int], other: list[int]) -> None:
    assert distinct(np.array(one, np.int64)).tolist() == sorted(set(one))
    assert union(np.array(one, np.int64), np.array(other, np.int64)).tolist() == sorted({*one, *other})
