"""Leases in a bucket: an object that says who works, until when. The holder renews it; its end needs no message.

Taking and renewing are conditional puts, so that of several processes one succeeds. Clocks may differ by less than a
lease lasts (S3 itself refuses requests of clocks that are further off). A lease keeps two processes from the same work;
what must not happen at all, such as publishing a version twice, is not left to it.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from dkge_dist.store.storage.base import MissingError, StoreError
from dkge_dist.store.storage.objects import Objects

LEASE_SECONDS = 120.0
RENEWALS = 4
"""How often a lease is renewed while it lasts: some of them may fail."""


class LeaseHeldError(Exception):
    """Another process holds the lease; `holder` says which."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by {holder}")
        self.holder = holder


class Lease(NamedTuple):
    """What a lease object says. `token` is drawn by its holder, `since` is when it began."""

    holder: str
    token: str
    since: float
    until: float

    @property
    def is_held(self) -> bool:
        """Does its holder still work?"""
        return self.until > time.time()

    def to_json(self) -> bytes:
        """As it is stored."""
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def parse(data: bytes) -> Lease:
        """What is damaged is held by nobody."""
        try:
            content = json.loads(data)
            since, until = float(content["since"]), float(content["until"])
            return Lease(str(content["holder"]), str(content["token"]), since, until)
        except (ValueError, KeyError, TypeError):
            return Lease("nobody", "", 0.0, 0.0)


@contextmanager
def hold(objects: Objects, name: str) -> Iterator[None]:
    """Hold the lease of that name. Never waits. The object is gone afterwards."""
    now = time.time()
    mine = Lease(f"process {os.getpid()} on {socket.gethostname()}", secrets.token_hex(8), now, now + LEASE_SECONDS)
    _take(objects, name, mine)
    stopped = threading.Event()
    renewing = threading.Thread(target=_renew, args=(objects, name, mine, stopped), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stopped.set()
        renewing.join()
        # If the service is out of reach, the lease ends by itself.
        with suppress(StoreError):
            if Lease.parse(objects.read(name).data).token == mine.token:
                objects.delete(name)


def find(objects: Objects, name: str) -> Lease | None:
    """A lease, whether or not it is held; None if there is none."""
    try:
        return Lease.parse(objects.read(name).data)
    except MissingError:
        return None


def _take(objects: Objects, name: str, mine: Lease) -> None:
    while not objects.create(name, mine.to_json()):
        try:
            found = objects.read(name)
        except MissingError:
            continue  # The work it was for is done, and all of it was removed.
        other = Lease.parse(found.data)
        if other.is_held:
            raise LeaseHeldError(other.holder)
        if objects.update(name, mine.to_json(), found.tag):
            return


def _renew(objects: Objects, name: str, mine: Lease, stopped: threading.Event) -> None:
    while not stopped.wait(LEASE_SECONDS / RENEWALS):
        # A service that is out of reach now may not be the next time.
        with suppress(StoreError):
            found = objects.read(name)
            if Lease.parse(found.data).token == mine.token:
                objects.update(name, mine._replace(until=time.time() + LEASE_SECONDS).to_json(), found.tag)
