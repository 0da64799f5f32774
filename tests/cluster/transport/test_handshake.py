"""Who is at the other end: proved both ways, without a word of the secret, within a deadline."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from dkge_dist.cluster.transport import AuthenticationError
from dkge_dist.cluster.transport.handshake import (
    GREETING,
    NONCE_BYTES,
    PROOF_BYTES,
    authenticate_client,
    authenticate_server,
)

SECRET, ENDPOINT = "0123456789abcdef", "tcp:127.0.0.1:1"
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as made:
        yield made


def serve(threads: ThreadPoolExecutor, end: socket.socket, secret: str, endpoint: str = ENDPOINT) -> Future[None]:
    return threads.submit(authenticate_client, end, secret, endpoint, 2.0)


def connect(threads: ThreadPoolExecutor, end: socket.socket, secret: str, endpoint: str = ENDPOINT) -> Future[None]:
    return threads.submit(authenticate_server, end, secret, endpoint, 2.0)


def test_both_who_know_the_secret_are_content(ends: Ends, threads: ThreadPoolExecutor) -> None:
    outcomes = serve(threads, ends[0], SECRET), connect(threads, ends[1], SECRET)
    assert [outcome.result() for outcome in outcomes] == [None, None]


@pytest.mark.parametrize(
    ("server", "client"), [(SECRET, "guess"), ("guess", SECRET), ("", SECRET), (SECRET, SECRET[:4])]
)
def test_another_secret_is_refused_by_both(ends: Ends, threads: ThreadPoolExecutor, server: str, client: str) -> None:
    served, connected = serve(threads, ends[0], server), connect(threads, ends[1], client)
    with pytest.raises(AuthenticationError, match="does not know the secret"):
        served.result()
    with pytest.raises(AuthenticationError, match="refuses our secret"):
        connected.result()


def test_no_secret_is_no_secret_to_agree_on(ends: Ends, threads: ThreadPoolExecutor) -> None:
    connected = connect(threads, ends[1], "")
    with pytest.raises(AuthenticationError, match="without a secret"):
        connected.result()


def relay(threads: ThreadPoolExecutor, one: socket.socket, other: socket.socket) -> list[bytes]:
    """Pass on all bytes between two sockets; what was passed on."""
    seen: list[bytes] = []

    def pass_on(source: socket.socket, to: socket.socket) -> None:
        while data := source.recv(1 << 16):
            seen.append(data)
            to.sendall(data)

    threads.submit(pass_on, one, other)
    threads.submit(pass_on, other, one)
    return seen


def test_the_secret_is_never_sent(threads: ThreadPoolExecutor) -> None:
    (server, one), (other, client) = socket.socketpair(), socket.socketpair()
    with server, one, other, client:
        seen = relay(threads, one, other)
        outcomes = serve(threads, server, SECRET), connect(threads, client, SECRET)
        for outcome in outcomes:
            outcome.result()
        everything = b"".join(seen)
        server.shutdown(socket.SHUT_RDWR)
        client.shutdown(socket.SHUT_RDWR)
    assert len(everything) == len(GREETING) + 2 * NONCE_BYTES + 2 * PROOF_BYTES
    assert SECRET.encode() not in everything
    assert bytes.fromhex(SECRET) not in everything


def test_a_relay_to_a_server_elsewhere_is_refused(threads: ThreadPoolExecutor) -> None:
    """As by a process that took over the name of a shard that died, and knows where another one is."""
    (server, one), (other, client) = socket.socketpair(), socket.socketpair()
    with server, one, other, client:
        relay(threads, one, other)
        served = serve(threads, server, SECRET, "unix:dkge-new")
        connected = connect(threads, client, SECRET, "unix:dkge-old")
        with pytest.raises(AuthenticationError):
            served.result()
        with pytest.raises(AuthenticationError):
            connected.result()
        server.shutdown(socket.SHUT_RDWR)
        client.shutdown(socket.SHUT_RDWR)


def reflect(told: bytes) -> bytes:
    return told[NONCE_BYTES:]


def guess(told: bytes) -> bytes:
    return os.urandom(PROOF_BYTES)


@pytest.mark.parametrize("prove", [reflect, guess])
def test_a_server_without_the_secret_is_refused(
    ends: Ends, threads: ThreadPoolExecutor, prove: Callable[[bytes], bytes]
) -> None:
    impostor, end = ends
    connected = connect(threads, end, SECRET)
    impostor.sendall(GREETING + os.urandom(NONCE_BYTES))
    told = impostor.recv(NONCE_BYTES + PROOF_BYTES)
    impostor.sendall(prove(told))
    with pytest.raises(AuthenticationError, match="does not know the secret"):
        connected.result()


def test_another_protocol_is_refused(ends: Ends, threads: ThreadPoolExecutor) -> None:
    connected = connect(threads, ends[1], SECRET)
    ends[0].sendall(b"HTTP/1.1 400 Bad Request\r\n".ljust(100))
    with pytest.raises(AuthenticationError, match="greets with b'HTTP/'"):
        connected.result()


@pytest.mark.parametrize("drips", [False, True], ids=["silent", "byte by byte"])
def test_the_deadline_holds_for_the_whole_handshake(ends: Ends, threads: ThreadPoolExecutor, drips: bool) -> None:
    began = time.monotonic()
    served = threads.submit(authenticate_client, ends[0], SECRET, ENDPOINT, 0.5)
    while drips and not served.done():
        ends[1].send(b"x")
        time.sleep(0.1)
    with pytest.raises(TimeoutError):
        served.result()
    # Bytes that each get a deadline of their own would come for ever; a busy machine is late by seconds.
    assert time.monotonic() - began < 10


def test_a_peer_that_hangs_up_is_noticed(ends: Ends) -> None:
    ends[1].close()
    with pytest.raises((EOFError, OSError)):
        authenticate_client(ends[0], SECRET, ENDPOINT, 1.0)


@pytest.mark.parametrize("authenticate", [authenticate_client, authenticate_server])
def test_a_process_of_another_user_is_told_nothing(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, authenticate: Callable[..., None]
) -> None:
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)  # To both ends the other one is now another user.
    with pytest.raises(AuthenticationError, match=rf"runs as user {user}, not {user + 1}"):
        authenticate(ends[0], SECRET, ENDPOINT, 1.0)
    ends[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        ends[1].recv(1)


def take_over_as_nobody(name: str, ready: int) -> int:
    """Listen as another user; how many bytes a client says there."""
    os.setresuid(65534, 65534, 65534)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        os.write(ready, b"x")
        connection, _ = listening.accept()
    with connection, suppress(ConnectionError):
        connection.sendall(GREETING + bytes(NONCE_BYTES))
        return len(connection.recv(100))
    return 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_real_process_of_another_user_is_told_nothing() -> None:
    name = f"\0dkge-test-{os.getpid()}"
    reading, ready = os.pipe()
    child = os.fork()
    if not child:
        heard = 200
        try:
            heard = take_over_as_nobody(name, ready)
        finally:
            os._exit(heard)
    os.read(reading, 1)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
        with pytest.raises(AuthenticationError, match="runs as user 65534"):
            authenticate_server(client, SECRET, ENDPOINT, 1.0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(reading)
    os.close(ready)
