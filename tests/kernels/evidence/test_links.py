"""Linked candidates: the most reliable ones where they are many, and the same ones for a given candidate."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.kernels.evidence.walks import LINK
from tests.evidence.building import evidence_of, questions_of
from tests.reference_evidence import SlowEvidence
from tests.strategies import digests


def hub(links: int) -> list[tuple[int, int, int]]:
    """Entity 0 is joined to many by relation 1, and to every third of them by relation 2 too, which says more."""
    triples = [(0, 1, t) for t in range(1, links + 1)] + [(0, 2, t) for t in range(1, links + 1, 3)]
    # Elsewhere relation 0 goes along with relation 2 always, with relation 1 half of the time.
    at = links + 1
    for pair in range(at, at + 20, 2):
        triples += [(pair, 1, pair + 1), (pair, 0, pair + 1), (pair, 2, pair + 1)]
    return triples


@settings(max_examples=20)
@given(st.integers(8, 60), st.integers(2, 12), st.integers(0, 2**63 - 1))
def test_of_many_the_most_reliable_then_those_of_the_smallest_hashes(links: int, each: int, seed: int) -> None:
    triples, rows = hub(links), links + 21
    evidence = evidence_of(triples, rows, 3, WalkLimits(seed, 3, 4 * each))
    slow = SlowEvidence.read(triples, digests(rows).tolist(), (seed, 3, each, each - 1))
    found = evidence.candidates(questions_of([(0, 0, True)]))
    chosen = set(found.rows[found.values[:, LINK] > 0].tolist())
    assert chosen == set(slow.first_links(0, 0))
    assert len(chosen) == min(each, links)
    by_two = set(range(1, links + 1, 3))
    assert by_two <= chosen or chosen <= by_two
    alone = evidence.of_pairs(questions_of([(0, 0, True)] * links), np.arange(1, links + 1))
    assert {row for row, value in enumerate(alone[:, LINK], 1) if value > 0} == chosen


def test_a_relation_that_never_goes_along_is_no_link() -> None:
    evidence = evidence_of([(0, 1, 1), (2, 0, 3), (3, 1, 4)], 5, 2, WalkLimits(0, 3, 40))
    assert evidence.of_pairs(questions_of([(0, 0, True)]), np.array([1]))[0, LINK] == 0
    assert evidence.candidates(questions_of([(0, 0, True)])).rows.shape == (0,)


def test_a_loop_is_no_link_and_no_candidate() -> None:
    """Relation 1 goes along with relation 0, but from 0 it leads to 0 alone."""
    evidence = evidence_of([(0, 1, 0), (1, 0, 2), (1, 1, 2)], 3, 2, WalkLimits(0, 3, 40))
    assert evidence.candidates(questions_of([(0, 0, True), (0, 0, False)])).rows.shape == (0,)
