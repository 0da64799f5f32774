"""What the coordinator of a run keeps for its driver, without Ray."""

from __future__ import annotations

from dkge_dist.cluster.coordinator import RunNews, TrainCoordinator


def test_epochs_are_told_once() -> None:
    coordinator = TrainCoordinator()
    coordinator.report(0.1, "epoch 1")
    coordinator.report_epoch({"epoch": 1})
    coordinator.report_epoch({"epoch": 2})
    assert coordinator.news(False) == RunNews(0.1, "epoch 1", [{"epoch": 1}, {"epoch": 2}], None)
    assert coordinator.news(False).epochs == []
    coordinator.report(0.2, "epoch 3")
    assert coordinator.news(False) == RunNews(0.2, "epoch 3", [], None)


def test_wish_to_stop_stays() -> None:
    coordinator = TrainCoordinator()
    assert coordinator.report(0.1, "epoch 1") is False
    coordinator.news(True)
    assert coordinator.report(0.2, "epoch 3") is True
    coordinator.news(False)
    assert coordinator.report(0.3, "") is True


def test_first_outcome_counts() -> None:
    """The error that ended a run is not replaced by what its ending leads to."""
    coordinator = TrainCoordinator()
    assert not coordinator.is_over()
    coordinator.finish("the first")
    coordinator.finish("the second")
    assert coordinator.is_over()
    assert coordinator.news(False).outcome == "the first"
