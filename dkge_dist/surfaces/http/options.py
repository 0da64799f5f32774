"""How a server is to run, as one value that also its processes are handed. The token is no part of it."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dkge_dist.files import read_regular
from dkge_dist.jobs.event_log import EventLog
from dkge_dist.surfaces.http.guards import GuardOptions, is_loopback
from dkge_dist.surfaces.http.service import Limits
from dkge_dist.types import UsageError

TOKEN = "DKGE_TOKEN"
"""The environment variable with the token: on a command line everybody on the machine could read it."""
TOKEN_TEXT = re.compile(rb"[\x21-\x7e]{16,512}")
MAX_TOKEN_FILE = 4096
RATE_ELSEWHERE = 50.0
"""Requests a second that an address may send to a server that others reach, unless something else is said."""


@dataclass(frozen=True)
class ServeOptions:
    """`store` is a location that every process of the server can open; `version` is followed, by default the current.

    `threads` answer at once in each of `workers` processes. `rate` None: no limit on loopback, 50 a second elsewhere.
    """

    store: str
    version: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    threads: int = 0
    poll_seconds: float = 2.0
    open_versions: int = 3
    max_k: int = 1000
    max_batch: int = 256
    max_body_kb: int = 1024
    max_seconds: float = 30.0
    rate: float | None = None
    token_file: str | None = None
    log_json: str | None = None
    metrics_path: str | None = None

    def to_json(self) -> str:
        """For a process of the server."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> ServeOptions:
        """As `to_json` wrote it."""
        values: dict[str, Any] = json.loads(text)
        return ServeOptions(**values)

    def checked(self) -> ServeOptions:
        """With what was left open decided; UsageError if the server must not run so."""
        token = self.token()
        if token is None and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host}: others could ask too: set {TOKEN}, or name a --token-file (mode 600)"
            )
        rate = self.rate if self.rate is not None else 0.0 if is_loopback(self.host) else RATE_ELSEWHERE
        threads = self.threads or 2 * (os.cpu_count() or 1) + 2
        # Its directory may be another one's in a process of the server.
        store = self.store if "://" in self.store else os.path.abspath(self.store)
        return replace(self, rate=rate, threads=threads, store=store)

    def token(self) -> bytes | None:
        """The token that is asked for, None if everybody on this machine may ask."""
        if self.token_file is not None:
            path = Path(self.token_file)
            try:
                token = read_regular(path, MAX_TOKEN_FILE).strip()
            except OSError as error:
                raise UsageError(f"--token-file {path}: {error.strerror}") from None
            told = f"--token-file {path}"
        else:
            given = os.environ.get(TOKEN)
            if given is None:
                return None
            token, told = given.encode("utf-8", "surrogateescape"), TOKEN
        if not TOKEN_TEXT.fullmatch(token):
            raise UsageError(f"{told}: a token is 16 to 512 letters, digits and signs, such as `openssl rand -hex 32`")
        return token

    def guard(self) -> GuardOptions:
        """What the guards keep."""
        return GuardOptions(self.token(), 1024 * self.max_body_kb, self.max_seconds, self.rate or 0.0)

    def limits(self) -> Limits:
        """What a request may ask for."""
        return Limits(k=self.max_k, batch=self.max_batch)

    @property
    def metrics_file(self) -> Path | None:
        """What processes count in together."""
        return Path(self.metrics_path) if self.metrics_path is not None else None

    def open_log(self) -> EventLog:
        """The log of requests."""
        assert self.log_json is not None, "asked for only where there is one"
        return EventLog(Path(self.log_json), "serve")
