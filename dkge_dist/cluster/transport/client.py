"""The client's side: `ask` sends a request at once, `answer` waits for its reply, `close` hangs up.

Requests are answered in their order. A connection that breaks is made again and what was not answered is asked again:
every request must be one that may be repeated. A server that sends nothing for `silence_seconds` while a reply is due,
that refuses the secret, or that cannot be reached in a few tries is lost: PeerLostError for this and all later calls.

On one machine a reply is read by the thread that waits for it: it is short, as its arrays lie in shared memory, and a
thread for each of many servers would only be woken up to pass it on. From another machine replies are read as they
come, so that arrays travel while the caller computes.
"""

from __future__ import annotations

import time
from collections import deque
from queue import SimpleQueue
from threading import Lock, Thread

from dkge_dist.cluster.transport.address import Address, dial
from dkge_dist.cluster.transport.channel import SILENCE_SECONDS, Channel
from dkge_dist.cluster.transport.errors import AuthenticationError, PeerLostError, PeerSilentError, ProtocolError
from dkge_dist.cluster.transport.handshake import HANDSHAKE_SECONDS, authenticate_server
from dkge_dist.cluster.transport.message import Message, Received

TRIES, PAUSE = 4, 0.25


class Pending:
    """A request, and its reply once it is there."""

    __slots__ = ("reply", "request")

    def __init__(self, request: Message) -> None:
        self.request = request
        self.reply: Received | None = None


class TransportClient:
    """A connection to one server; `peer` is what errors call it. Any number of threads may use it."""

    def __init__(self, peer: str, address: Address, secret: str, silence_seconds: float = SILENCE_SECONDS) -> None:
        self.peer, self._address, self._secret = peer, address, secret
        self._silence_seconds = silence_seconds
        self._sending, self._receiving = Lock(), Lock()  # If both are needed, `_receiving` is taken first.
        self._unanswered: deque[Pending] = deque()
        self._lost: PeerLostError | None = None
        self._breaks = 0  # In a row, without a reply in between.
        self._channel = self._connect_in_tries()
        self._is_local = self._channel.is_local
        self._coming: SimpleQueue[Pending | None] = SimpleQueue()
        if not self._is_local:
            Thread(target=self._read, daemon=True, name=f"read {peer}").start()

    def ask(self, request: Message) -> Pending:
        """Send a request; its reply comes later."""
        pending = Pending(request)
        while not self._send(pending):
            self._drain()
        if not self._is_local:
            self._coming.put(pending)
        return pending

    def answer(self, pending: Pending) -> Received:
        """Wait for the reply to a request."""
        if pending.reply is None:
            with self._receiving:
                while pending.reply is None:
                    self._receive()
        return pending.reply

    def close(self) -> None:
        """Hang up. Threads that wait for a reply, and all later requests, get PeerLostError."""
        self._lost = PeerLostError(f"the connection to {self.peer} is closed")
        self._channel.hang_up()  # Ends the wait of a thread that holds a lock.
        with self._receiving, self._sending:
            self._channel.close()
        self._coming.put(None)

    def _send(self, pending: Pending) -> bool:
        """False if that might wait for ever: the server may be waiting for us to read its replies first."""
        with self._sending:
            self._check_not_lost()
            try:
                if not self._channel.send(pending.request, may_block=not (self._is_local and self._unanswered)):
                    return False
            except TimeoutError as error:
                self._lose(error)
            except OSError:
                self._channel.hang_up()  # The thread that waits for the reply connects again and asks again.
            self._unanswered.append(pending)
            return True

    def _drain(self) -> None:
        """Read all replies that are due."""
        with self._receiving:
            while self._unanswered:
                self._receive()

    def _receive(self) -> None:
        """Read the next reply."""
        self._check_not_lost()
        try:
            reply = self._channel.receive()
        except TimeoutError as error:
            self._channel.hang_up()  # Ends the wait of a thread that sends.
            self._lose(error)
        except (OSError, EOFError, ProtocolError) as error:
            self._recover(error)
        else:
            self._breaks = 0
            self._unanswered.popleft().reply = reply

    def _read(self) -> None:
        while True:
            pending = self._coming.get()
            if pending is None:
                return
            try:
                self.answer(pending)
            except PeerLostError:
                return

    def _check_not_lost(self) -> None:
        """Whichever thread asks gets an error of the kind, and with the words, that the first one got."""
        if self._lost is not None:
            raise type(self._lost)(str(self._lost))

    def _lose(self, error: Exception) -> None:
        self._lost = self._lost or self._gone(error)
        self._check_not_lost()

    def _gone(self, error: Exception) -> PeerLostError:
        kind = PeerSilentError if isinstance(error, TimeoutError) else PeerLostError
        return kind(f"{self.peer} is gone: {error}")

    def _recover(self, error: Exception) -> None:
        """Connect again and ask again for all that was not answered, unless it is closed or breaks every time."""
        self._channel.hang_up()
        with self._sending:
            self._breaks += 1
            if self._breaks > TRIES:
                self._lose(error)
            self._check_not_lost()
            try:
                self._channel = self._connect_in_tries()
            except PeerLostError as lost:
                self._lost = self._lost or lost
                raise
            try:
                for pending in self._unanswered:
                    self._channel.send(pending.request)
            except OSError:
                self._channel.hang_up()  # The next `_receive` notices.

    def _connect_in_tries(self) -> Channel:
        for attempt in range(TRIES):
            time.sleep(PAUSE * attempt)
            try:
                return self._connect()
            except AuthenticationError as error:
                raise AuthenticationError(f"{self.peer} {error}") from None
            except (OSError, EOFError, ProtocolError) as error:
                reason = error
        raise self._gone(reason)

    def _connect(self) -> Channel:
        """A new connection, both ends of which have proved who they are."""
        connection, endpoint = dial(self._address)
        try:
            authenticate_server(connection, self._secret, endpoint, HANDSHAKE_SECONDS)
            channel = Channel(connection)
            channel.share()
            channel.limit_silence(self._silence_seconds)
            return channel
        except BaseException:
            connection.close()
            raise
