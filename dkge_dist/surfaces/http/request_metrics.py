"""How many requests there were and how long they took, by route; added up over all processes of a server.

Every process counts in a row of its own of one mapped file, which nobody else writes to; whoever is asked adds up all
rows. A process that takes the place of another goes on with its row, so that counters never go back.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dkge_dist.surfaces.metrics import Family
from dkge_dist.types import Array

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STATUSES = ("2xx", "3xx", "4xx", "5xx")
OTHER = "other"
"""Requests to no route."""
COLUMNS = len(BUCKETS) + 2 + len(STATUSES)
"""A route: requests by bucket, those beyond the last, the sum of seconds, requests by status."""


def metrics_bytes(workers: int, routes: int) -> int:
    """The size of the file for so many processes."""
    return workers * (routes + 1) * COLUMNS * np.dtype(np.float64).itemsize


class RequestMetrics:
    """Counts requests. `shared`: a file that all processes of a server have, of zeros at first; None: there is one."""

    def __init__(self, routes: Sequence[str], shared: Path | None = None, workers: int = 1) -> None:
        self._routes = [*routes, OTHER]
        shape = (workers, len(self._routes), COLUMNS)
        self._lock = threading.Lock()
        self._counts: Array
        if shared is None:
            self._counts, self._row = np.zeros(shape), 0
        else:
            self._counts = np.memmap(shared, np.float64, "r+", shape=shape)
            self._row = self._claimed(shared, workers)

    def _claimed(self, shared: Path, workers: int) -> int:
        """A row that no living process counts in; the lock on its byte goes with the process."""
        self._file = os.open(shared, os.O_RDWR | os.O_CLOEXEC)
        for row in range(workers):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, row)
            except OSError:
                continue
            return row
        # One is ending while its successor starts: for that moment they share a row.
        return workers - 1

    def count(self, route: str | None, status: int, seconds: float) -> None:
        """A request is over."""
        place = self._routes.index(route) if route in self._routes else len(self._routes) - 1
        bucket = int(np.searchsorted(BUCKETS, seconds))
        kind = min(max(status // 100, 2), 5) - 2
        with self._lock:
            row = self._counts[self._row, place]
            row[bucket] += 1
            row[len(BUCKETS) + 1] += seconds
            row[len(BUCKETS) + 2 + kind] += 1

    def families(self) -> list[Family]:
        """Of all processes together."""
        every = np.asarray(self._counts).sum(axis=0)
        requests = Family("dkge_http_requests_total", "counter", "Requests, by route and kind of status.")
        latency = Family("dkge_http_request_seconds", "histogram", "Seconds a request took, by route.")
        for route, counts in zip(self._routes, every, strict=True):
            for status, count in zip(STATUSES, counts[len(BUCKETS) + 2 :], strict=True):
                if count:
                    requests.add(count, route=route, status=status)
            total = np.cumsum(counts[: len(BUCKETS) + 1])
            if not total[-1]:
                continue
            for limit, count in zip((*map(str, BUCKETS), "+Inf"), total, strict=True):
                latency.add(count, "_bucket", route=route, le=limit)
            latency.add(counts[len(BUCKETS) + 1], "_sum", route=route)
            latency.add(total[-1], "_count", route=route)
        return [requests, latency]
