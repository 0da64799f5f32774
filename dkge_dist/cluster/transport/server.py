"""The server's side: clients that know the secret are let in, and one thread a connection answers them in order.

Before a connection has proved anything it costs a socket and a waiting thread, for a few seconds at most. There is a
bounded number of them and the oldest gives way to a newcomer, so that idle strangers keep nobody out. Errors of
accepting (no more descriptors, no more threads) are waited out.

Every few seconds each client gets a keep-alive from a thread that does nothing else. So an answer may take any time (a
push waits for all other workers), and a client still tells a stopped process from a busy one. The other way round there
is no deadline: a client may be silent for as long as it computes.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

from dkge_dist.cluster.transport.address import listen
from dkge_dist.cluster.transport.channel import Channel
from dkge_dist.cluster.transport.handshake import HANDSHAKE_SECONDS, authenticate_client
from dkge_dist.cluster.transport.message import AllocateReply, Message, Received
from dkge_dist.types import DkgeError

MAX_PENDING = 64
"""Connections of one listening socket that have not authenticated yet: at most so many, and at most an eighth of the
descriptors that the process may have, so that those who know the secret still find some."""
ACCEPT_PAUSE = 0.05
KEEPALIVE_SECONDS = 5.0

Answer = Callable[[str, Received, AllocateReply], Message]
"""Given the secret that the client proved to know, its request, and where to make the arrays of the reply."""


class TransportServer:
    """Listens at `address` until `close`.

    `secret` is asked at every handshake; while it is empty nobody is let in. `initializer` runs first in every thread
    that will call `answer`, for settings that belong to a thread.
    """

    def __init__(
        self,
        host: str,
        secret: Callable[[], str],
        answer: Answer,
        initializer: Callable[[], None] | None = None,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        self._secret, self._answer, self._initializer = secret, answer, initializer
        self._keepalive_seconds, self._handshake_seconds = keepalive_seconds, handshake_seconds
        self._closed = Event()
        self._lock = Lock()
        self._sessions: set[_Session] = set()
        self.address, self._listening = listen(host)
        Thread(target=self._keep_alive, daemon=True).start()
        for listening, endpoint in self._listening:
            Thread(target=self._accept, args=(listening, endpoint), daemon=True).start()

    @property
    def is_closed(self) -> bool:
        """Was `close` called?"""
        return self._closed.is_set()

    def close(self) -> None:
        """Stop listening and end all connections."""
        self._closed.set()
        for listening, _ in self._listening:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # Closing alone would leave its thread in `accept`.
            listening.close()
        with self._lock:
            for session in self._sessions:
                session.channel.hang_up()

    def _accept(self, listening: socket.socket, endpoint: str) -> None:
        pending = _Pending()
        while not self.is_closed:
            try:
                connection, _ = listening.accept()
            except OSError:  # Out of descriptors, as a rule.
                pending.drop_oldest()
                self._closed.wait(ACCEPT_PAUSE)
                continue
            pending.add(connection)
            try:
                Thread(target=self._serve, args=(connection, endpoint, pending), daemon=True).start()
            except (RuntimeError, MemoryError):  # Out of threads.
                pending.remove(connection)
                connection.close()
                self._closed.wait(ACCEPT_PAUSE)

    def _serve(self, connection: socket.socket, endpoint: str, pending: _Pending) -> None:
        with connection, suppress(OSError, EOFError, DkgeError):  # It is gone, a stranger, or speaks something else.
            try:
                secret = self._secret()
                authenticate_client(connection, secret, endpoint, self._handshake_seconds)
            finally:
                pending.remove(connection)
            channel = Channel(connection)
            channel.share()
            channel.limit_silence(None)
            if self._initializer is not None:
                self._initializer()
            self._answer_all(_Session(channel), secret)

    def _answer_all(self, session: _Session, secret: str) -> None:
        with self._lock:
            self._sessions.add(session)
        try:
            while not self.is_closed:
                session.answer_next(secret, self._answer)
        finally:
            with self._lock:
                self._sessions.remove(session)
            session.end()

    def _keep_alive(self) -> None:
        while not self._closed.wait(self._keepalive_seconds):
            with self._lock:
                sessions = list(self._sessions)
            for session in sessions:
                session.keep_alive()


class _Session:
    """An authenticated connection: one thread answers, another one sends keep-alives in between."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._sending = Lock()
        self._ended = False

    def end(self) -> None:
        """No keep-alive is sent any more: the connection is about to be closed."""
        with self._sending:
            self._ended = True

    def answer_next(self, secret: str, answer: Answer) -> None:
        """Wait for a request and answer it."""
        # No name here for the request: what it holds of shared memory is free once it is answered.
        reply = answer(secret, self.channel.receive(), self.channel.allocate_reply)
        with self._sending:
            self.channel.send(reply)

    def keep_alive(self) -> None:
        """Send a keep-alive, unless a reply is being sent: that is sign enough."""
        if self._sending.acquire(blocking=False):
            try:
                # It may have ended since the sessions were listed: a closed socket would raise, and end the thread that
                # keeps all other connections alive.
                if not self._ended:
                    with suppress(OSError):  # Gone; its own thread will notice.
                        self.channel.send_keepalive()
            finally:
                self._sending.release()


class _Pending:
    """Connections that have not authenticated yet, oldest first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connections: dict[socket.socket, None] = {}
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MAX_PENDING if files == resource.RLIM_INFINITY else min(MAX_PENDING, max(1, files // 8))

    def add(self, connection: socket.socket) -> None:
        """One more; the oldest gives way if there are too many."""
        with self._lock:
            self._connections[connection] = None
            is_full = len(self._connections) > self._most
        if is_full:
            self.drop_oldest()

    def remove(self, connection: socket.socket) -> None:
        """It has authenticated, or failed to."""
        with self._lock:
            self._connections.pop(connection, None)

    def drop_oldest(self) -> None:
        """End the connection under its thread, which then closes it."""
        with self._lock:
            oldest = next(iter(self._connections), None)
            if oldest is not None:
                del self._connections[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
