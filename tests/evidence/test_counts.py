"""Counts by relation and by path: those of plain sets, and after a change those counted from nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.kernels.evidence.counts import joint_code
from dkge_dist.kernels.evidence.paths import path_codes
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Triples
from tests.reference import together
from tests.reference_evidence import relation_counts
from tests.strategies import Evolution, RandomGraph, evolutions, related_graphs, to_triples


def assert_counts(counts: RelationCounts, triples: list[tuple[int, int, int]], relations: int) -> None:
    pairs, loops, joint = relation_counts(triples)
    assert counts.pairs.tolist() == [pairs[r] for r in range(relations)]
    assert counts.loops.tolist() == [loops[r] for r in range(relations)]
    expected = sorted((int(joint_code(*key)), n) for key, n in joint.items())
    assert list(zip(counts.codes.tolist(), counts.joint.tolist(), strict=True)) == expected


@settings(max_examples=60)
@given(related_graphs(max_rows=14, max_triples=50))
def test_counts_are_those_of_plain_sets(graph: RandomGraph) -> None:
    train = canonical(to_triples(graph.triples))
    topology = Topology.of(train, graph.rows)
    # One relation more than any triple has.
    assert_counts(RelationCounts.of(topology, train, graph.relations + 1), graph.triples, graph.relations + 1)


@settings(max_examples=60)
@given(evolutions())
def test_counts_after_a_change_are_those_counted_from_nothing(evolution: Evolution) -> None:
    """There, back, and there again with a relation more."""
    before, after = evolution
    old, new = (canonical(to_triples(list(triples))) for triples in (before.triples, after))
    topology = Topology.of(old, before.rows)
    counts = RelationCounts.of(topology, old, before.relations)
    for was, now, relations in ((old, new, before.relations), (new, old, before.relations), (old, new, 9)):
        change = Change.between(was, now)
        changed, _ = topology.after(change)
        counts = counts.after(topology, changed, change, relations)
        topology = changed
        assert_counts(counts, list(zip(*(column.tolist() for column in now), strict=True)), relations)
        rebuilt = RelationCounts.of(topology, now, relations)
        for name in ("pairs", "loops", "codes", "joint"):
            assert np.array_equal(getattr(counts, name), getattr(rebuilt, name)), name


def test_rows_beyond_the_base_of_the_lists_are_counted() -> None:
    topology = Topology.of(to_triples([(0, 0, 1)]), 2)
    change = Change(canonical(to_triples([(5, 0, 6), (5, 1, 6), (6, 1, 5)])), Triples.empty())
    grown, _ = topology.after(change)
    everything = [(0, 0, 1), (5, 0, 6), (5, 1, 6), (6, 1, 5)]
    assert_counts(RelationCounts.of(grown, canonical(to_triples(everything)), 2), everything, 2)


def test_a_graph_without_triples() -> None:
    counts = RelationCounts.of(Topology.of(Triples.empty(), 3), Triples.empty(), 2)
    assert_counts(counts, [], 2)


@settings(max_examples=60)
@given(related_graphs(max_rows=10, max_triples=40))
def test_paths_support_the_relations_of_the_pairs_that_they_join(graph: RandomGraph) -> None:
    train = canonical(to_triples(graph.triples))
    shares = PathShares.of(PathCounts.of(Topology.of(train, graph.rows), train, graph.relations))
    counts = {(left[0], *right): n for (left, right), n in together(graph.triples, 2).items()
              if len(left) == 1 and len(right) == 2}  # fmt: skip
    total: dict[tuple[int, ...], int] = {}
    for (_, *step), n in counts.items():
        total[tuple(step)] = total.get(tuple(step), 0) + n
    found = zip(shares.codes.tolist(), shares.support.tolist(), shares.total.tolist(), strict=True)
    expected = sorted(
        (int(path_codes(*(np.array([part]) for part in key))[0]), n, total[key[1:]]) for key, n in counts.items()
    )
    assert list(found) == expected
