"""Who joins whom, whom walks start with, and what a candidate's own pairs say: of hubs as of all others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.evidence.lists import LINK_PRIOR, joined_by, sample_without
from dkge_dist.kernels.evidence.walks import LINK, SHARE
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW
from tests.evidence.building import every_pair, evidence_of, questions_of
from tests.reference_evidence import SlowEvidence
from tests.strategies import RandomGraph, digests, graphs, related_graphs, to_triples


@settings(max_examples=40)
@given(graphs())
def test_a_list_holds_a_row_under_a_relation(graph: RandomGraph) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    every = [(h, r, t) for h in range(graph.rows) for r in range(graph.relations) for t in range(graph.rows)]
    columns = (np.array(column, ROW) for column in zip(*every, strict=True))
    found = joined_by(topology.outgoing, *columns)
    assert found.tolist() == [triple in set(graph.triples) for triple in every]
    assert joined_by(topology.outgoing, *(np.empty(0, ROW),) * 3).shape == (0,)


@settings(max_examples=60)
@given(graph=graphs(), limit=st.integers(1, 5), seed=st.integers(0, 2**63 - 1))
def test_walks_start_with_the_first_neighbours_besides_the_candidate(graph: RandomGraph, limit: int, seed: int) -> None:
    evidence = evidence_of(graph.triples, graph.rows, graph.relations, WalkLimits(seed, limit, 40))
    slow = SlowEvidence.read(graph.triples, digests(graph.rows).tolist(), (seed, limit, 9, 9))
    for entity in range(graph.rows):
        for candidate in range(graph.rows):
            thin = evidence.graph.thin.neighbours
            found = sample_without(thin, evidence.digest, evidence.kernel_limits, entity, candidate)
            assert found.tolist() == slow.starts(entity, candidate)


@settings(max_examples=40)
@given(related_graphs(max_rows=10, max_triples=40))
def test_a_hub_says_what_it_would_say_if_it_were_none(graph: RandomGraph) -> None:
    """With one neighbour as the limit nearly all are hubs, with a hundred none is: what its pairs say is the same."""
    few, many = (
        evidence_of(graph.triples, graph.rows, graph.relations, WalkLimits(1, limit, 1000)) for limit in (1, 100)
    )
    one, other = (evidence.of_pairs(*every_pair(graph)) for evidence in (few, many))
    assert one[:, LINK].tobytes() == other[:, LINK].tobytes()
    linked = one[:, LINK] > 0
    assert one[linked, SHARE].tobytes() == other[linked, SHARE].tobytes()


def test_the_confidence_of_a_link_is_shrunk_towards_what_the_candidate_says() -> None:
    """Relation 0 joins four other pairs, three of which relation 1 joins too; of the candidate's own two, one."""
    triples = [(0, 0, 1), (2, 0, 3), (2, 1, 3), (4, 0, 5), (4, 1, 5), (6, 0, 1), (7, 0, 1), (7, 1, 1)]
    evidence = evidence_of(triples, 8, 2, WalkLimits(1, 9, 40))
    (found,) = evidence.of_pairs(questions_of([(0, 1, True)]), np.array([1]))
    assert found[LINK] == pytest.approx((1 + LINK_PRIOR * 3 / 4) / (2 + LINK_PRIOR))
    assert found[SHARE] == pytest.approx(1 / 3)
    # The same with its triple in train.
    evidence = evidence_of([*triples, (0, 1, 1)], 8, 2, WalkLimits(1, 9, 40))
    assert evidence.of_pairs(questions_of([(0, 1, True)]), np.array([1])).tolist() == [found.tolist()]


def test_a_symmetric_relation_links_by_its_reverse() -> None:
    """Two other pairs stand both ways, one only one way: 4 of 5 ordered pairs have their reverse."""
    both = [(1, 0, 2), (2, 0, 1), (3, 0, 4), (4, 0, 3), (5, 0, 6)]
    for more in ([], [(0, 0, 7)]):
        evidence = evidence_of([*both, (7, 0, 0), *more], 8, 1, WalkLimits(1, 9, 40))
        (found,) = evidence.of_pairs(questions_of([(0, 0, True)]), np.array([7]))
        assert found[LINK] == pytest.approx(4 / 5)
