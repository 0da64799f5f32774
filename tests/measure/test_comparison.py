"""What can be told from noise: intervals, weights of groups, and differences triple by triple."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask.ranks import Ranks, metrics
from dkge_dist.measure.comparison import RankedTriples, reciprocal_ranks
from dkge_dist.records import CONFIDENCE_99, MIN_SAMPLES, Estimate, weighted
from dkge_dist.types import DkgeError

values = st.lists(st.floats(0, 1), min_size=2, max_size=60).map(np.array)


def ranked(hashes: list[int], reciprocal: list[float], max_candidates: int = 100) -> RankedTriples:
    order = np.argsort(np.array(hashes, np.uint64))
    return RankedTriples(np.array(hashes, np.uint64)[order], np.array(reciprocal, np.float32)[order], max_candidates)


@given(values)
def test_an_interval_is_the_mean_and_its_standard_errors(found: np.ndarray) -> None:
    estimate = Estimate.of(found)
    error = np.std(found, ddof=1) / len(found) ** 0.5
    assert estimate.mean == pytest.approx(found.mean())
    assert (estimate.low + estimate.high) / 2 == pytest.approx(found.mean())
    assert estimate.high - estimate.low == pytest.approx(2 * CONFIDENCE_99 * error)
    assert estimate.has_enough_samples == (len(found) >= MIN_SAMPLES)


def test_one_value_is_as_uncertain_as_any_can_be() -> None:
    assert Estimate.of(np.array([0.3])) == (0.3, 0.5, 1)


def test_an_interval_holds_the_truth_99_times_of_100() -> None:
    rng = np.random.default_rng(0)
    found = [Estimate.of(rng.choice([1, 0.5, 0.1], 60)) for _ in range(2000)]
    held = np.mean([estimate.low < 1.6 / 3 < estimate.high for estimate in found])
    assert 0.975 < held < 0.998


@given(values, values, st.integers(1, 5), st.integers(1, 5))
def test_groups_that_were_sampled_alike_weigh_as_the_whole(
    one: np.ndarray, other: np.ndarray, times: int, others: int
) -> None:
    counts = [times * len(one), others * len(other)]
    found = weighted([Estimate.of(one), Estimate.of(other)], counts)
    assert found.mean == pytest.approx((times * one.sum() + others * other.sum()) / sum(counts))
    assert found.triples == len(one) + len(other)
    assert found.error <= max(Estimate.of(one).error, Estimate.of(other).error) + 1e-12


def test_means_that_were_measured_apart_are_both_uncertain() -> None:
    change = Estimate(0.5, 0.03, 40).minus(Estimate(0.6, 0.04, 90))
    assert change == pytest.approx((-0.1, 0.05, 40))


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(1, 99)), min_size=1, max_size=30))
def test_triples_count_once_and_their_mean_is_the_mrr(pairs: list[tuple[int, int]]) -> None:
    tail, head = np.array(pairs, float).T
    found = reciprocal_ranks(Ranks(tail, head))
    assert found.shape == (len(pairs),)
    assert found.mean() == pytest.approx(metrics(np.concatenate([tail, head]))["mrr"])


@settings(max_examples=60)
@given(st.dictionaries(st.integers(0, 30), st.floats(0.01, 1)), st.dictionaries(st.integers(0, 30), st.floats(0.01, 1)))
def test_models_are_compared_on_the_triples_that_both_ranked(before: dict[int, float], now: dict[int, float]) -> None:
    one, two = (ranked(list(some), list(some.values())) for some in (before, now))
    found = two.since(one)
    common = sorted(before.keys() & now.keys())
    if not common:
        assert found is None
        return
    assert found is not None
    assert found.before == pytest.approx(np.mean([before[key] for key in common]))
    assert found.now == pytest.approx(np.mean([now[key] for key in common]))
    expected = Estimate.of(np.array([now[key] - before[key] for key in common]))
    assert found.change == pytest.approx(expected, abs=1e-6)


def test_pairs_tell_what_means_alone_do_not() -> None:
    """Every triple fell a little: far less than triples differ among each other."""
    rng = np.random.default_rng(1)
    before = rng.uniform(0.1, 1, 100)
    now = before * rng.uniform(0.94, 0.98, 100)
    names = list(range(100))
    paired = ranked(names, list(now)).since(ranked(names, list(before)))
    assert paired is not None and paired.change.high < 0
    assert Estimate.of(now).minus(Estimate.of(before)).high > 0


def test_ranks_among_other_candidates_are_not_compared() -> None:
    assert ranked([1, 2], [0.5, 0.5]).since(ranked([1, 2], [0.5, 0.5], max_candidates=99)) is None


@given(st.dictionaries(st.integers(0, 2**64 - 1), st.floats(0.01, 1), max_size=9), st.integers(1, 10**6))
def test_what_is_kept_is_what_was_ranked(some: dict[int, float], limit: int) -> None:
    one = ranked(list(some), list(some.values()), limit)
    again = RankedTriples.from_arrays(one.to_arrays())
    assert np.array_equal(one.hashes, again.hashes)
    assert np.array_equal(one.reciprocal, again.reciprocal)
    assert again.max_candidates == limit


def test_ranks_are_kept_in_the_order_of_hashes() -> None:
    found = RankedTriples.of(np.array([7, 3], np.uint64), Ranks(np.array([1.0, 2.0]), np.array([1.0, 4.0])), 10)
    assert found.hashes.tolist() == [3, 7]
    assert found.reciprocal.tolist() == [0.375, 1.0]


@pytest.mark.parametrize("broken", [{"hashes": None}, {"max_candidates": None}, {"reciprocal": np.zeros(3)}])
def test_damaged_arrays_are_refused(broken: dict[str, np.ndarray | None]) -> None:
    arrays = {**ranked([1, 2], [0.5, 0.5]).to_arrays(), **broken}
    with pytest.raises(DkgeError, match="ranks of validation triples are damaged"):
        RankedTriples.from_arrays({name: array for name, array in arrays.items() if array is not None})
