"""Structured logs: a line of JSON for every event, with the id of its run. Several processes may write to one file."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from dkge_dist.records import CommandRecord, HookResult
from dkge_dist.settings import Settings
from dkge_dist.surfaces.progress import CallbackMonitor
from dkge_dist.types import DkgeError, ProgressCallback, StopCallback, UsageError, seconds_since


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


SHOWN = 300
"""Characters of what a hook said that a message shows."""

AnyRecord = TypeVar("AnyRecord", bound=CommandRecord)


class HookError(DkgeError):
    """A hook failed, or took too long."""


class Announcer:
    """Tells others of versions as they are published."""

    def __init__(self, settings: Settings, log: EventLog | None) -> None:
        self._hook, self._seconds, self._log = settings.on_publish, settings.on_publish_seconds, log
        self._hooks: list[HookResult] = []

    def published(self, store: object, version: int, snapshot: str, headline: str) -> None:
        """A version was published."""
        message = {"store": str(store), "version": version, "snapshot": snapshot, "headline": headline}
        if self._log is not None:
            self._log.write("published", **message)
            message["run"] = self._log.run
        if self._hook is None:
            return
        began, error = time.monotonic(), {}
        try:
            run_hook(self._hook, message, self._seconds)
        except HookError as failed:
            error = {"error": str(failed)}
        self._hooks.append(HookResult(version=version, ok=not error, **error, seconds=seconds_since(began)))
        if self._log is not None:
            self._log.write("hook", **self._hooks[-1])

    def finished(self, record: AnyRecord) -> AnyRecord:
        """The record of the run, with what came of hooks; the log hears of it too."""
        if self._hooks:
            failed = [f"on_publish: version {one.version}: {one.error}" for one in self._hooks if not one.ok]
            warnings = "; ".join([*([record.warning] if record.warning else []), *failed])
            record = record.with_(on_publish=self._hooks, **({"warning": warnings} if warnings else {}))
        if self._log is not None:
            record = record.with_(run=self._log.run)
            logged = ("version", "headline", "unchanged", "seconds", "warning")
            self._log.write("finished", **{key: record[key] for key in logged if key in record})
        return record


def run_hook(hook: str, message: dict[str, Any], seconds: float) -> None:
    """Give a message as JSON to a command, on its stdin, or to a URL, by POST. HookError if that fails."""
    data = json.dumps(message).encode("ascii")
    if hook.startswith(("http://", "https://")):
        _post(hook, data, seconds)
    else:
        _run(shlex.split(hook), data, seconds)


def _post(url: str, data: bytes, seconds: float) -> None:
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as reply:
            reply.read(SHOWN)
    except urllib.error.HTTPError as error:
        with error:
            raise HookError(f"the URL answered with status {error.code}") from None
    except (OSError, ValueError) as error:
        # Not the URL itself: it may hold a secret.
        raise HookError(f"the URL could not be told: {error}") from None


def _run(words: list[str], data: bytes, seconds: float) -> None:
    try:
        # In a session of its own: what it started ends with it, if it takes too long.
        running = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
    except (OSError, ValueError, IndexError) as error:
        raise HookError(f"the command could not be started: {error}") from None
    with running:
        try:
            _, said = running.communicate(data, seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            raise HookError(f"the command took longer than {seconds:g} s, and was ended") from None
        if running.returncode:
            last = said.decode("utf-8", "replace").strip()[-SHOWN:]
            raise HookError(f"the command ended with {running.returncode}" + (f": {last}" if last else ""))
