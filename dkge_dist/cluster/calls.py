"""Calls to shards, by Ray and by the transport: sent at once, answered later, repeated when the connection broke.

In: a shard's actor or address, and a request. Out: what the shard returned; ShardLostError if it is gone, silent or in
another attempt; DkgeError that names the shard for everything else that it reports. Every call may be repeated: reading
and writing rows by nature, pushing because a shard recognises a push that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError

from dkge_dist.cluster.errors import ShardLostError, StaleAttemptError
from dkge_dist.cluster.requests import ERROR, ErrorCode, read_error
from dkge_dist.cluster.transport import (
    Address,
    AuthenticationError,
    Message,
    PeerLostError,
    PeerSilentError,
    Pending,
    Received,
    TransportClient,
)
from dkge_dist.types import DkgeError

TRIES = 5
PAUSE = 1.0
PING_AFTER = 10.0
"""A call by Ray that takes longer is followed by pings: Ray itself does not notice a process that was stopped. A shard
that does not answer the transport's handshake then, in several tries, is lost."""
START_SECONDS = 300.0
"""For a shard to tell where it listens: a new actor first imports everything, which takes long on a busy machine."""
NO_SECRET = "ping"


class Call(Protocol):
    """One call of one shard, under way."""

    def result(self) -> Any:
        """Wait for the answer."""


class RayCall:
    """A call of an actor's method; `address` is where the actor listens, once that is known."""

    def __init__(
        self, shard: int, actor: Any, method: str, arguments: tuple[Any, ...], address: Address | None = None
    ) -> None:
        self.shard, self._actor, self._method, self._arguments = shard, actor, method, arguments
        self._address = address
        self._ref = self._send()

    def _send(self) -> Any:
        return getattr(self._actor, self._method).remote(*self._arguments)

    def result(self) -> Any:
        """Wait for the answer."""
        for attempt in range(TRIES):
            try:
                return self._wait()
            except ActorUnavailableError as error:
                if attempt == TRIES - 1:
                    # A process that connects for the first time is told so of a stopped one.
                    silence = PeerSilentError(f"shard {self.shard} cannot be reached: {_short(error)}")
                    raise _lost(silence, self._actor) from None
                time.sleep(PAUSE * (attempt + 1))
                self._ref = self._send()
            except RayTaskError as error:
                cause = error.cause
                if isinstance(cause, StaleAttemptError):
                    raise ShardLostError(str(cause)) from None
                if isinstance(cause, DkgeError | OSError):
                    raise DkgeError(f"shard {self.shard}: {cause}") from None
                raise
            except (RayActorError, RayError) as error:
                raise ShardLostError(f"shard {self.shard} is gone: {_short(error)}") from None
        raise AssertionError("unreachable")

    def _wait(self) -> Any:
        """The answer, however long the shard works on it, for as long as it shows life."""
        if self._address is None:
            try:
                return ray.get(self._ref, timeout=START_SECONDS)
            except GetTimeoutError:
                silence = PeerSilentError(f"shard {self.shard} is gone: no sign of life for {START_SECONDS:g} s")
                raise _lost(silence, self._actor) from None
        while True:
            try:
                return ray.get(self._ref, timeout=PING_AFTER)
            except GetTimeoutError:
                self._ping(self._address)

    def _ping(self, address: Address) -> None:
        """Wait for a sign of life. Ray itself does not notice a process that was stopped."""
        try:
            TransportClient(f"shard {self.shard}", address, NO_SECRET).close()
        except AuthenticationError:
            pass  # Whoever refuses is alive.
        except PeerSilentError:
            silence = f"shard {self.shard} is gone: no answer for {PING_AFTER:g} s, and none to handshakes"
            raise _lost(PeerSilentError(silence), self._actor) from None
        except PeerLostError as error:
            raise _lost(error, self._actor) from None


class ShardConnection:
    """A connection of the transport to a shard, as part of an attempt: the attempt's name is the secret."""

    def __init__(self, shard: int, address: Address, attempt: str, actor: Any = None) -> None:
        self.shard, self._actor = shard, actor
        try:
            self._client = TransportClient(f"shard {shard}", address, attempt)
        except PeerLostError as error:
            raise _lost(error, actor) from None

    def ask(self, request: Message) -> Pending:
        """Send a request; its reply comes later."""
        try:
            return self._client.ask(request)
        except PeerLostError as error:
            raise _lost(error, self._actor) from None

    def answer(self, pending: Pending) -> Received:
        """Wait for the reply to a request."""
        try:
            return self._client.answer(pending)
        except PeerLostError as error:
            raise _lost(error, self._actor) from None

    def close(self) -> None:
        """Hang up."""
        self._client.close()


class TransportCall:
    """A request on a connection; `read` makes of the reply what was asked for."""

    def __init__(
        self, shard: int, connection: ShardConnection, request: Message, read: Callable[[Received], Any]
    ) -> None:
        self.shard, self._connection, self._read = shard, connection, read
        self._pending = connection.ask(request)

    def result(self) -> Any:
        """Wait for the answer."""
        reply = self._connection.answer(self._pending)
        if reply.kind != ERROR:
            return self._read(reply)
        code, text = read_error(reply)
        raise ShardLostError(text) if code == ErrorCode.STALE_ATTEMPT else DkgeError(f"shard {self.shard}: {text}")


def results(calls: Iterable[Call]) -> list[Any]:
    """Wait for all answers, in order."""
    return [call.result() for call in calls]


def _lost(error: PeerLostError, actor: Any) -> ShardLostError:
    """What callers are told. A silent actor is ended, as a stopped process would stay: Ray brings another one, which
    belongs to no attempt."""
    if isinstance(error, PeerSilentError) and actor is not None:
        ray.kill(actor, no_restart=False)
    is_other = isinstance(error, AuthenticationError)
    return ShardLostError(f"{error}: restarted, or in another attempt by now" if is_other else str(error))


def _short(error: BaseException) -> str:
    """The first lines of what Ray says, which goes on for long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300]
