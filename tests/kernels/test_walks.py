"""Common neighbours, and what lies near a changed edge."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical
from dkge_dist.kernels.walks import common_neighbours, near_both
from dkge_dist.types import ROW
from tests import reference
from tests.strategies import RandomGraph, graphs, to_triples


@given(graphs())
def test_common_neighbours_of_all_pairs(graph: RandomGraph) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
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
    topology = Topology.of(canonical(to_triples(triples)), 401)
    for pair in ((0, 400), (400, 0)):
        left, right = (np.array([end], ROW) for end in pair)
        _, found = common_neighbours(topology.neighbours, left, topology.neighbours, right)
        assert found.tolist() == [3, 77, 399]


@given(graphs(max_rows=10, max_triples=14), st.integers(1, 4))
def test_near_both_is_the_two_balls(graph: RandomGraph, hops: int) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    simple = reference.neighbours(graph.triples)
    edges = sorted({(min(a, b), max(a, b)) for a, near in simple.items() for b in near})

    def ball(row: int, radius: int) -> set[int]:
        out = {row}
        for _ in range(radius):
            out |= set().union(*(simple.get(v, set()) for v in out))
        return out

    expected: set[int] = set()
    for a, b in edges:
        expected |= ball(a, hops - 1) | ball(b, hops - 1) | (ball(a, hops) & ball(b, hops))
    left, right = np.array(edges, ROW).reshape(-1, 2).T
    assert near_both(topology.neighbours, left, right, hops).tolist() == sorted(expected)
