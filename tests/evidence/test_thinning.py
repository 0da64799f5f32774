"""The thinned graph: samples that depend on nothing but the set, and after a change those made from nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.thinning import ThinnedGraph
from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import list_of
from dkge_dist.kernels.triples import canonical
from tests.reference import Triple, neighbours
from tests.reference_evidence import bottom, hub_counts
from tests.strategies import Evolution, digests, evolutions, to_triples

SEED = 11


def assert_thinned(graph: ThinnedGraph, triples: list[Triple], rows: int, limit: int) -> None:
    """Every list of every row, and the counts of every hub."""
    digest, simple = digests(rows).tolist(), neighbours(triples)
    present = set(triples)
    for row in range(rows):
        kept = bottom(digest, SEED, row, simple.get(row, set()), limit)
        assert list_of(graph.thin.neighbours, row).tolist() == kept
        around = {*kept, row}
        out = sorted(t << 32 | r for h, r, t in present if h == row and t in around)
        into = sorted(h << 32 | r for h, r, t in present if t == row and h in around)
        assert list_of(graph.thin.outgoing, row).tolist() == out
        assert list_of(graph.thin.incoming, row).tolist() == into
        assert list_of(graph.full.neighbours, row).tolist() == sorted(simple.get(row, set()))
    hubs = [row for row in range(rows) if len(simple.get(row, set())) > limit]
    assert graph.hubs.rows.tolist() == hubs
    for place, hub in enumerate(hubs):
        part = slice(graph.hubs.indptr[place], graph.hubs.indptr[place + 1])
        found = zip(graph.hubs.codes[part].tolist(), graph.hubs.counts[part].tolist(), strict=True)
        assert list(found) == sorted((a << 32 | b, n) for (a, b), n in hub_counts(triples, hub).items())


@settings(max_examples=60)
@given(evolutions(), st.integers(1, 5))
def test_made_from_nothing_and_after_changes(evolution: Evolution, limit: int) -> None:
    """Hubs come and go; a graph made of lists that were patched before is the same, too."""
    before, after = evolution
    digest = digests(before.rows)
    old, new = (canonical(to_triples(list(triples))) for triples in (before.triples, after))
    graph = ThinnedGraph.of(Topology.of(old, before.rows), digest, SEED, limit)
    assert_thinned(graph, before.triples, before.rows, limit)
    for was, now, triples in ((old, new, after), (new, old, before.triples), (old, new, after)):
        change = Change.between(was, now)
        topology, _ = graph.full.after(change)
        graph = graph.after(topology, change, digest)
        assert_thinned(graph, triples, before.rows, limit)
        assert_thinned(ThinnedGraph.of(topology, digest, SEED, limit), triples, before.rows, limit)


def test_what_no_hub_has_is_shared() -> None:
    topology = Topology.of(canonical(to_triples([(0, 0, t) for t in range(1, 9)])), 9)
    graph = ThinnedGraph.of(topology, digests(9), SEED, 3)
    assert np.shares_memory(graph.thin.outgoing.entries, topology.outgoing.entries)
    assert graph.thin.outgoing.patch_entries.shape == (3,)
