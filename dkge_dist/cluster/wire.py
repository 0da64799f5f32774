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
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import NamedTuple

import numpy as np

from dkge_dist.cluster.channel import Channel, Message, Received, Room, tuned
from dkge_dist.kernels.jit import set_threads
from dkge_dist.types import DkgeError

TRIES, PAUSE = 4, 0.25
HELLO, WELCOME = 100, 101


class ShardLostError(DkgeError):
    """A shard does not answer any more, or not to us. What it held is gone; what is saved is not."""


class Address(NamedTuple):
    """Where a shard listens: a port, and for processes of the same machine a name that no other machine knows."""

    host: str
    port: int
    name: str = ""


class Listener:
    """A shard's side: a thread for every connection, which lets in whoever knows the attempt.

    `answer` is given the attempt, the request, and where to put together the rows of the answer.
    """

    def __init__(
        self, host: str, knows: Callable[[str], bool], answer: Callable[[str, Received, Room], Message]
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
        set_threads(1)  # Numba's setting is one of the thread.
        with tuned(connection):
            try:
                channel = Channel(connection)
                attempt = channel.receive().arrays[0].tobytes().decode()
                known = self._knows(attempt)
                channel.send(Message(WELCOME, (int(known), 0, 0), 0.0, (), ()))
                if known:
                    channel.share()
                while known:
                    # No name for the request: what it holds of shared memory is free once it is answered.
                    channel.send(self._answer(attempt, channel.receive(), channel.room))
            except (OSError, EOFError, ValueError, LookupError, TypeError, DkgeError):
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


class Asked:
    """A request, and its answer once it is there."""

    __slots__ = ("answer", "request")

    def __init__(self, request: Message) -> None:
        self.request = request
        self.answer: Received | None = None


class Connection:
    """A worker's side. On one machine answers are read by whoever waits for them: they are short, as their rows lie in
    shared memory, and a thread for each of many shards would only be woken up to pass them on. From another machine
    they are read as they come, so that rows are on their way while the worker computes.
    """

    def __init__(self, shard: int, address: Address, attempt: str) -> None:
        self.shard, self._address, self._attempt = shard, address, attempt
        self._sending, self._receiving = Lock(), Lock()  # Who wants both takes `_receiving` first.
        self._asked: deque[Asked] = deque()
        self._lost: str | None = None
        self._broken = 0  # How often in a row the connection broke before any answer came.
        self._channel = self._connected()
        self._is_far = self._channel.socket.family != socket.AF_UNIX
        self._coming: SimpleQueue[Asked | None] = SimpleQueue()
        if self._is_far:
            Thread(target=self._read, daemon=True, name=f"shard-{shard}").start()

    def _connected(self) -> Channel:
        """A new connection that the shard has let in."""
        channel = Channel(tuned(_reached(self._address)))
        try:
            name = np.frombuffer(self._attempt.encode(), np.uint8)
            channel.send(Message(HELLO, (0, 0, 0), 0.0, [0], [name]))
            if channel.receive().numbers[0]:
                channel.share()
                return channel
        except (OSError, EOFError):
            channel.close()
            raise
        channel.close()
        raise ShardLostError(f"shard {self.shard} has been restarted or belongs to another attempt by now")

    def close(self) -> None:
        """Hang up. Nothing is asked any more."""
        with self._sending:
            self._lost = f"the connection to shard {self.shard} is closed"
            self._channel.close()
        self._coming.put(None)

    def ask(self, request: Message) -> Asked:
        """Send a request; its answer comes later."""
        asked = Asked(request)
        while not self._sent(asked):
            self._drain()
        if self._is_far:
            self._coming.put(asked)
        return asked

    def _sent(self, asked: Asked) -> bool:
        """False if that might wait for ever: the shard may be waiting for us to read what it has to say, and we read
        only when we are asked to."""
        with self._sending:
            if self._lost is not None:
                raise ShardLostError(self._lost)
            try:
                if not self._channel.send(asked.request, may_wait=self._is_far or not self._asked):
                    return False
            except OSError:
                self._channel.close()  # Who waits for the answer notices, connects again and asks again.
            self._asked.append(asked)
            return True

    def answer(self, asked: Asked) -> Received:
        """Wait for the answer to a request."""
        if asked.answer is None:
            with self._receiving:
                while asked.answer is None:
                    self._receive()
        return asked.answer

    def _drain(self) -> None:
        """Read all answers that are due."""
        with self._receiving:
            while self._asked:
                self._receive()

    def _receive(self) -> None:
        """Read the next answer."""
        if self._lost is not None:
            raise ShardLostError(self._lost)
        try:
            message = self._channel.receive()
        except (OSError, EOFError, ValueError, DkgeError) as error:
            self._recover(error)
            return
        self._broken = 0
        self._asked.popleft().answer = message

    def _read(self) -> None:
        while True:
            asked = self._coming.get()
            if asked is None:
                return
            try:
                self.answer(asked)
            except ShardLostError:
                return

    def _recover(self, error: Exception) -> None:
        """Connect again and ask again for all that was not answered, unless that is to be given up."""
        with self._sending:
            self._channel.close()
            self._broken += 1
            for attempt in range(TRIES if self._broken <= TRIES else 0):
                try:
                    self._channel = self._connected()
                    for asked in self._asked:
                        self._channel.send(asked.request)
                    return
                except ShardLostError as lost:
                    error = lost
                    break
                except (OSError, EOFError) as again:
                    error = again
                    time.sleep(PAUSE * attempt)
            self._lost = str(error) if isinstance(error, ShardLostError) else f"shard {self.shard} is gone: {error}"
