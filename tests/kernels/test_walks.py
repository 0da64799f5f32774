"""Common neighbours, and rows and pairs near a changed edge, against sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.walks import common_neighbours, longer_walk_pairs, near_both
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.building import topology_of
from tests.strategies import RandomGraph, graphs


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
