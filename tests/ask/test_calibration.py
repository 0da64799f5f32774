"""Probabilities of scores: they are those of the scores' origin, shrunk where data are few, and never fall."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask.calibration import Calibration, corrupt, expected_error, fit_calibration
from dkge_dist.kernels.triples import canonical
from dkge_dist.settings import CalibrationSettings
from dkge_dist.types import Array, DkgeError, Triples
from tests.strategies import to_list, to_triples

CURVES = np.array([[1.0, 6.0], [1.5, 12.0], [0.8, 2.4]])
"""Slopes and offsets of three relations: their thresholds are at −6, −8 and −3."""


def drawn(count: int, seed: int) -> tuple[Array, Array, Array]:
    """(relation, score, is it true) of triples whose chances are those of `CURVES`."""
    rng = np.random.default_rng(seed)
    relation = rng.integers(0, 3, count)
    score = -CURVES[relation, 1] / CURVES[relation, 0] + rng.normal(0, 2, count)
    chance = 1 / (1 + np.exp(-(CURVES[relation, 0] * score + CURVES[relation, 1])))
    return relation, score, rng.random(count) < chance


def fitted(relation: Array, score: Array, true: Array, relations: int = 4) -> Calibration:
    found = fit_calibration(
        relation[true], score[true], relation[~true], score[~true], relations, CalibrationSettings()
    )
    assert found is not None
    return found


def test_probabilities_of_new_triples_are_right() -> None:
    """By relation: one curve for all of them would be off by a tenth and more."""
    calibration = fitted(*drawn(6000, 1))
    relation, score, true = drawn(6000, 2)
    for number in range(3):
        mine = relation == number
        chance = calibration.probability(relation[mine], score[mine])
        assert expected_error(chance, true[mine]) < 0.04
        assert ((score[mine] > calibration.threshold(relation[mine])) == (chance > 0.5)).all()
    assert calibration.threshold(np.arange(3)) == pytest.approx([-6, -8, -3], abs=0.4)
    together = calibration.probability(np.full(6000, 3), score)
    assert expected_error(together, true) > 0.05


def test_a_relation_of_few_triples_is_near_the_common_curve() -> None:
    relation, score, true = drawn(900, 3)
    few = np.setdiff1d(
        np.flatnonzero(relation == 2), [np.argmax((relation == 2) & is_true) for is_true in (true, ~true)]
    )
    kept = np.setdiff1d(np.arange(900), few)
    little, much = fitted(relation[kept], score[kept], true[kept]), fitted(relation, score, true)
    gaps = [abs(np.diff(one.threshold(np.array([2, 3])))[0]) for one in (little, much)]
    assert gaps[0] < gaps[1]
    assert np.array_equal(little.relation_R2[3], little.common_2), "of a relation that was not seen"
    assert np.array_equal(
        little.probability(np.array([77]), np.zeros(1)), little.probability(np.array([3]), np.zeros(1))
    )


@settings(max_examples=20)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 999), st.booleans())
def test_curves_rise_and_are_finite_whatever_the_scores(true: int, wrong: int, seed: int, separated: bool) -> None:
    rng = np.random.default_rng(seed)
    scores, others = rng.normal(50 if separated else -1, 1, true), rng.normal(0, 1, wrong)
    relation, corrupted = rng.integers(0, 3, true), rng.integers(0, 3, wrong)
    found = fit_calibration(relation, scores, corrupted, others, 3, CalibrationSettings())
    if found is None:
        assert not np.isin(relation, corrupted).any()
        return
    assert found.triples == np.isin(relation, corrupted).sum()
    ladder = np.linspace(-100, 100, 50)
    for number in range(4):
        chance = found.probability(np.full(50, number), ladder)
        assert np.isfinite(chance).all() and (np.diff(chance) >= 0).all()
        assert np.isfinite(found.threshold(np.array([number]))).all()
    again = fit_calibration(relation, scores, corrupted, others, 3, CalibrationSettings())
    assert again is not None and np.array_equal(again.relation_R2, found.relation_R2)


def test_nothing_to_compare() -> None:
    none = np.empty(0, int), np.empty(0)
    assert fit_calibration(*none, *none, 3, CalibrationSettings()) is None
    assert fit_calibration(np.array([1]), np.zeros(1), *none, 3, CalibrationSettings()) is None


@settings(max_examples=40)
@given(st.integers(0, 999))
def test_corrupted_triples_are_unknown_and_of_ends_that_the_relation_has(seed: int) -> None:
    rng = np.random.default_rng(seed)
    train, valid = (canonical(to_triples(rng.integers(0, [8, 3, 8], (n, 3)).tolist())) for n in (25, 10))
    known = canonical(Triples.concat([train, valid]))
    made, origin = corrupt(valid, train, known, np.random.default_rng(seed))
    listed, sides = set(to_list(known)), []
    for (head, relation, tail), number in zip(to_list(made), origin.tolist(), strict=True):
        true = to_list(valid)[number]
        assert (head, relation, tail) not in listed
        assert relation == true[1] and (head == true[0]) != (tail == true[2])
        sides.append((number, head == true[0]))
        column, end = (2, tail) if head == true[0] else (0, head)
        assert end in {triple[column] for triple in to_list(train) if triple[1] == relation}
    assert len(set(sides)) == len(sides), "one of each side"
    again, _ = corrupt(valid, train, known, np.random.default_rng(seed))
    assert to_list(again) == to_list(made)


def test_what_is_kept_comes_back_and_what_is_damaged_is_refused() -> None:
    calibration = fitted(*drawn(200, 1))
    arrays = calibration.to_arrays("x")
    back = Calibration.from_arrays(arrays, "x")
    assert back is not None and np.array_equal(back.relation_R2, calibration.relation_R2)
    assert (back.common_2.tolist(), back.triples, back.corrupted) == (
        calibration.common_2.tolist(), calibration.triples, calibration.corrupted,
    )  # fmt: skip
    assert Calibration.from_arrays(arrays, "y") is None
    for wrong in ({"x.curves": np.zeros((0, 2))}, {"x.counts": np.zeros(3)}, {"x.curves": np.full((4, 2), -1.0)},
                  {"x.curves": np.full((4, 2), np.nan)}, {"x.curves": np.ones(4)}):  # fmt: skip
        with pytest.raises(DkgeError, match="a calibration"):
            Calibration.from_arrays({**arrays, **wrong}, "x")
