"""Sorted triples behave as sets of tuples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels import triples as kernels
from dkge_dist.types import ROW, Triples
from tests import reference
from tests.reference import Triple
from tests.strategies import RandomGraph, graphs, to_list, to_triples

row = st.integers(0, 12)
triple_lists = st.lists(st.tuples(row, st.integers(0, 3), row), max_size=80)
# Rows far apart make the same few triples take the way of comparisons instead of counting.
sparse_lists = st.lists(st.tuples(st.integers(0, 2**31 - 2), st.integers(0, 2**31 - 2), st.integers(0, 2**31 - 2)))


@given(st.one_of(triple_lists, sparse_lists))
def test_canonical_is_sorted_and_distinct(triples: list[Triple]) -> None:
    assert to_list(kernels.canonical(to_triples(triples))) == reference.canonical(triples)


def test_canonical_sorts_long_lists_of_one_head() -> None:
    rng = np.random.default_rng(1)
    triples = [(3, int(r), int(t)) for r, t in rng.integers(0, 40, (2000, 2))]
    assert to_list(kernels.canonical(to_triples(triples))) == reference.canonical(triples)


@given(triple_lists, triple_lists)
def test_contains_differences_minus_union(one: list[Triple], other: list[Triple]) -> None:
    a, b = kernels.canonical(to_triples(one)), kernels.canonical(to_triples(other))
    assert kernels.contains(a, to_triples(other)).tolist() == [triple in set(one) for triple in other]
    deleted, added = kernels.differences(a, b)
    assert to_list(deleted) == reference.canonical(set(one) - set(other))
    assert to_list(added) == reference.canonical(set(other) - set(one))
    assert to_list(kernels.minus(a, b)) == reference.canonical(set(one) - set(other))
    assert to_list(kernels.union(a, b)) == reference.canonical(set(one) | set(other))


@given(triple_lists, triple_lists)
def test_applying_the_differences_leads_from_one_to_the_other(one: list[Triple], other: list[Triple]) -> None:
    a, b = kernels.canonical(to_triples(one)), kernels.canonical(to_triples(other))
    deleted, added = kernels.differences(a, b)
    assert to_list(kernels.apply_change(a, added, deleted)) == to_list(b)


@given(triple_lists)
def test_positions_point_at_the_triple(triples: list[Triple]) -> None:
    sorted_triples = kernels.canonical(to_triples(triples))
    found = kernels.positions(sorted_triples, to_triples(triples))
    assert to_list(sorted_triples.take(found)) == triples


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99))))
def test_group_is_a_stable_sort_by_row(pairs: list[tuple[int, int]]) -> None:
    rows, codes = np.array(pairs, np.int64).reshape(-1, 2).T
    indptr, grouped = kernels.group(rows, codes, 10)
    for wanted in range(10):
        assert grouped[indptr[wanted] : indptr[wanted + 1]].tolist() == [c for r, c in pairs if r == wanted]


@pytest.mark.parametrize("count", [0, 5, (1 << 20) + 5])
def test_distinct_rows_counts_or_compares(count: int) -> None:
    values = np.random.default_rng(0).integers(0, 1000, count).astype(ROW)
    assert kernels.distinct_rows(values).tolist() == sorted(set(values.tolist()))


def test_empty_sets() -> None:
    nothing = Triples.empty()
    assert kernels.canonical(nothing).count == 0
    assert kernels.differences(nothing, nothing)[0].count == 0
    assert kernels.apply_change(nothing, nothing, nothing).count == 0


@given(triple_lists, st.integers(0, 13), st.integers(0, 4))
def test_the_first_unsound_triple_is_found(triples: list[Triple], entities: int, relations: int) -> None:
    for some in (triples, reference.canonical(triples)):
        expected = reference.first_unsound(some, entities, relations)
        assert kernels.first_unsound(to_triples(some), entities, relations) == expected
    assert kernels.first_unsound(to_triples(reference.canonical(triples)), 13, 4) == -1
    assert kernels.first_unsound(to_triples([(-1, 0, 0)]), 13, 4) == 0


@given(graphs(max_rows=8, max_triples=24), st.integers(0, 20))
def test_every_object_keeps_a_triple(graph: RandomGraph, count: int) -> None:
    triples = to_triples(graph.triples)
    entities = np.bincount(triples.head, minlength=graph.rows) + np.bincount(triples.tail, minlength=graph.rows)
    relations = np.bincount(triples.relation, minlength=graph.relations)
    found = kernels.removable_triples(triples.head, triples.relation, triples.tail, entities, relations, count)
    assert found.tolist() == reference.removable_triples(graph.triples, count)
    left = [triple for i, triple in enumerate(graph.triples) if i not in set(found.tolist())]
    assert {e for h, _, t in left for e in (h, t)} == {e for h, _, t in graph.triples for e in (h, t)}
    assert {r for _, r, _ in left} == {r for _, r, _ in graph.triples}
