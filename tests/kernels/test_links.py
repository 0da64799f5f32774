"""How many triples link a pair of entities, against counting them one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import links
from dkge_dist.kernels.triples import canonical
from tests import reference
from tests.strategies import Evolution, RandomGraph, evolutions, graphs, to_triples


def all_pairs(rows: int) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.divmod(np.arange(rows * rows), rows)
    return one, other


@given(graphs(max_rows=10))
def test_links_of_all_pairs_equal_counting(graph: RandomGraph) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    one, other = all_pairs(graph.rows)
    expected = [reference.links(graph.triples, int(a), int(b)) for a, b in zip(one, other, strict=True)]
    assert links(topology.outgoing, one, other).tolist() == expected


def test_both_directions_parallel_relations_and_loops() -> None:
    triples = [(0, 0, 1), (0, 2, 1), (1, 0, 0), (2, 0, 2), (2, 1, 2), (2, 0, 3)]
    topology = Topology.of(canonical(to_triples(triples)), 5)
    pairs = [(0, 1), (1, 0), (2, 2), (2, 3), (0, 0), (0, 2), (4, 4), (3, 4)]
    assert links(topology.outgoing, *np.array(pairs).T).tolist() == [3, 3, 2, 1, 0, 0, 0, 0]


@given(evolutions(max_rows=8), st.booleans())
def test_links_after_a_change_equal_counting(evolution: Evolution, twice: bool) -> None:
    """Over patched lists too, and patched back."""
    before, after = set(evolution.before.triples), set(evolution.after)
    added, deleted = (canonical(to_triples(sorted(side))) for side in (after - before, before - after))
    rows = evolution.before.rows
    topology, _ = Topology.of(canonical(to_triples(sorted(before))), rows).after(Change(added, deleted))
    now = after
    if twice:
        topology, _ = topology.after(Change(deleted, added))
        now = before
    one, other = all_pairs(rows)
    expected = [reference.links(now, int(a), int(b)) for a, b in zip(one, other, strict=True)]
    assert links(topology.outgoing, one, other).tolist() == expected
