"""Counted ranks, distances and known answers, against loops over all candidates."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.kernels.ranks import (
    TILE,
    FilteredCandidates,
    among_candidates,
    concatenated,
    count_closer,
    distances_between,
    distances_to_all,
    distances_to_rows,
    in_lists,
    known_answers,
    merge_filtered,
    positions_in,
    shared_lists,
)
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import OFFSET, ROW
from tests import reference
from tests.kernels.building import topology_of
from tests.strategies import Evolution, RandomGraph, evolutions, graphs, to_triples

seeds = st.integers(0, 2**32 - 1)


def filtered_of(lists: list[list[int]]) -> FilteredCandidates:
    indptr = np.cumsum([0, *(len(rows) for rows in lists)]).astype(OFFSET)
    return FilteredCandidates(indptr, np.array([row for rows in lists for row in rows], ROW))


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(1, 45), st.integers(1, 150), st.booleans(), seeds, st.data())
def test_counts_equal_a_scan_of_all_candidates(
    queries: int, dim: int, rows: int, coarse: bool, seed: int, data: st.DataObject
) -> None:
    """Coarse values have exact ties. Bounds are those of true rows, or anything."""
    rng = np.random.default_rng(seed)
    shape = (rows, dim)
    table = rng.integers(0, 3, shape).astype(np.float32) if coarse else rng.normal(size=shape).astype(np.float32)
    query = table[rng.integers(0, rows, queries)] + (1 if coarse else rng.normal(size=dim).astype(np.float32))
    candidates = sorted(data.draw(st.sets(st.integers(0, rows - 1), max_size=rows)))
    filtered = [sorted(set(rng.integers(0, rows, rng.integers(0, 6)).tolist())) for _ in range(queries)]
    bound = distances_between(query, table[rng.integers(0, rows, queries)])
    closer, equal = count_closer(query, bound, table, np.array(candidates, ROW), filtered_of(filtered))
    for q in range(0, queries, max(1, queries // 8)):
        expected = reference.count_closer(query[q], bound[q], table, candidates, filtered[q])
        assert (closer[q], equal[q]) == expected


@pytest.mark.parametrize("candidates", [1, TILE - 1, TILE, TILE + 1, 3 * TILE])
def test_candidates_around_the_size_of_a_tile(candidates: int) -> None:
    rng = np.random.default_rng(candidates)
    table = rng.normal(size=(4 * TILE, 24)).astype(np.float32)
    rows = np.sort(rng.permutation(4 * TILE)[:candidates]).astype(ROW)
    query = rng.normal(size=(3, 24)).astype(np.float32)
    bound = np.array([0.0, 25.0, np.inf], np.float32)
    closer, equal = count_closer(query, bound, table, rows, filtered_of([[], [], []]))
    assert closer[0] == equal[0] == 0
    assert closer[2] == candidates
    assert (closer[1], equal[1]) == reference.count_closer(query[1], bound[1], table, rows.tolist(), [])


@given(st.integers(0, 30), st.integers(1, 60), seeds)
def test_distances_are_summed_in_the_order_of_the_counts(queries: int, dim: int, seed: int) -> None:
    """To the bit: otherwise a candidate as close as the true one might count as closer."""
    one, other = np.random.default_rng(seed).normal(size=(2, queries, dim)).astype(np.float32)
    expected = [reference.sequential_l1(a, b) for a, b in zip(one, other, strict=True)]
    assert distances_between(one, other).tolist() == [float(value) for value in expected]


@given(st.lists(st.lists(st.integers(0, 19), max_size=6), max_size=8), st.integers(1, 40), seeds)
def test_distances_to_given_rows_are_those_of_the_counts(asked: list[list[int]], dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    query, table = (rng.normal(size=(count, dim)).astype(np.float32) for count in (len(asked), 20))
    indptr, rows = filtered_of(asked)
    found = distances_to_rows(query, table, indptr, rows)
    expected = [float(reference.sequential_l1(query[q], table[row])) for q, rows in enumerate(asked) for row in rows]
    assert found.tolist() == expected


@settings(max_examples=40)
@given(st.integers(0, 5), st.integers(1, 45), st.integers(1, 150), seeds, st.data())
def test_distances_to_all_candidates(queries: int, dim: int, rows: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    query, table = (rng.normal(size=(count, dim)).astype(np.float32) for count in (queries, rows))
    candidates = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=140, unique=True)), ROW)
    found = distances_to_all(query, table, candidates)
    expected = [[float(reference.sequential_l1(q, table[row])) for row in candidates] for q in query]
    assert found.tolist() == expected


@given(graphs(), st.data())
def test_known_answers_and_the_true_one_are_filtered(graph: RandomGraph, data: st.DataObject) -> None:
    row = st.integers(0, graph.rows - 1)
    asked = data.draw(st.lists(st.tuples(row, st.integers(0, graph.relations - 1), row), max_size=12))
    anchors, relations, true = np.array(asked, ROW).reshape(-1, 3).T
    found = known_answers(topology_of(graph.triples, graph.rows).outgoing, anchors, relations, true)
    for q, (anchor, relation, answer) in enumerate(asked):
        expected = {t for h, r, t in graph.triples if (h, r) == (anchor, relation)} | {answer}
        assert found.rows[found.indptr[q] : found.indptr[q + 1]].tolist() == sorted(expected)
    assert found.indptr[-1] == found.rows.shape[0]


@given(evolutions(max_rows=8))
def test_known_answers_of_patched_lists(night: Evolution) -> None:
    before, after = canonical(to_triples(night.before.triples)), canonical(to_triples(night.after))
    topology, _ = topology_of(night.before.triples, night.before.rows).after(Change.between(before, after))
    pairs = [(row, relation) for row in range(night.before.rows) for relation in range(night.before.relations)]
    anchors, relations = np.array(pairs, ROW).T
    found = known_answers(topology.incoming, anchors, relations, np.zeros(len(pairs), ROW))
    for q, (tail, relation) in enumerate(pairs):
        expected = {h for h, r, t in night.after if (r, t) == (relation, tail)} | {0}
        assert found.rows[found.indptr[q] : found.indptr[q + 1]].tolist() == sorted(expected)


lists_of_rows = st.lists(st.sets(st.integers(0, 12)), min_size=1, max_size=5)


@given(lists_of_rows, st.data())
def test_rows_are_found_among_those_of_their_own_query(here: list[set[int]], data: st.DataObject) -> None:
    asked = [data.draw(st.sets(st.integers(0, 14))) for _ in here]
    (indptr, rows), (asked_indptr, asked_rows) = (
        filtered_of([sorted(x) for x in here]),
        filtered_of([sorted(x) for x in asked]),
    )
    places = positions_in(indptr, rows, asked_indptr, asked_rows)
    flat = [(query, row) for query, some in enumerate(asked) for row in sorted(some)]
    stand = {(query, row): place for place, (query, row) in enumerate(
        (query, row) for query, some in enumerate(here) for row in sorted(some)
    )}  # fmt: skip
    assert places.tolist() == [stand.get(pair, -1) for pair in flat]
    found = in_lists(FilteredCandidates(indptr, rows), asked_indptr, asked_rows)
    assert found.tolist() == [pair in stand for pair in flat]


@given(lists_of_rows, st.data())
def test_both_lists_of_a_query_in_one(one: list[set[int]], data: st.DataObject) -> None:
    other = [data.draw(st.sets(st.integers(0, 14))) for _ in one]
    mine, theirs = (FilteredCandidates(*filtered_of([sorted(x) for x in some])) for some in (one, other))
    merged = merge_filtered(mine, *theirs)
    assert [merged.rows[merged.indptr[q] : merged.indptr[q + 1]].tolist() for q in range(len(one))] == [
        sorted(a | b) for a, b in zip(one, other, strict=True)
    ]
    assert merged.rows.dtype == ROW


@given(
    st.lists(st.sets(st.integers(0, 9), max_size=6), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 9)), max_size=12),
)
def test_shared_lists_hold_the_true_row_of_each_query(lists: list[set[int]], queries: list[tuple[int, int]]) -> None:
    queries = [(number % len(lists), true) for number, true in queries]
    number, true = (np.array(column, ROW) for column in (list(zip(*queries, strict=True)) or [(), ()]))
    found = shared_lists(filtered_of([sorted(some) for some in lists]), number, true)
    expected = [sorted(lists[some] | ({own} if own >= 0 else set())) for some, own in queries]
    assert [found.rows[a:b].tolist() for a, b in pairwise(found.indptr.tolist())] == expected


@given(st.lists(st.lists(st.sets(st.integers(0, 9), max_size=4), max_size=3), max_size=3))
def test_lists_one_after_the_other(parts: list[list[set[int]]]) -> None:
    found = concatenated([filtered_of([sorted(some) for some in part]) for part in parts])
    expected = [sorted(some) for part in parts for some in part]
    assert [found.rows[a:b].tolist() for a, b in pairwise(found.indptr.tolist())] == expected


@given(st.data(), st.integers(1, 30), st.integers(0, 5))
def test_filtered_candidates_by_place(data: st.DataObject, rows: int, lists: int) -> None:
    """Against plain loops; a list may be empty, and so may the candidates."""
    row = st.integers(0, rows - 1)
    asked = [sorted(data.draw(st.sets(row))) for _ in range(lists)]
    candidates = np.array(sorted(data.draw(st.sets(row))), ROW)
    found = among_candidates(filtered_of(asked), candidates)
    places = [found.rows[one:other].tolist() for one, other in pairwise(found.indptr.tolist())]
    assert places == [[candidates.tolist().index(r) for r in some if r in candidates.tolist()] for some in asked]
