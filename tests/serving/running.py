"""`dkge serve` as a process, asked over loopback."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from tests.cli.running import DKGE

ROOT = Path(__file__).parents[2]


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/json"
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> str:
        """The message of an error: JSON with a message, and nothing else."""
        assert self.status >= 400
        assert list(self.json) == ["error"]
        return str(self.json["error"])


class Server:
    """A server on a free port, ended when its context ends."""

    def __init__(self, store: Path | str, *options: str, env: dict[str, str] | None = None) -> None:
        command = [DKGE, "serve", str(store), "--port", "0", "--poll", "0.1", *options]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        )
        self.said: list[str] = []
        self._listening = threading.Event()
        self.port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(120):
            self.end()
            raise AssertionError("".join(self.said))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"http://.*:(\d+)/", line):
                self.port = int(found[1])
                self._listening.set()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request, by a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            found = connection.getresponse()
            return Reply(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path: str, **parameters: Any) -> Reply:
        query = urlencode({name.rstrip("_"): value for name, value in parameters.items()})
        return self.request("GET", f"{path}?{query}" if query else path)

    def post(self, path: str, value: Any) -> Reply:
        return self.request("POST", path, json.dumps(value).encode(), {"content-type": "application/json"})

    def ready(self, version: int | None = None) -> Server:
        """Wait until it has everything that it needs, and answers by a version."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            found = self.get("/ready")
            if found.status == 200 and version in (None, found.json["version"]):
                return self
            time.sleep(0.05)
        raise AssertionError(f"not ready: {found.body!r} {self.said}")
