"""Rows between a worker and a shard: a connection of their own for the three calls that every batch makes.

A call by way of Ray takes over a millisecond of processor time before a single row has moved, and there are two a shard
and batch. Here a request is a small header and raw arrays, sent from where they lie and received where they are needed.
Everything else (opening, saving, counting) goes by way of Ray, and so does the secret that lets a connection in: the
name of the attempt, which only those who work on it know.

Requests on one connection are answered in their order. A connection that breaks is made again and what was not answered
is asked again, which does no harm: a shard knows a push that it has.
"""

from __future__ import annotations

import hmac
import json
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.types import Array, DkgeError

LENGTH = struct.Struct("<I")
MAX_HEADER = 1 << 16
MAX_ARRAY = 1 << 33
KINDS = {"<i4", "<i8", "<f4"}
TRIES, PAUSE = 4, 0.25


class ShardLostError(DkgeError):
    """A shard does not answer any more, or not to us. What it held is gone; what is saved is not."""


class Address(NamedTuple):
    """Where a shard listens."""

    host: str
    port: int


Message = tuple[dict[str, Any], list[Array]]


def send(connection: socket.socket, header: dict[str, Any], arrays: Sequence[Array]) -> None:
    """Send a header and arrays, without copying these."""
    arrays = [np.ascontiguousarray(array) for array in arrays]
    text = json.dumps({**header, "arrays": [[array.dtype.str, array.shape] for array in arrays]}).encode()
    buffers = [memoryview(LENGTH.pack(len(text)) + text)]
    buffers += [memoryview(array.data).cast("B") for array in arrays if array.nbytes]
    while buffers:
        sent = connection.sendmsg(buffers[:64])
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers.pop(0))
        if sent:
            buffers[0] = buffers[0][sent:]


def receive(connection: socket.socket) -> Message:
    """The next header and its arrays. EOFError if the other side is gone."""
    (size,) = LENGTH.unpack(_filled(connection, memoryview(bytearray(LENGTH.size))))
    if size > MAX_HEADER:
        raise DkgeError(f"a message that begins with {size} bytes of header is none of ours")
    header = json.loads(bytes(_filled(connection, memoryview(bytearray(size)))))
    arrays = []
    for kind, shape in header.pop("arrays"):
        if kind not in KINDS or np.prod(shape, dtype=float) * 8 > MAX_ARRAY:
            raise DkgeError(f"an array of {kind} {shape} is none of ours")
        array = np.empty(shape, kind)
        if array.nbytes:
            _filled(connection, memoryview(array.data).cast("B"))
        arrays.append(array)
    return header, arrays


def _filled(connection: socket.socket, into: memoryview) -> memoryview:
    at = 0
    while at < len(into):
        got = connection.recv_into(into[at:])
        if not got:
            raise EOFError("the other side closed the connection")
        at += got
    return into


class Listener:
    """A shard's side: a thread for every connection, which lets in whoever knows the attempt."""

    def __init__(
        self, host: str, knows: Callable[[str], bool], answer: Callable[[str, dict[str, Any], list[Array]], Message]
    ) -> None:
        self._knows, self._answer = knows, answer
        listening = socket.create_server((host, 0))
        self.address = Address(*listening.getsockname()[:2])
        Thread(target=self._accept, args=(listening,), daemon=True).start()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            try:
                hello, _ = receive(connection)
                attempt = str(hello["attempt"])
                known = self._knows(attempt)
                send(connection, {"ok": known}, [])
                while known:
                    header, arrays = receive(connection)
                    send(connection, *self._answer(attempt, header, arrays))
            except (OSError, EOFError, ValueError, KeyError, TypeError, DkgeError):
                return  # Whoever it was is gone, or speaks another language.


def is_same(one: str, other: str) -> bool:
    """Compare secrets in a time that does not tell how much of them agrees."""
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())


class Asked(NamedTuple):
    """A request that is not answered yet."""

    header: dict[str, Any]
    arrays: Sequence[Array]
    future: Future[Message]


class Connection:
    """A worker's side. Answers are read as they come, so that neither side waits for the other to read."""

    def __init__(self, shard: int, address: Address, attempt: str) -> None:
        self.shard, self._address, self._attempt = shard, address, attempt
        self._sending = Lock()
        self._asked: deque[Asked] = deque()
        self._lost: str | None = None
        self._broken = 0  # How often in a row the connection broke before any answer came.
        self._socket = self._connected()
        Thread(target=self._read, daemon=True, name=f"shard-{shard}").start()

    def _connected(self) -> socket.socket:
        """A new connection that the shard has let in."""
        made = socket.create_connection(self._address)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            send(made, {"attempt": self._attempt}, [])
            welcome, _ = receive(made)
        except (OSError, EOFError):
            made.close()
            raise
        if not welcome["ok"]:
            made.close()
            raise ShardLostError(f"shard {self.shard} has been restarted or belongs to another attempt by now")
        return made

    def ask(self, header: dict[str, Any], arrays: Sequence[Array]) -> Future[Message]:
        """Send a request; its answer comes later."""
        asked = Asked(header, arrays, Future())
        with self._sending:
            if self._lost is not None:
                raise ShardLostError(self._lost)
            self._asked.append(asked)
            try:
                send(self._socket, header, arrays)
            except OSError:
                self._socket.close()  # The reader notices, connects again and asks again.
        return asked.future

    def _read(self) -> None:
        while True:
            try:
                message = receive(self._socket)
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
            self._socket.close()
            self._broken += 1
            for attempt in range(TRIES if self._broken <= TRIES else 0):
                try:
                    self._socket = self._connected()
                    for asked in self._asked:
                        send(self._socket, asked.header, asked.arrays)
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
