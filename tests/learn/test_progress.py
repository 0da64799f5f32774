"""The progress in checkpoints: its names stay, so that trainings of older programs go on."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from dkge_dist.learn.progress import DivergedError, StoppedError, TrainProgress
from dkge_dist.runtime import CollectiveError
from dkge_dist.types import DkgeError


def test_the_names_in_checkpoints() -> None:
    assert set(asdict(TrainProgress())) == {
        "epoch", "batch", "epoch_loss", "seconds", "evaluations_since_best", "best", "history",
    }  # fmt: skip


def test_it_survives_json() -> None:
    progress = TrainProgress(3, 17, 0.1 + 0.2, 12.5, 1, {"hits@10": 1 / 3}, [{"epoch": 1, "loss": 0.7}])
    assert TrainProgress(**json.loads(json.dumps(asdict(progress)))) == progress


def test_histories_are_not_shared() -> None:
    assert TrainProgress().history is not TrainProgress().history


@pytest.mark.parametrize("error", [StoppedError, DivergedError])
def test_all_workers_end_a_training_at_the_same_step(error: type[Exception]) -> None:
    """So that none of them waits for another; and a user sees a message without a traceback."""
    assert issubclass(error, CollectiveError)
    assert issubclass(error, DkgeError)
