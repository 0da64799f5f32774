"""What happens after a publish: the hook that the setting `on_publish` names is told, and the log.

A hook comes after the fact: whether it fails or takes too long, the version is published. Its failure is told.
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
from typing import Any

from dkge_dist.jobs.event_log import EventLog
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.settings import Settings
from dkge_dist.types import DkgeError

SHOWN = 300
"""Characters of what a hook said that a message shows."""


class HookError(DkgeError):
    """A hook failed, or took too long."""


class Announcer:
    """Tells others of versions as they are published."""

    def __init__(self, settings: Settings, log: EventLog | None) -> None:
        self._hook, self._seconds, self._log = settings.on_publish, settings.on_publish_seconds, log
        self._told: list[Report] = []

    def published(self, store: object, version: int, snapshot: str, headline: str) -> None:
        """A version was published."""
        message = {"store": str(store), "version": version, "snapshot": snapshot, "headline": headline}
        if self._log is not None:
            self._log.write("published", **message)
            message["run"] = self._log.run
        if self._hook is None:
            return
        began = time.monotonic()
        told: Report = {"version": version, "ok": True}
        try:
            run_hook(self._hook, message, self._seconds)
        except HookError as error:
            told |= {"ok": False, "error": str(error)}
        self._told.append({**told, "seconds": seconds_since(began)})
        if self._log is not None:
            self._log.write("hook", **self._told[-1])

    def finished(self, report: Report) -> Report:
        """The report of the run, with what came of hooks; the log hears of it too."""
        if self._told:
            report["on_publish"] = self._told
        failed = [f"on_publish: version {one['version']}: {one['error']}" for one in self._told if not one["ok"]]
        if failed:
            report["warning"] = "; ".join([*([report["warning"]] if "warning" in report else []), *failed])
        if self._log is not None:
            report["run"] = self._log.run
            facts = {
                key: report[key] for key in ("version", "headline", "unchanged", "seconds", "warning") if key in report
            }
            self._log.write("finished", **facts)
        return report


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
