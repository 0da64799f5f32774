"""The progress of a run, and when it is over: a metric that has not improved for some validations."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from dkge_dist.learn.loop import DivergedError, EarlyStopping, Progress, StoppedError
from dkge_dist.runtime import CollectiveError
from dkge_dist.types import DkgeError


def test_it_survives_json() -> None:
    progress = Progress(3, 17, 510, 0.1 + 0.2, 12.5, 1, {"hits@10": 1 / 3}, [{"epoch": 1, "loss": 0.7}])
    assert Progress(**json.loads(json.dumps(asdict(progress)))) == progress


@pytest.mark.parametrize("error", [StoppedError, DivergedError])
def test_all_workers_end_a_training_at_the_same_step(error: type[Exception]) -> None:
    """So that none of them waits for another; and a user sees a message without a traceback."""
    assert issubclass(error, CollectiveError)
    assert issubclass(error, DkgeError)


def test_a_larger_metric_is_better_and_an_equal_one_is_not() -> None:
    stopping = EarlyStopping("mrr", 3)
    assert stopping.improved({"mrr": 0.3, "hits@10": 0.1}, {"mrr": 0.2, "hits@10": 0.9})
    assert not stopping.improved({"mrr": 0.2}, {"mrr": 0.2})
    assert not stopping.improved({"mrr": 0.1}, {"mrr": 0.2})


def test_the_first_validation_is_the_best_so_far() -> None:
    assert EarlyStopping("mrr", 3).improved({"mrr": 0.0}, {})


def test_where_nothing_can_be_measured_the_newest_is_the_best() -> None:
    assert EarlyStopping("mrr", 3).improved({}, {})
    assert EarlyStopping("mrr", 3).improved({}, {"mrr": 0.5})


@pytest.mark.parametrize(("patience", "since", "over"), [(3, 2, False), (3, 3, True), (3, 4, True), (1, 0, False)])
def test_it_is_over_after_so_many_validations_without_a_better_one(patience: int, since: int, over: bool) -> None:
    assert EarlyStopping("mrr", patience).is_over(since) is over


def test_a_patience_of_zero_never_stops() -> None:
    assert not EarlyStopping("mrr", 0).is_over(10**9)
