"""The adjacencies and the relation paths of a train graph, built and patched, against slow twins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import PathCounts, Topology, touched_pairs
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import DkgeError
from tests import reference
from tests.kernels.building import decoded, lists
from tests.reference import Path, Triple
from tests.strategies import Evolution, RandomGraph, digests, evolutions, graphs, to_triples


def assert_topology(topology: Topology, triples: list[Triple], rows: int) -> None:
    graph = reference.neighbours(triples)
    distinct = set(triples)
    assert lists(topology.neighbours, rows) == [sorted(graph.get(row, set())) for row in range(rows)]
    for row in range(rows):
        out = sorted((t << 32) | r for h, r, t in distinct if h == row)
        into = sorted((h << 32) | r for h, r, t in distinct if t == row)
        assert lists(topology.outgoing, rows)[row] == out
        assert lists(topology.incoming, rows)[row] == into


@given(graphs())
def test_topology_of_a_graph(graph: RandomGraph) -> None:
    train = canonical(to_triples(graph.triples))
    assert_topology(Topology.of(train, graph.rows), graph.triples, graph.rows)
    assert_topology(Topology.of_few(train), graph.triples, graph.rows)


@given(st.lists(evolutions(), min_size=1, max_size=4))
def test_patched_equals_rebuilt_night_after_night(nights: list[Evolution]) -> None:
    rows = max(night.before.rows for night in nights)
    state = nights[0].before.triples
    # The base has only the rows of the first graph; later nights have rows beyond it.
    topology = Topology.of(canonical(to_triples(state)), nights[0].before.rows)
    for night in nights:
        change = Change.between(canonical(to_triples(state)), canonical(to_triples(night.after)))
        before = topology
        topology, toggles = before.after(change)
        assert_topology(before, state, rows)
        assert_topology(topology, night.after, rows)
        old, new = (
            {(a, b) for a, near in reference.neighbours(side).items() for b in near if a < b}
            for side in (state, night.after)
        )
        assert set(zip(*(side.tolist() for side in toggles.come), strict=True)) == new - old
        assert set(zip(*(side.tolist() for side in toggles.gone), strict=True)) == old - new
        state = night.after


def as_counter(counts: PathCounts) -> Counter[tuple[Path, Path]]:
    keys = [
        (decoded(int(a), counts.bits), decoded(int(b), counts.bits))
        for a, b in zip(counts.left, counts.right, strict=True)
    ]
    assert len(set(keys)) == len(keys)
    return Counter(dict(zip(keys, counts.count.tolist(), strict=True)))


def count(triples: list[Triple], rows: int, relations: int, length: int) -> tuple[Topology, PathCounts]:
    train = canonical(to_triples(triples))
    topology = Topology.of(train, rows)
    return topology, PathCounts.of(topology, train, relations, length)


small = graphs(max_rows=8, max_relations=3, max_triples=20)


@given(small, st.integers(1, 4))
def test_counts_equal_the_reference(graph: RandomGraph, length: int) -> None:
    _, counts = count(graph.triples, graph.rows, graph.relations, length)
    assert as_counter(counts) == reference.together(graph.triples, length)


@given(evolutions(max_rows=8, max_relations=3, max_triples=20), st.integers(1, 4))
def test_updated_counts_equal_counting_again(night: Evolution, length: int) -> None:
    graph, after = night
    before, counts = count(graph.triples, graph.rows, graph.relations, length)
    change = Change.between(canonical(to_triples(graph.triples)), canonical(to_triples(after)))
    now, _ = before.after(change)
    updated, toggled = counts.after(before, now, change, graph.relations)
    old, new = reference.together(graph.triples, length), reference.together(after, length)
    assert as_counter(updated) == new
    expected = {a for a, b in (set(old) ^ set(new))}
    assert {decoded(int(path), counts.bits) for path in toggled} == expected


@given(small, st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**63 - 1))
def test_relation_contexts_equal_the_reference(graph: RandomGraph, length: int, cap: int, seed: int) -> None:
    _, counts = count(graph.triples, graph.rows, graph.relations, length)
    digest = digests(graph.relations)
    contexts = counts.contexts(digest, Sampling(seed, cap, 1), np.arange(graph.relations))
    table = reference.together(graph.triples, length)
    for relation in range(graph.relations):
        vertices, edges = reference.relation_context(table, digest, seed, cap, relation)
        size = contexts.size[relation]
        found = [decoded(int(code), counts.bits) for code in contexts.vertices[relation, :size]]
        joined = {
            (found[i], found[j])
            for i in range(size)
            for j in range(size)
            if int(contexts.mask[relation, i, j >> 6]) >> (j & 63) & 1
        }
        assert found == vertices
        assert joined == edges


def test_walks_over_hubs_are_searched() -> None:
    """One end has a hundred times the other's neighbours: the long list is searched, with the same result."""
    triples = [(0, 0, t) for t in range(2, 300)] + [(5, 1, 1), (250, 2, 1), (0, 1, 1)]
    _, counts = count(triples, 300, 3, 2)
    assert as_counter(counts) == reference.together(triples, 2)


def test_too_many_relations_for_the_path_length_are_refused() -> None:
    train = canonical(to_triples([(0, 0, 1)]))
    with pytest.raises(DkgeError, match="path_length=4 allows 32,766 relations, the graph has 60,000"):
        PathCounts.of(Topology.of(train, 2), train, 60_000, 4)


@given(evolutions(max_rows=8, max_relations=3, max_triples=20), st.integers(1, 3))
def test_touched_pairs_are_all_whose_paths_changed(night: Evolution, length: int) -> None:
    """Pairs whose paths stayed the same may be among them."""
    old, new = (reference.path_sets(triples, length) for triples in (night.before.triples, night.after))
    before, after = (
        Topology.of(canonical(to_triples(triples)), night.before.rows)
        for triples in (night.before.triples, night.after)
    )
    change = Change.between(canonical(to_triples(night.before.triples)), canonical(to_triples(night.after)))
    packed = [touched_pairs(before, change.deleted, length), touched_pairs(after, change.added, length)]
    found = {(int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in np.concatenate(packed)}
    changed = {pair for pair in old.keys() | new.keys() if old.get(pair) != new.get(pair)}
    assert changed <= found


def test_relations_with_a_path_are_itself_and_its_partners() -> None:
    """0 -r0-> 1 -r1-> 2 and 0 -r2-> 2: the path (r0, r1) is a vertex of the context of r2."""
    _, counts = count([(0, 0, 1), (1, 1, 2), (0, 2, 2), (3, 3, 4)], 5, 4, 2)
    path = (0 + 1) | ((1 + 1) << counts.bits)
    assert counts.relations_with(np.array([path])).tolist() == [2]
    assert counts.relations_with(np.array([3 + 1])).tolist() == [3]


@given(small, st.integers(1, 4))
def test_kept_counts_are_read_as_they_were(graph: RandomGraph, length: int) -> None:
    _, counts = count(graph.triples, graph.rows, graph.relations, length)
    kept = counts.to_arrays()
    again = PathCounts.from_arrays(kept, length, graph.relations)
    assert again is not None and as_counter(again) == as_counter(counts)
    assert again.bits == counts.bits
    assert PathCounts.from_arrays(kept, length % 4 + 1, graph.relations) is None
