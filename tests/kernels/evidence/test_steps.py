"""The steps of walks by hand: company, similar answers, and how votes and shares are weighed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.kernels.evidence.steps import FIRST_SLOTS, MET, NEIGHBOUR_PRIOR, meet_nobody, place_of, slots_for
from dkge_dist.kernels.evidence.walks import COMPANY, SIMILAR
from tests.evidence.building import evidence_of, questions_of


def vote(neighbours: int) -> float:
    return 1 / math.sqrt(neighbours + NEIGHBOUR_PRIOR)


def test_company_is_what_those_who_share_a_neighbour_have() -> None:
    """0 – 1 – {2, 3}; both 2 and 3 have 4 under the relation, 3 has 5 too. 4 is asked for."""
    triples = [(0, 1, 1), (2, 1, 1), (1, 2, 3), (2, 0, 4), (3, 0, 4), (3, 0, 5), (3, 0, 3)]
    evidence = evidence_of(triples, 6, 3, WalkLimits(0, 9, 1000))
    found = evidence.of_pairs(questions_of([(0, 0, True)] * 6), np.arange(6))[:, COMPANY]
    by_two, by_three = vote(2) / (2 + NEIGHBOUR_PRIOR), vote(3) / (2 + NEIGHBOUR_PRIOR)
    assert found == pytest.approx([0, 0, 0, 0, by_two + by_three, by_three])


def test_similar_is_what_shares_a_neighbour_with_a_known_answer() -> None:
    """0 has the answer 1, which shares 2 with 3 and 4."""
    triples = [(0, 0, 1), (1, 1, 2), (3, 1, 2), (2, 2, 4)]
    evidence = evidence_of(triples, 5, 3, WalkLimits(0, 9, 1000))
    found = evidence.of_pairs(questions_of([(0, 0, True)] * 5), np.arange(5))[:, SIMILAR]
    assert found == pytest.approx([0, 0, 0, *[vote(2) / (2 + NEIGHBOUR_PRIOR)] * 2])


def test_a_known_answer_is_no_example_for_itself() -> None:
    """Without its triple 0 has no answer that 1 could be similar to."""
    evidence = evidence_of([(0, 0, 1), (1, 1, 2), (3, 1, 2)], 4, 2, WalkLimits(0, 9, 1000))
    assert not evidence.of_pairs(questions_of([(0, 0, True)]), np.array([1])).any()


def test_rare_walks_bring_no_candidate() -> None:
    """A hundred companions with an answer of their own each: of 20 walks none has its share."""
    triples = [(0, 1, 1)]
    for y in range(2, 102):
        triples += [(y, 1, 1), (y, 0, y + 100)]
    for bound, expected in ((80, 0), (1000, 100)):
        evidence = evidence_of(triples, 202, 2, WalkLimits(0, 200, bound))
        assert evidence.candidates(questions_of([(0, 0, True)])).rows.shape[0] == expected


def test_a_candidate_has_one_place() -> None:
    """Beyond the slots that are used at first, too, and again once all are forgotten."""
    asked = np.random.default_rng(0).integers(0, 1 << 30, 3 * FIRST_SLOTS)
    slots, used, room = slots_for(asked.shape[0]), np.zeros(1, np.int64), asked.shape[0]
    met = slots, used, np.empty(room, np.int64), np.full((room, MET), np.nan)
    for again in range(2):
        meet_nobody(met)
        count, places = 0, {}
        for row in asked[again:].tolist() * 2:
            at, count = place_of(met, count, row)
            assert at == places.setdefault(row, len(places))
        assert count == len(places) > FIRST_SLOTS
        assert met[2][:count].tolist() == list(places)
        assert not met[3][:count].any()
    meet_nobody(met)
    assert not slots.any()
