"""A line of JSON for every request."""

from __future__ import annotations

import secrets
from collections.abc import MutableMapping
from typing import Any

from dkge_dist.surfaces.events import EventLog


class RequestLog:
    """Writes what was asked by which route, and how it ended. Not what was asked for: questions may be private."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def request(
        self, scope: MutableMapping[str, Any], route: str | None, status: int, seconds: float, version: str | None
    ) -> None:
        """A request is over."""
        client = scope["client"][0] if scope.get("client") else None
        self._log.write(
            "request",
            request=secrets.token_hex(8),
            method=scope["method"],
            route=route or "other",
            status=status,
            milliseconds=round(1000 * seconds, 3),
            client=client,
            version=int(version) if version is not None else None,
        )
