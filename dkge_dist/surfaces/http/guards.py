"""What stands between the network and the application: who may ask, how much, how often and how long.

In: HTTP requests. Out: the application's answers, or a JSON error of the 4xx kind; 503 where the server is too busy.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from dkge_dist.surfaces.events import EventLog
from dkge_dist.surfaces.http.options import is_loopback
from dkge_dist.surfaces.http.request_metrics import RequestMetrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/health", "/ready")
"""Asked by whoever watches the process, who has no token. They tell nothing of the graph."""
CLIENTS = 10_000
"""Addresses whose rate is remembered."""
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    # Pages bring all that they need: nothing is loaded from elsewhere, and nothing is sent there.
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data:; "
        b"font-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"cache-control", b"no-store"),
]


@dataclass(frozen=True)
class GuardOptions:
    """`token` is asked of everybody if there is one; without, only loopback names may be asked for.

    A body has `body_bytes` at most; it comes, and its request is answered, within `seconds`. An address may ask `rate`
    times a second in the long run and `rate` times at once; 0 means no limit.
    """

    token: bytes | None = None
    body_bytes: int = 1 << 20
    seconds: float = 30.0
    rate: float = 0.0


class _RefusedError(Exception):
    def __init__(self, status: int, message: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or []


class Rate:
    """A bucket of tokens for every address, refilled at a steady rate."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, client: str) -> float:
        """0 if a client may ask now; else how long it has to wait."""
        if not self.rate:
            return 0.0
        now, most = self._clock(), max(1.0, self.rate)
        left, then = self._left.pop(client, (most, now))
        left = min(most, left + (now - then) * self.rate)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > CLIENTS:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / self.rate


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App, options: GuardOptions, metrics: RequestMetrics, log: EventLog | None = None) -> None:
        self._app, self._options, self._metrics, self._log = app, options, metrics, log
        self._rate = Rate(options.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Guard a request; what is no request goes through."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        sent = _Sent(send)
        try:
            self._admit(scope)
            until = asyncio.get_running_loop().time() + self._options.seconds
            body = await self._body(scope, receive, until)
            async with asyncio.timeout_at(until):
                await self._app(scope, body, sent)
        except _RefusedError as error:
            await sent.error(error.status, str(error), error.headers)
        except TimeoutError:
            told = f"not answered within {self._options.seconds:g} s; ask for less, or again later"
            await sent.error(503, told, [(b"retry-after", b"1")])
        finally:
            route = getattr(scope.get("route"), "path", None)
            seconds = time.perf_counter() - began
            self._metrics.count(route, sent.status, seconds)
            if self._log is not None:
                # Not what was asked for: questions may be private.
                self._log.write(
                    "request",
                    request=secrets.token_hex(8),
                    method=scope["method"],
                    route=route or "other",
                    status=sent.status,
                    milliseconds=round(1000 * seconds, 3),
                    client=scope["client"][0] if scope.get("client") else None,
                    version=int(sent.answered_by) if sent.answered_by is not None else None,
                )

    def _admit(self, scope: Scope) -> None:
        headers = {name: value for name, value in scope["headers"] if name in (b"authorization", b"host")}
        client = scope["client"][0] if scope.get("client") else ""
        if wait := self._rate.wait_seconds(client):
            again = str(math.ceil(wait)).encode("ascii")
            raise _RefusedError(429, f"more than {self._options.rate:g} requests a second", [(b"retry-after", again)])
        if scope["path"] in OPEN_PATHS:
            return
        if self._options.token is None:
            # A page elsewhere could have its own name lead to this machine, and read what a browser gets from here.
            if not is_loopback(_host_of(headers.get(b"host", b""))):
                raise _RefusedError(421, "without a token this server answers to localhost alone")
        elif not hmac.compare_digest(_token_of(headers.get(b"authorization", b"")), self._options.token):
            # Browsers ask for a name and a password, and send them with what pages ask for.
            asks = [(b"www-authenticate", b'Basic realm="dkge", charset="UTF-8"')]
            raise _RefusedError(401, "a token is needed: `Authorization: Bearer TOKEN`, or as a password", asks)

    async def _body(self, scope: Scope, receive: Receive, until: float) -> Receive:
        """The body of a request, all of it or none; it has to come in time."""
        try:
            async with asyncio.timeout_at(until):
                return await self._whole_body(scope, receive)
        except TimeoutError:
            raise _RefusedError(408, f"the body did not come within {self._options.seconds:g} s") from None

    async def _whole_body(self, scope: Scope, receive: Receive) -> Receive:
        limit = self._options.body_bytes
        told = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not told.isdigit() or int(told) > limit:
            raise _RefusedError(413, f"the body is larger than {limit:,} bytes")
        if scope["method"] in ("GET", "HEAD"):
            return receive
        pieces, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return _once(message, receive)  # The client went away.
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            more = message.get("more_body", False)
            if size > limit:
                raise _RefusedError(413, f"the body is larger than {limit:,} bytes")
        return _once({"type": "http.request", "body": b"".join(pieces), "more_body": False}, receive)


def _once(message: Message, then: Receive) -> Receive:
    waiting = [message]

    async def receive() -> Message:
        return waiting.pop() if waiting else await then()

    return receive


class _Sent:
    """Sends an answer on, with the headers that all answers have, and remembers what it was."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.answered_by: str | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", []))
            self.answered_by = next((v.decode("ascii") for n, v in headers if n == b"x-dkge-version"), None)
            message = {**message, "headers": headers + HEADERS}
        await self._send(message)

    async def error(self, status: int, message: str, headers: list[tuple[bytes, bytes]]) -> None:
        """An error, unless an answer began already."""
        if self.status:
            return
        body = error_body(message)
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode("ascii")), *headers]
        await self({"type": "http.response.start", "status": status, "headers": head})
        await self({"type": "http.response.body", "body": body})


def error_body(message: str) -> bytes:
    """An error as JSON. ASCII alone: what is wrong about a label may be that it is no text."""
    return json.dumps({"error": message}).encode("ascii")


def _host_of(header: bytes) -> str:
    """The host of a Host header, without its port."""
    text = header.decode("latin-1")
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _token_of(header: bytes) -> bytes:
    """The token of an Authorization header: by itself, or as the password of whatever name."""
    scheme, _, rest = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return b""
