"""Calls to shards: sent at once, answered later, sent again when the way there was cut for a moment.

Every call may be repeated: reading and writing rows by nature, pushing because the shard knows what it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RayTaskError

from dkge_dist.cluster.channel import Message, Received
from dkge_dist.cluster.requests import ERROR, read_error
from dkge_dist.cluster.wire import Connection, ShardLostError
from dkge_dist.types import DkgeError

TRIES = 5
PAUSE = 1.0
STALE = "StaleAttemptError"


class Call(Protocol):
    """One call of one shard, under way."""

    def result(self) -> Any:
        """Wait for the answer."""


class RayCall:
    """By way of Ray."""

    def __init__(self, shard: int, actor: Any, method: str, arguments: tuple[Any, ...]) -> None:
        self.shard, self._actor, self._method, self._arguments = shard, actor, method, arguments
        self._ref = self._send()

    def _send(self) -> Any:
        return getattr(self._actor, self._method).remote(*self._arguments)

    def result(self) -> Any:
        """Wait for the answer."""
        for attempt in range(TRIES):
            try:
                return ray.get(self._ref)
            except ActorUnavailableError as error:
                if attempt == TRIES - 1:
                    raise ShardLostError(f"shard {self.shard} cannot be reached: {_short(error)}") from None
                time.sleep(PAUSE * (attempt + 1))
                self._ref = self._send()
            except RayTaskError as error:
                cause = error.cause
                if type(cause).__name__ == STALE:
                    raise ShardLostError(str(cause)) from None
                if isinstance(cause, DkgeError | OSError):
                    raise DkgeError(f"shard {self.shard}: {cause}") from None
                raise
            except (RayActorError, RayError) as error:
                raise ShardLostError(f"shard {self.shard} is gone: {_short(error)}") from None
        raise AssertionError("unreachable")


class WireCall:
    """By a connection of its own; `read` makes of the message what was asked for."""

    def __init__(self, shard: int, connection: Connection, request: Message, read: Callable[[Received], Any]) -> None:
        self.shard, self._connection, self._read = shard, connection, read
        self._asked = connection.ask(request)

    def result(self) -> Any:
        """Wait for the answer."""
        message = self._connection.answer(self._asked)
        if message.about != ERROR:
            return self._read(message)
        is_stale, words = read_error(message)
        raise ShardLostError(words) if is_stale else DkgeError(f"shard {self.shard}: {words}")


def results(calls: Iterable[Call]) -> list[Any]:
    """Wait for all answers, in order."""
    return [call.result() for call in calls]


def _short(error: BaseException) -> str:
    """The first lines of what Ray says, which goes on for long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300]
