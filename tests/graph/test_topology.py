"""The three adjacencies of a train graph, built and patched, against dictionaries of sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical
from tests import reference
from tests.kernels.building import lists
from tests.reference import Triple
from tests.strategies import Evolution, RandomGraph, evolutions, graphs, to_triples


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


def test_topology_before_a_change_stays_as_it_was() -> None:
    triples = [(0, 0, 1), (1, 0, 2), (2, 1, 0)]
    before = Topology.of(canonical(to_triples(triples)), 3)
    added, deleted = canonical(to_triples([(0, 1, 2), (1, 0, 1)])), canonical(to_triples([(1, 0, 2)]))
    after, toggles = before.after(Change(added, deleted))
    assert_topology(before, triples, 3)
    assert_topology(after, [(0, 0, 1), (2, 1, 0), (0, 1, 2), (1, 0, 1)], 3)
    assert [side.tolist() for side in toggles.gone] == [[1], [2]]
    assert [side.tolist() for side in toggles.come] == [[], []], "a parallel triple and a loop toggle no edge"


def test_empty_graph_has_empty_lists() -> None:
    topology = Topology.of(canonical(to_triples([])), 2)
    assert_topology(topology, [], 2)
