"""What jobs take and give."""

from __future__ import annotations

import pytest

from dkge_dist.jobs import report
from dkge_dist.jobs.report import FINE, CallbackMonitor, seconds_since
from dkge_dist.runtime import Monitor


def test_seconds_are_rounded_to_what_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.time, "monotonic", lambda: 101.23456789)
    assert seconds_since(100.0) == 1.235
    assert seconds_since(100.0, FINE) == 1.234568


def test_a_monitor_passes_on_what_a_caller_wants_to_know() -> None:
    heard: list[tuple[float, str]] = []
    answers = iter([False, True])
    monitor: Monitor = CallbackMonitor(lambda share, message: heard.append((share, message)), lambda: next(answers))
    monitor.progress(0.5, "half")
    monitor.epoch({"epoch": 1})
    assert heard == [(0.5, "half")]
    assert [monitor.should_stop(), monitor.should_stop()] == [False, True]


def test_a_monitor_without_callbacks_is_silent_and_never_stops() -> None:
    monitor = CallbackMonitor(None, None)
    monitor.progress(1.0, "done")
    assert monitor.should_stop() is False
