"""Common neighbours, rows and pairs near a changed edge, and triples of entities, against sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical
from dkge_dist.kernels.walks import common_neighbours, longer_walk_pairs, near_both, triples_of
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.building import topology_of
from tests.reference import Triple
from tests.strategies import Evolution, RandomGraph, evolutions, graphs, to_list, to_triples


@given(graphs())
def test_common_neighbours_of_all_pairs(graph: RandomGraph) -> None:
    topology = topology_of(graph.triples, graph.rows)
    left, right = (side.ravel().astype(ROW) for side in np.indices((graph.rows, graph.rows)))
    simple = reference.neighbours(graph.triples)
    which, found = common_neighbours(topology.neighbours, left, topology.neighbours, right)
    expected = [
        (p, n)
        for p, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True))
        for n in sorted(simple.get(a, set()) & simple.get(b, set()))
    ]
    assert list(zip(which.tolist(), found.tolist(), strict=True)) == expected
    which, found = common_neighbours(topology.outgoing, left, topology.incoming, right)
    steps = {(h, t) for h, _, t in graph.triples}
    expected = [
        (p, n)
        for p, (a, b) in enumerate(zip(left.tolist(), right.tolist(), strict=True))
        for n in range(graph.rows)
        if (a, n) in steps and (n, b) in steps
    ]
    assert list(zip(which.tolist(), found.tolist(), strict=True)) == expected


def test_common_neighbours_of_a_hub_are_searched() -> None:
    triples = [(0, 0, t) for t in range(1, 400)] + [(400, 0, t) for t in (3, 77, 399)]
    topology = topology_of(triples, 401)
    for pair in ((0, 400), (400, 0)):
        left, right = (np.array([end], ROW) for end in pair)
        _, found = common_neighbours(topology.neighbours, left, topology.neighbours, right)
        assert found.tolist() == [3, 77, 399]


@given(graphs(max_rows=10, max_triples=14), st.integers(1, 4))
def test_near_both_is_either_smaller_ball_or_both_larger_ones(graph: RandomGraph, hops: int) -> None:
    topology = topology_of(graph.triples, graph.rows)
    simple = reference.neighbours(graph.triples)
    edges = sorted({(min(a, b), max(a, b)) for a, near in simple.items() for b in near})
    expected: set[int] = set()
    for a, b in edges:
        near, far = ([reference.ball(simple, end, radius) for end in (a, b)] for radius in (hops - 1, hops))
        expected |= near[0] | near[1] | (far[0] & far[1])
    left, right = np.array(edges, ROW).reshape(-1, 2).T
    assert near_both(topology.neighbours, left, right, hops).tolist() == sorted(expected)


@given(graphs(max_rows=6, max_relations=2, max_triples=12), st.integers(3, 4), st.data())
def test_longer_walk_pairs_are_the_ends_of_walks_over_an_edge(
    graph: RandomGraph, length: int, data: st.DataObject
) -> None:
    """Only edges of the graph are asked for: a changed triple is in the graph before or after the change."""
    topology = topology_of(graph.triples, graph.rows)
    edges = sorted({(head, tail) for head, _, tail in graph.triples})
    chosen = data.draw(st.lists(st.sampled_from(edges), max_size=3)) if edges else []
    head, tail = np.array(chosen, ROW).reshape(-1, 2).T
    found = longer_walk_pairs(topology.outgoing, topology.incoming, head, tail, length)
    expected = set().union(*(reference.longer_walk_pairs(graph.triples, edge, length) for edge in chosen))
    assert {(int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in found} == expected


ALL = int(np.iinfo(np.int64).max)
limits = st.sampled_from([1, 2, 3, 5, ALL])
seeds = st.integers(0, 2**63 - 1)


def topology_after(evolution: Evolution) -> Topology:
    before, after = set(evolution.before.triples), set(evolution.after)
    added, deleted = (canonical(to_triples(sorted(side))) for side in (after - before, before - after))
    return topology_of(sorted(before), evolution.before.rows).after(Change(added, deleted))[0]


def some_rows(data: st.DataObject, rows: int) -> list[int]:
    return sorted(data.draw(st.sets(st.integers(0, rows - 1))))


def assert_triples(topology: Topology, triples: list[Triple], rows: list[int], limit: int, seed: int) -> None:
    found = to_list(triples_of(topology.outgoing, topology.incoming, np.array(rows, ROW), limit, seed))
    assert found == reference.triples_of(triples, rows, limit, seed)


@given(st.data(), graphs(), limits, seeds)
def test_triples_equal_the_reference(data: st.DataObject, graph: RandomGraph, limit: int, seed: int) -> None:
    rows = some_rows(data, graph.rows)
    assert_triples(topology_of(graph.triples, graph.rows), graph.triples, rows, limit, seed)


@given(st.data(), evolutions(), limits, seeds)
def test_triples_of_patched_lists(data: st.DataObject, evolution: Evolution, limit: int, seed: int) -> None:
    rows = some_rows(data, evolution.before.rows)
    assert_triples(topology_after(evolution), evolution.after, rows, limit, seed)


@pytest.mark.parametrize("limit", [1, 7, 100, 1999, 2000, 2001])
def test_a_hub_gives_different_triples_spread_over_its_list(limit: int) -> None:
    triples = [(0, 0, i) if i % 2 else (i, 1, 0) for i in range(1, 2001)]
    topology = topology_of(triples, 2001)
    hub = np.zeros(1, ROW)
    found = to_list(triples_of(topology.outgoing, topology.incoming, hub, limit, 3))
    assert len(found) == len(set(found)) == min(limit, 2000)
    assert set(found) <= set(triples)
    if limit >= 100:
        assert 0.4 < np.mean([head == 0 for head, _, _ in found]) < 0.6


def test_every_triple_of_a_hub_has_the_same_chance() -> None:
    triples = [(0, 0, i) for i in range(1, 11)]
    topology = topology_of(triples, 11)
    counts = np.zeros(11)
    for seed in range(2000):
        counts[triples_of(topology.outgoing, topology.incoming, np.zeros(1, ROW), 3, seed).tail] += 1
    assert counts[1:].sum() == 6000
    assert (np.abs(counts[1:] - 600) < 120).all()
