"""Walks of many questions in one call: each as alone, in order, and nothing is left of the one before."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.kernels.evidence.walks import COLUMNS, walk, weigh_pairs
from dkge_dist.types import ROW
from tests.evidence.building import every_question, evidence_of
from tests.strategies import RandomGraph


@pytest.fixture(scope="module")
def evidence() -> GraphEvidence:
    rng = np.random.default_rng(2)
    triples = [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [30, 3, 30], (200, 3))]
    return evidence_of([*triples, *((0, 1, t) for t in range(30))], 32, 3, WalkLimits(9, 4, 80))


@pytest.mark.parametrize("asks_tail", [True, False])
def test_questions_do_not_see_each_other(evidence: GraphEvidence, asks_tail: bool) -> None:
    asked = [(e, r) for e, r, side in every_question(RandomGraph(32, 3, [])) if side]
    order = np.random.default_rng(0).permutation(len(asked))
    entity, relation = (np.array(column, ROW)[order] for column in zip(*asked, strict=True))
    inputs = evidence._inputs(asks_tail)
    together = walk(inputs, entity, relation)
    assert together.values.shape == (together.rows.shape[0], COLUMNS)
    assert np.diff(together.indptr).max() > 10
    for number in range(0, len(asked), 5):
        part = slice(together.indptr[number], together.indptr[number + 1])
        alone = walk(inputs, entity[number : number + 1], relation[number : number + 1])
        assert alone.rows.tolist() == together.rows[part].tolist()
        assert alone.values.tobytes() == together.values[part].tobytes()
        count = alone.rows.shape[0]
        given = weigh_pairs(inputs, np.repeat(entity[number], count), np.repeat(relation[number], count), alone.rows)
        assert given.tobytes() == alone.values.tobytes()


def test_the_entity_itself_has_nothing(evidence: GraphEvidence) -> None:
    every = np.arange(32, dtype=ROW)
    assert not weigh_pairs(evidence._inputs(True), every, np.ones(32, ROW), every).any()
