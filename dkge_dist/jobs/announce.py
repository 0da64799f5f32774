"""What happens after a publish: the hook that the setting `on_publish` names is called, and the log.

A hook comes after the fact: whether it fails or takes too long, the version is published. Its failure is reported.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any, TypeVar

from dkge_dist.jobs.event_log import EventLog
from dkge_dist.jobs.report import seconds_since
from dkge_dist.records import CommandRecord, HookResult
from dkge_dist.settings import Settings
from dkge_dist.types import DkgeError

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
