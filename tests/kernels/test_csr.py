"""Neighbour lists, built, patched and searched, against dictionaries of sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.csr import Adjacency, incoming, joined, list_of, list_sizes, outgoing, patch, undirected
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.building import lists, topology_of
from tests.strategies import RandomGraph, graphs, to_triples

entries = st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 40), min_size=1), max_size=8)


@given(graphs())
def test_labelled_lists_hold_sorted_codes(graph: RandomGraph) -> None:
    train, distinct = canonical(to_triples(graph.triples)), set(graph.triples)
    out, into = outgoing(train, graph.rows), incoming(train, graph.rows)
    for row in range(graph.rows):
        assert lists(out, graph.rows)[row] == sorted((t << 32) | r for h, r, t in distinct if h == row)
        assert lists(into, graph.rows)[row] == sorted((h << 32) | r for h, r, t in distinct if t == row)
    simple = reference.neighbours(graph.triples)
    assert lists(undirected(out, into), graph.rows) == [sorted(simple.get(row, set())) for row in range(graph.rows)]


@given(graphs())
def test_list_sizes_of_all_rows_and_of_rows_beyond_the_base(graph: RandomGraph) -> None:
    topology = topology_of(graph.triples, graph.rows)
    sizes = list_sizes(topology.neighbours, np.arange(graph.rows + 3, dtype=ROW))
    simple = reference.neighbours(graph.triples)
    assert sizes.tolist() == [len(simple.get(row, set())) for row in range(graph.rows + 3)]


def flat(given: dict[int, set[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(rows, entries) of a patch, in no particular order."""
    pairs = sorted(((row, value) for row, values in given.items() for value in values), key=lambda pair: pair[1])
    rows, values = np.array(pairs, ROW).reshape(-1, 2).T
    return rows, values


@given(entries, st.lists(st.tuples(entries, entries), min_size=1, max_size=4))
def test_patches_add_and_remove_entries_patch_after_patch(
    base: dict[int, set[int]], patches: list[tuple[dict[int, set[int]], dict[int, set[int]]]]
) -> None:
    """The base has only the rows up to its last list; patches reach beyond them."""
    rows = max(base, default=-1) + 1
    indptr = np.cumsum([0, *(len(base.get(row, ())) for row in range(rows))])
    flattened = [value for row in range(rows) for value in sorted(base.get(row, ()))]
    adjacency = Adjacency.of(indptr, np.array(flattened, ROW))
    state = {row: set(values) for row, values in base.items()}
    for asked_removed, asked_added in patches:
        removed = {row: values & state.get(row, set()) for row, values in asked_removed.items()}
        added = {row: values - state.get(row, set()) for row, values in asked_added.items()}
        before, old = adjacency, lists(adjacency, 10)
        adjacency = patch(adjacency, flat(removed), flat(added))
        state = {row: state.get(row, set()) - removed.get(row, set()) | added.get(row, set()) for row in range(10)}
        assert lists(adjacency, 10) == [sorted(state[row]) for row in range(10)]
        assert lists(before, 10) == old
        assert [list_of(adjacency, row).tolist() for row in range(10)] == [sorted(state[row]) for row in range(10)]
        assert list_of(adjacency, 10).shape == (0,)


@given(graphs())
def test_joined_pairs_have_a_triple_in_either_direction(graph: RandomGraph) -> None:
    topology = topology_of(graph.triples, graph.rows)
    left, right = (side.ravel().astype(ROW) for side in np.indices((graph.rows + 1, graph.rows + 1)))
    pairs = {(h, t) for h, _, t in graph.triples}
    expected = [(a, b) in pairs or (b, a) in pairs for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert joined(topology.outgoing, left, right).tolist() == expected
