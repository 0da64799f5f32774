"""Guards: tokens, hosts, rates and sizes; and whatever is sent, the answer is an error of whoever asked, in JSON."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import random
import socket
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from dkge_dist.surfaces.http.guards import (
    CLIENTS,
    Guard,
    GuardOptions,
    Message,
    Rate,
    Receive,
    Scope,
    Send,
    is_loopback,
)
from dkge_dist.surfaces.http.options import ServeOptions
from dkge_dist.surfaces.http.request_metrics import RequestMetrics
from dkge_dist.surfaces.metrics import exposition
from dkge_dist.types import UsageError
from tests.cli.running import dkge
from tests.serving.running import Reply, Server

SEED = int(os.environ.get("DKGE_SEED", "1"))
FUZZED = int(os.environ.get("DKGE_FUZZ", "300"))
TOKEN = "0123456789abcdef-secret"

NASTY = [
    "", "?", "e4", "r2", "-1", "0", "1e999", "NaN", "null", "true", "99999999999999999999999", "\0", "\x7f", "a\nb",
    "a\r\nb: c", "../../../../etc/passwd", "/etc/passwd", "%2e%2e%2f", "s3://bucket/x", "' OR 1=1 --",
    "<script>alert(1)</script>", "{{7*7}}", "${jndi:ldap://x}", "\u202e", "\ufeff", "😀" * 50, "x" * 5000, "٣",
    "2026-13-45", "0001-01-01", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00+99:99", "00000000000000000001", "+5", " 5",
    "5 ", "0x5", "5.0", "[]", "{}", "base", "night1", "versions/00000001", "aliases/production", ".", "..", "\\",
    "a\tb", "İ", "ß" * 3000,
]  # fmt: skip
NAMES = [
    "head", "relation", "tail", "k", "known", "why", "new_only", "evidence", "probability", "version", "as_of", "q",
    "kind", "limit", "offset", "label", "entity", "ranks", "from", "to", "about", "unknown",
]  # fmt: skip
ROUTES = ["answer", "score", "similar", "vectors", "search", "entity", "versions", "diff", "fidelity", "none"]


def assert_polite(reply: Reply, store: Path) -> None:
    """Answered, or told why not: nothing of the server's machine, and no fault of the server's."""
    assert reply.status < 500, (reply.status, reply.body)
    if reply.status >= 400:
        assert reply.error
    text = reply.body.decode()
    for told in (str(store), str(store.parent), "site-packages", "Traceback", "dkge_dist/"):
        assert told not in text


def test_hostile_queries(server: Server, served_store: Path) -> None:
    chance = random.Random(SEED)
    statuses = []
    for _ in range(FUZZED):
        pairs = [(chance.choice(NAMES), chance.choice(NASTY)) for _ in range(chance.randint(0, 6))]
        query = "&".join(f"{name}={quote(value)}" for name, value in pairs)
        path = f"/api/{chance.choice(ROUTES)}?{query}"
        reply = server.request("GET", path)
        assert_polite(reply, served_store)
        statuses.append(reply.status)
    assert {400, 404, 422} <= set(statuses)


def test_every_parameter_of_a_good_question_spoilt(server: Server, served_store: Path) -> None:
    good = {
        "answer": {"head": "e4", "relation": "r2", "k": "3", "version": "2", "why": "true"},
        "search": {"q": "e", "kind": "entity", "limit": "3", "as_of": "base"},
        "diff": {"from": "1", "to": "4", "limit": "2", "about": "e4"},
    }
    for route, parameters in good.items():
        for name in parameters:
            for value in NASTY:
                query = "&".join(f"{key}={quote(value if key == name else some)}" for key, some in parameters.items())
                assert_polite(server.request("GET", f"/api/{route}?{query}"), served_store)


BODIES: list[bytes] = [
    b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe", b'"' + b"a" * 1000, b"[" * 50_000, b'{"batch":' * 5000,
    b'{"batch": []}', b'{"batch": null}', b'{"batch": "e4"}', b'{"batch": [1, 2]}', b'{"batch": [[]]}',
    b'{"batch": [{}]}', b'{"batch": [{"x": 1}]}', b'{"batch": [{"head": "\\ud800", "relation": "r2"}]}',
    b'{"batch": ["\\ud800"]}', b'{"batch": ["\\u0000"]}', b'{"batch": [{"head": "e4", "relation": "r2"}], "k": 1e400}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "k": -1}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "k": NaN}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "k": "many"}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "version": "\\ud800"}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "version": "../x"}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "version": 2}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "why": 7}',
    b'{"batch": [{"head": "e4", "relation": "r2"}], "more": 1}',
    b'{"batch": [{"head": "?", "relation": "?", "tail": "?"}]}', b'{"batch": [' + b"1," * 10_000 + b"1]}",
    json.dumps({"batch": [{"head": "e4", "relation": "r2"}] * 257}).encode(),
    json.dumps({"batch": [{"head": "e4", "relation": "r2"}] * 256, "k": 1000}).encode(),
    json.dumps({"batch": [{"head": "e4", "relation": "r2"}] * 100, "why": True}).encode(),
    json.dumps({"batch": [{"head": "x" * 5000, "relation": "r2"}]}).encode(),
    json.dumps({"batch": ["e4"] * 1000, "k": 1}).encode(),
]  # fmt: skip


@pytest.mark.parametrize("route", ["answer", "score", "similar"])
def test_hostile_bodies(server: Server, served_store: Path, route: str) -> None:
    for body in BODIES:
        for kind in ("application/json", "text/plain", ""):
            reply = server.request("POST", f"/api/{route}", body, {"content-type": kind} if kind else {})
            assert_polite(reply, served_store)
    assert_polite(server.request("POST", "/api/vectors", b"{}"), served_store)


def test_hostile_paths_and_methods(server: Server, served_store: Path) -> None:
    for path in (
        "/../../../../etc/passwd",
        "/static/../app.py",
        "//etc/passwd",
        "/api",
        "/api/",
        "/api/answer/",
        "/%00",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/explorer.html",
        "/static/explorer.html",
        "/docs/../x",
        "/*",
        "/.git",
    ):
        reply = server.request("GET", path)
        assert reply.status in (404, 307), path
        assert b"root:" not in reply.body
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "X"):
        reply = server.request(method, "/api/answer")
        assert reply.status == 405, method
    assert server.get("/api/answer", head="e4", relation="r2", k=1001).error.startswith(
        "k: 1,001 is more than the 1,000"
    )
    assert server.get("/api/answer", head="e4", relation="r2", top=3).error == "top: Extra inputs are not permitted"
    assert server.get("/api/answer", head="e4").error.startswith("give two of head, relation and tail")
    assert "a whole triple" in server.get("/api/score", head="e4", relation="?", tail="e4").error


def test_what_is_no_http(server: Server) -> None:
    for data in (
        b"\0" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /api/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nx",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                reply = connection.recv(100)
            except ConnectionError:
                reply = b""
            assert not reply or reply.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    assert server.get("/health").json == {"status": "ok"}


def test_large_bodies_are_refused_before_they_are_read(server: Server) -> None:
    for headers, body in (
        ({"content-length": str(1 << 40)}, b"{"),
        ({"transfer-encoding": "chunked"}, b"%x\r\n" % (2 << 20) + b" " * (2 << 20) + b"\r\n0\r\n\r\n"),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.putrequest("POST", "/api/answer")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        with suppress(ConnectionError):  # It does not read on.
            connection.send(body)
        found = connection.getresponse()
        assert found.status == 413 and "larger than 1,048,576 bytes" in json.loads(found.read())["error"]
        connection.close()


def test_other_hosts_are_refused_without_a_token(server: Server) -> None:
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.example", "0.0.0.0"):
        reply = server.request("GET", "/api/versions", headers={"host": host})
        assert reply.status == 421 and "localhost alone" in reply.error
    for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:80", "LOCALHOST"):
        assert server.request("GET", "/api/versions", headers={"host": host}).status == 200


def test_tokens_limits_and_logs(served_store: Path, tmp_path: Path) -> None:
    """One server for all that needs other options than the default."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    options = [
        "--host", "0.0.0.0", "--token-file", str(tmp_path / "token"), "--max-k", "5", "--max-batch", "2", "--rate",
        "1000", "--max-body-kb", "1", "--max-seconds", "5", "--log-json", str(tmp_path / "log"),
    ]  # fmt: skip
    with Server(served_store, *options, env={"DKGE_CACHE": str(tmp_path / "cache")}) as server:

        def asked(path: str, authorization: str | None, host: str = "any.example") -> Reply:
            headers = {"host": host} | ({"authorization": authorization} if authorization is not None else {})
            return server.request("GET", path, headers=headers)

        for wrong in (
            None,
            "",
            "Bearer",
            "Bearer x",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            TOKEN,
            "Basic !",
            "Basic ",
            "Basic " + base64.b64encode(b"user:x").decode(),
            "Digest x",
            "Bearer \xff",
        ):
            for path in ("/api/versions", "/", "/docs", "/metrics", "/openapi.json", "/nowhere"):
                reply = asked(path, wrong)
                assert reply.status == 401 and "token is needed" in reply.error
                assert reply.headers["www-authenticate"].startswith("Basic")
        basic = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()
        for right in (f"Bearer {TOKEN}", f"bearer {TOKEN}", f"Basic {basic}"):
            assert asked("/api/versions", right).status == 200
        assert asked("/health", None).status == 200 and asked("/ready", None).status in (200, 503)
        right = f"Bearer {TOKEN}"
        assert "k: 6 is more than the 5" in asked("/api/answer?head=e4&relation=r2&k=6&known=0", right).error
        headers = {"authorization": right, "content-type": "application/json"}
        three = json.dumps({"batch": ["e4"] * 3, "k": 1}).encode()
        reply = server.request("POST", "/api/similar", three, headers)
        assert reply.status == 400 and "batch: 3 is more than the 2" in reply.error
        reply = server.request("POST", "/api/similar", b" " * 1025, headers)
        assert reply.status == 413
        # A body that does not come is not waited for.
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.putrequest("POST", "/api/similar")
        connection.putheader("authorization", right)
        connection.putheader("content-length", "100")
        connection.endheaders(b"{")
        found = connection.getresponse()
        assert found.status == 408 and time.monotonic() - began < 40
        connection.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {line["event"] for line in lines} == {"request"} and len({line["request"] for line in lines}) == len(lines)
    assert {line["status"] for line in lines} >= {200, 400, 401, 408, 413}
    assert all(TOKEN not in json.dumps(line) for line in lines)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_hosts_need_a_token(served_store: Path, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DKGE_TOKEN", raising=False)
    with pytest.raises(UsageError, match="set DKGE_TOKEN, or name a --token-file"):
        ServeOptions(str(served_store), host=host).checked()
    monkeypatch.setenv("DKGE_TOKEN", "short")
    with pytest.raises(UsageError, match="a token is 16 to 512"):
        ServeOptions(str(served_store), host=host).checked()
    monkeypatch.setenv("DKGE_TOKEN", TOKEN)
    assert ServeOptions(str(served_store), host=host).checked().rate == 50


def test_errors_of_the_command(served_store: Path, tmp_path: Path) -> None:
    for words, said in (
        ((tmp_path / "none",), "no store here yet"),
        ((served_store, "--host", "0.0.0.0"), "others could ask too"),
        ((served_store, "--version", "none"), "no snapshot 'none'"),
        ((served_store, "--token-file", tmp_path / "none"), "No such file"),
    ):
        ended = dkge("serve", *words)
        assert ended.code in (1, 2) and said in ended.stderr and ended.stdout == ""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = dkge("serve", served_store, "--port", str(taken.getsockname()[1]))
        assert ended.code == 2 and "in use" in ended.stderr


@pytest.mark.parametrize(("pieces", "is_slow", "status"), [(2, False, 200), (0, False, 408), (2, True, 503)])
def test_what_takes_too_long_is_given_up(pieces: int, is_slow: bool, status: int) -> None:
    """A body that does not come is the fault of the client, an answer that does not come is that of the server."""
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": [(b"host", b"localhost")], "query_string": b""}
    left, sent = [b"a"] * pieces, []

    async def receive() -> Message:
        if not left:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": left.pop(), "more_body": bool(left)}

    async def send(message: Message) -> None:
        sent.append(message)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["body"] == b"aa"
        await asyncio.sleep(60 if is_slow else 0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    metrics = RequestMetrics(["/x"])
    asyncio.run(Guard(app, GuardOptions(seconds=0.3), metrics)(scope, receive, send))
    assert sent[0]["status"] == status
    assert f'status="{status // 100}xx"' in exposition(metrics.families())


def test_rates_are_those_of_an_address() -> None:
    now = [0.0]
    rate = Rate(2, lambda: now[0])
    assert [rate.wait_seconds("a") for _ in range(3)] == [0, 0, 0.5]
    assert rate.wait_seconds("b") == 0
    now[0] += 0.5
    assert [rate.wait_seconds("a") for _ in range(2)] == [0, 0.5]
    now[0] += 100
    assert [rate.wait_seconds("a") > 0 for _ in range(3)] == [False, False, True]
    for number in range(CLIENTS + 5):
        rate.wait_seconds(str(number))
    assert len(rate._left) == CLIENTS
    assert Rate(0).wait_seconds("a") == 0


def test_which_hosts_are_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "LocalHost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "1")))
