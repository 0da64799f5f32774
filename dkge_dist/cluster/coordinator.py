"""An actor between the workers of a run and its driver: progress goes one way, the wish to stop the other."""

from __future__ import annotations

from typing import Any, NamedTuple


class RunNews(NamedTuple):
    """How far a run is, the epochs that ended since the last look, and its outcome once there is one."""

    share: float
    message: str
    epochs: list[dict[str, Any]]
    outcome: Any


class TrainCoordinator:
    """Holds what the first worker reports until the driver asks for it."""

    def __init__(self) -> None:
        self._stop = False
        self._share, self._message = 0.0, ""
        self._epochs: list[dict[str, Any]] = []
        self._outcome: Any = None

    def report(self, share: float, message: str) -> bool:
        """How much is done; is the run to stop?"""
        self._share, self._message = share, message
        return self._stop

    def report_epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over."""
        self._epochs.append(metrics)

    def finish(self, outcome: Any) -> None:
        """The run is over, with a result or an error. The first outcome counts."""
        if self._outcome is None:
            self._outcome = outcome

    def is_over(self) -> bool:
        """Is the run over?"""
        return self._outcome is not None

    def news(self, stop: bool) -> RunNews:
        """For the driver."""
        self._stop = self._stop or stop
        epochs, self._epochs = self._epochs, []
        return RunNews(self._share, self._message, epochs, self._outcome)
