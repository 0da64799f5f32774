"""What the pairs of hubs say, against plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.evidence.hubs import count_hubs, hub_count, hub_place
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests.reference_evidence import hub_counts
from tests.strategies import RandomGraph, related_graphs, to_triples


@settings(max_examples=60)
@given(related_graphs(max_rows=10, max_triples=40))
def test_counts_of_every_second_row(graph: RandomGraph) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    rows = np.arange(0, graph.rows, 2, dtype=ROW)
    hubs = count_hubs(topology.outgoing, topology.incoming, rows)
    for place, row in enumerate(rows.tolist()):
        part = slice(hubs.indptr[place], hubs.indptr[place + 1])
        expected = {one << 32 | other: n for (one, other), n in hub_counts(graph.triples, row).items()}
        assert dict(zip(hubs.codes[part].tolist(), hubs.counts[part].tolist(), strict=True)) == expected
        assert (np.diff(hubs.codes[part]) > 0).all()


def test_looking_up_a_hub_and_its_counts() -> None:
    """Two relations lead to hub 1 from 0 and from 3; one leads away to 3. Its loop does not count."""
    triples = [(0, 0, 1), (0, 2, 1), (3, 0, 1), (3, 2, 1), (1, 2, 3), (1, 0, 1), (4, 0, 1)]
    topology = Topology.of(canonical(to_triples(triples)), 6)
    hubs = count_hubs(topology.outgoing, topology.incoming, np.array([1, 5], ROW))
    assert [int(hub_place(hubs, row)) for row in (0, 1, 2, 5, 6)] == [-1, 0, -1, 1, -1]
    to_0, to_2, away_2 = 0 << 1, 2 << 1, 2 << 1 | 1
    asked = [(to_0, to_0), (to_2, to_2), (to_0, to_2), (to_2, to_0), (to_2, away_2), (away_2, away_2), (1, 1)]
    assert [int(hub_count(hubs, 0, *pair)) for pair in asked] == [3, 2, 2, 2, 1, 1, 0]
    assert hub_count(hubs, 1, to_0, to_0) == 0
