"""Structured logs: a line of JSON for every event, with the id of its run. Several processes may write to one file."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dkge_dist.jobs.report import CallbackMonitor, ProgressCallback, StopCallback
from dkge_dist.types import DkgeError, UsageError


class EventLog:
    """Events of one run, appended to a file; each line by one write, so that lines never mix."""

    def __init__(self, path: Path, what: str, run: str | None = None) -> None:
        self.run = run or secrets.token_hex(8)
        self._what = what
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None

    def write(self, event: str, **facts: Any) -> None:
        """An event with what is to be said of it."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "run": self.run, "command": self._what, "event": event, **facts}
        try:
            os.write(self._file, json.dumps(line, default=str).encode("ascii") + b"\n")
        except OSError:
            # A full disk must not end a night that is nearly learnt.
            return

    def close(self) -> None:
        """No more events."""
        os.close(self._file)


@contextmanager
def event_log(path: Path | None, what: str) -> Iterator[EventLog | None]:
    """The log of a run, if one is wanted: how it began and how it ended are events too."""
    if path is None:
        yield None
        return
    log = EventLog(path, what)
    try:
        log.write("started")
        yield log
    except BaseException as error:
        log.write("failed", error=str(error) if isinstance(error, DkgeError) else type(error).__name__)
        raise
    finally:
        log.close()


class LoggingMonitor(CallbackMonitor):
    """A monitor that also writes what it hears to a log: steps that begin, and epochs."""

    def __init__(self, progress: ProgressCallback | None, stop: StopCallback | None, log: EventLog | None) -> None:
        super().__init__(progress, stop)
        self._log = log
        self._said = ""

    def progress(self, share: float, message: str) -> None:
        """How much is done."""
        super().progress(share, message)
        # A step tells its progress many times; numbers in it are no other step.
        step = "".join(letter for letter in message if not letter.isdigit())
        if self._log is not None and step != self._said:
            self._said = step
            self._log.write("progress", share=round(share, 4), message=message)

    def epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over."""
        super().epoch(metrics)
        if self._log is not None:
            self._log.write("epoch", **metrics)
