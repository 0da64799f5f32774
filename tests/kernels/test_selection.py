"""Triples of some entities, all or a sample, against a scan of the graph."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.selection import triples_of
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.building import topology_of
from tests.reference import Triple
from tests.strategies import Evolution, RandomGraph, evolutions, graphs, to_list, to_triples

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


def test_no_rows_have_no_triples() -> None:
    topology = topology_of([(0, 0, 1)], 2)
    none = np.empty(0, ROW)
    assert triples_of(topology.outgoing, topology.incoming, none, 5, 1).count == 0
