"""Thinned lists: the neighbours of the smallest hashes, in every list of a row alike."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import list_of
from dkge_dist.kernels.evidence.thinning import find_cuts, is_kept, patched_rows, thin_lists, with_lists
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests.reference import neighbours
from tests.reference_evidence import bottom
from tests.strategies import RandomGraph, digests, graphs, to_triples


@settings(max_examples=60)
@given(graphs(), st.integers(1, 5), st.integers(0, 2**63 - 1))
def test_every_list_keeps_the_same_neighbours_and_all_loops(graph: RandomGraph, limit: int, seed: int) -> None:
    topology, digest = Topology.of(canonical(to_triples(graph.triples)), graph.rows), digests(graph.rows)
    simple, rows = neighbours(graph.triples), np.arange(graph.rows, dtype=ROW)
    cuts = find_cuts(topology.neighbours, digest, seed, limit, rows)
    for adjacency in (topology.outgoing, topology.incoming, topology.neighbours):
        lists = thin_lists(adjacency, digest, seed, rows, cuts)
        for row in rows.tolist():
            kept = {row, *bottom(digest.tolist(), seed, row, simple.get(row, set()), limit)}
            shift = 0 if adjacency is topology.neighbours else 32
            expected = [value for value in list_of(adjacency, row).tolist() if value >> shift in kept]
            assert lists.entries[lists.indptr[row] : lists.indptr[row + 1]].tolist() == expected


def test_lists_over_a_base_that_is_shared() -> None:
    """Row 0 anew, row 2 as another adjacency has it, all others as in the base."""
    topology = Topology.of(canonical(to_triples([(0, 0, t) for t in range(1, 6)] + [(2, 1, 3), (2, 1, 4)])), 6)
    digest, one = digests(6), np.array([0], ROW)
    cuts = find_cuts(topology.neighbours, digest, 7, 2, one)
    first = thin_lists(topology.neighbours, digest, 7, one, cuts)
    empty = np.empty(0, ROW)
    made = with_lists(topology.neighbours, (topology.neighbours, empty), one, first)
    assert patched_rows(made).tolist() == [0]
    two = np.array([2], ROW)
    cut = thin_lists(topology.neighbours, digest, 7, two, find_cuts(topology.neighbours, digest, 7, 1, two))
    again = with_lists(topology.neighbours, (made, one), two, cut)
    assert patched_rows(again).tolist() == [0, 2]
    assert list_of(again, 0).tolist() == bottom(digest.tolist(), 7, 0, range(1, 6), 2)
    assert list_of(again, 2).tolist() == bottom(digest.tolist(), 7, 2, [0, 3, 4], 1)
    assert list_of(again, 3).tolist() == [0, 2]
    assert again.entries is topology.neighbours.entries or np.shares_memory(again.entries, topology.neighbours.entries)


def test_among_equal_hashes_the_smaller_row_is_kept() -> None:
    assert is_kept(np.uint64(3), 9, np.uint64(4), 1)
    assert is_kept(np.uint64(4), 1, np.uint64(4), 1)
    assert not is_kept(np.uint64(4), 2, np.uint64(4), 1)
    assert not is_kept(np.uint64(5), 0, np.uint64(4), 1)


def test_no_rows_at_all() -> None:
    topology, none = Topology.of(to_triples([]), 3), np.empty(0, ROW)
    cuts = find_cuts(topology.neighbours, digests(3), 0, 2, none)
    lists = thin_lists(topology.outgoing, digests(3), 0, none, cuts)
    assert (lists.indptr.tolist(), lists.entries.shape) == ([0], (0,))
