"""Rows between a worker and a shard: a connection of their own for the three calls that every batch makes.

A call by way of Ray takes over a millisecond of processor time before a single row has moved, and there are two a shard
and batch. Everything else (opening, saving, counting) goes by way of Ray, and so does the secret that lets a connection
in: the name of the attempt, which only those who work on it know.

Requests on one connection are answered in their order. A connection that breaks is made again and what was not answered
is asked again, which does no harm: a shard knows a push that it has.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, NamedTuple

from dkge_dist.cluster.channel import Channel, Message, Sent, tuned
from dkge_dist.types import Array, DkgeError

TRIES, PAUSE = 4, 0.25


class ShardLostError(DkgeError):
    """A shard does not answer any more, or not to us. What it held is gone; what is saved is not."""


class Address(NamedTuple):
    """Where a shard listens: a port, and for processes of the same machine a name that no other machine knows."""

    host: str
    port: int
    name: str = ""


class Listener:
    """A shard's side: a thread for every connection, which lets in whoever knows the attempt."""

    def __init__(
        self, host: str, knows: Callable[[str], bool], answer: Callable[[str, dict[str, Any], list[Array]], Message]
    ) -> None:
        self._knows, self._answer = knows, answer
        doors = [socket.create_server((host, 0))]
        name = ""
        if hasattr(os, "memfd_create"):  # Linux, where a name that begins with a zero byte leaves no file behind.
            name = f"dkge-{secrets.token_hex(8)}"
            doors.append(socket.socket(socket.AF_UNIX))
            doors[-1].bind(f"\0{name}")
            doors[-1].listen()
        at, port = doors[0].getsockname()[:2]
        self.address = Address(at, port, name)
        for door in doors:
            Thread(target=self._accept, args=(door,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with tuned(connection):
            try:
                channel = Channel(connection)
                hello, _ = channel.receive()
                attempt = str(hello["attempt"])
                known = self._knows(attempt)
                channel.send({"ok": known}, [])
                if known:
                    channel.share()
                while known:
                    channel.send(*self._answer(attempt, *channel.receive()))
            except (OSError, EOFError, ValueError, KeyError, TypeError, DkgeError):
                return  # Whoever it was is gone, or speaks another language.


def is_same(one: str, other: str) -> bool:
    """Compare secrets in a time that does not tell how much of them agrees."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())


def _reached(address: Address) -> socket.socket:
    """A connection to a shard, by its name if it is on this machine."""
    if address.name:
        near = socket.socket(socket.AF_UNIX)
        try:
            near.connect(f"\0{address.name}")
            return near
        except OSError:
            near.close()  # Nobody of that name here: another machine, or another container on it.
    return socket.create_connection((address.host, address.port))


class Asked(NamedTuple):
    """A request that is not answered yet."""

    header: dict[str, Any]
    arrays: Sequence[Sent]
    future: Future[Message]


class Connection:
    """A worker's side. Answers are read as they come, so that neither side waits for the other to read."""

    def __init__(self, shard: int, address: Address, attempt: str) -> None:
        self.shard, self._address, self._attempt = shard, address, attempt
        self._sending = Lock()
        self._asked: deque[Asked] = deque()
        self._lost: str | None = None
        self._broken = 0  # How often in a row the connection broke before any answer came.
        self._channel = self._connected()
        Thread(target=self._read, daemon=True, name=f"shard-{shard}").start()

    def _connected(self) -> Channel:
        """A new connection that the shard has let in."""
        channel = Channel(tuned(_reached(self._address)))
        try:
            channel.send({"attempt": self._attempt}, [])
            welcome, _ = channel.receive()
            if welcome["ok"]:
                channel.share()
                return channel
        except (OSError, EOFError):
            channel.close()
            raise
        channel.close()
        raise ShardLostError(f"shard {self.shard} has been restarted or belongs to another attempt by now")

    def ask(self, header: dict[str, Any], arrays: Sequence[Sent]) -> Future[Message]:
        """Send a request; its answer comes later."""
        asked = Asked(header, arrays, Future())
        with self._sending:
            if self._lost is not None:
                raise ShardLostError(self._lost)
            self._asked.append(asked)
            try:
                self._channel.send(header, arrays)
            except OSError:
                self._channel.close()  # The reader notices, connects again and asks again.
        return asked.future

    def _read(self) -> None:
        while True:
            try:
                message = self._channel.receive()
            except (OSError, EOFError, ValueError, DkgeError) as error:
                if not self._recovered(error):
                    return
                continue
            self._broken = 0
            # Without the lock: who holds it may be waiting for the shard, and that for us to read.
            self._asked.popleft().future.set_result(message)

    def _recovered(self, error: Exception) -> bool:
        """Connect again and ask again for all that was not answered; False once that is given up."""
        with self._sending:
            self._channel.close()
            self._broken += 1
            for attempt in range(TRIES if self._broken <= TRIES else 0):
                try:
                    self._channel = self._connected()
                    for asked in self._asked:
                        self._channel.send(asked.header, asked.arrays)
                    return True
                except ShardLostError as lost:
                    error = lost
                    break
                except (OSError, EOFError) as again:
                    error = again
                    time.sleep(PAUSE * attempt)
            self._lost = str(error) if isinstance(error, ShardLostError) else f"shard {self.shard} is gone: {error}"
            waiting = list(self._asked)
            self._asked.clear()
        for asked in waiting:
            asked.future.set_exception(ShardLostError(self._lost))
        return False
