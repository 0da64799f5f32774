"""Weights by side and relation, and those of relations that came later."""

from __future__ import annotations

import numpy as np

from dkge_dist.evidence.features import FEATURES
from dkge_dist.evidence.weights import NOWHERE, EvidenceWeights
from tests.evidence.building import weights_of


def test_by_side_and_relation_and_beyond_them_what_is_common() -> None:
    weights = weights_of(3)
    relation, asks_tail = np.array([0, 2, 3, 2, 9]), np.array([True, False, True, True, False])
    found = weights.of(relation, asks_tail)
    expected = [weights.relation_2RJ[0, 0], weights.relation_2RJ[1, 2], weights.common_2J[0],
                weights.relation_2RJ[0, 2], weights.common_2J[1]]  # fmt: skip
    assert np.array_equal(found, np.array(expected))
    assert weights.of(relation[:0], asks_tail[:0]).shape == (0, len(FEATURES))


def test_a_model_of_no_relations_has_the_common_ones() -> None:
    weights = weights_of(0)
    assert np.array_equal(weights.of(np.array([0, 5]), np.array([True, False])), weights.common_2J)


def test_zeros_count_nothing() -> None:
    zeros = EvidenceWeights.zeros(2)
    assert not zeros.of(np.array([0, 1, 2]), np.array([True, False, True])).any()
    assert zeros.scale == 1.0
    assert zeros.near == NOWHERE
