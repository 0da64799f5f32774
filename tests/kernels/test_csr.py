"""Neighbour lists, built and patched, against dictionaries of sets."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import Adjacency, joined, list_sizes
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests import reference
from tests.reference import Triple
from tests.strategies import RandomGraph, evolutions, graphs, to_triples


def lists(adjacency: Adjacency, rows: int) -> list[list[int]]:
    """All lists, read the slow way."""
    patched = {int(row): at for row, at in zip(adjacency.slot_row, adjacency.slot_list, strict=True) if row >= 0}
    out = []
    for row in range(rows):
        if row in patched:
            indptr, entries, at = adjacency.patch_indptr, adjacency.patch_entries, int(patched[row])
        elif row + 1 < len(adjacency.indptr):
            indptr, entries, at = adjacency.indptr, adjacency.entries, row
        else:
            out.append([])
            continue
        out.append(entries[indptr[at] : indptr[at + 1]].tolist())
    return out


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
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    assert_topology(topology, graph.triples, graph.rows)
    sizes = list_sizes(topology.neighbours, np.arange(graph.rows + 3, dtype=ROW))
    simple = reference.neighbours(graph.triples)
    assert sizes.tolist() == [len(simple.get(row, set())) for row in range(graph.rows + 3)]


@given(st.lists(evolutions(), min_size=1, max_size=4))
def test_patched_equals_rebuilt_night_after_night(nights: list) -> None:
    rows = max(night.before.rows for night in nights)
    state = nights[0].before.triples
    # The base knows only the rows of the first graph; later nights bring rows beyond it.
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


@given(graphs())
def test_joined_tells_of_either_direction(graph: RandomGraph) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    left, right = (side.ravel().astype(ROW) for side in np.indices((graph.rows + 1, graph.rows + 1)))
    pairs = {(h, t) for h, _, t in graph.triples}
    expected = [(a, b) in pairs or (b, a) in pairs for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert joined(topology.outgoing, left, right).tolist() == expected
