"""How often two relations join the same pair, against plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.evidence.counts import OPPOSITE, SAME, count_joint, joined_twice, joint_code, joint_count
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests.reference_evidence import relation_counts
from tests.strategies import RandomGraph, related_graphs, to_triples


@settings(max_examples=60)
@given(related_graphs(max_rows=12, max_triples=40))
def test_pairs_that_several_triples_join_and_their_relations(graph: RandomGraph) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    left, right = joined_twice(topology.outgoing, topology.incoming, 0, graph.rows)
    between: dict[tuple[int, int], int] = {}
    for head, _, tail in set(graph.triples):
        if head != tail:
            between[min(head, tail), max(head, tail)] = between.get((min(head, tail), max(head, tail)), 0) + 1
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == sorted(p for p, n in between.items() if n > 1)
    halves = [joined_twice(topology.outgoing, topology.incoming, *run) for run in ((0, 5), (5, graph.rows))]
    assert np.concatenate([part[0] for part in halves]).tolist() == left.tolist()
    codes, counts = count_joint(topology.outgoing, left, right)
    joint = relation_counts(graph.triples)[2]
    expected = {int(joint_code(*key)): n for key, n in joint.items()}
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == expected
    assert (np.diff(codes) > 0).all()


def test_many_relations_of_few_pairs() -> None:
    """The table that counts grows with them."""
    triples = [(0, r, 1) for r in range(40)] + [(1, r, 0) for r in range(20)] + [(2, r, 3) for r in range(0, 40, 3)]
    topology = Topology.of(canonical(to_triples(triples)), 4)
    codes, counts = count_joint(topology.outgoing, np.array([0, 2], ROW), np.array([1, 3], ROW))
    expected = {int(joint_code(*key)): n for key, n in relation_counts(triples)[2].items()}
    assert len(expected) > 2048
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == expected


def test_a_code_that_is_not_there_counts_nothing() -> None:
    codes = np.array([joint_code(1, 2, SAME), joint_code(1, 2, OPPOSITE), joint_code(3, 0, SAME)])
    counts = np.array([5, 6, 7])
    asked = [(1, 2, SAME), (1, 2, OPPOSITE), (3, 0, SAME), (0, 0, SAME), (2, 1, SAME), (9, 9, OPPOSITE)]
    assert [int(joint_count(codes, counts, joint_code(*key))) for key in asked] == [5, 6, 7, 0, 0, 0]
    assert joint_count(codes[:0], counts[:0], joint_code(1, 2, SAME)) == 0
