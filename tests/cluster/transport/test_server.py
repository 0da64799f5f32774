"""The server's door: what strangers can cost it, what errors it survives, and how it keeps its clients waiting."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest

from dkge_dist.cluster.transport import AuthenticationError, Message, PeerLostError, TransportClient, TransportServer
from dkge_dist.cluster.transport.message import HEADER_BYTES, MAGIC
from dkge_dist.cluster.transport.server import MAX_PENDING
from tests.cluster.transport.echo import SECRET, SHORT, WORK, Process, echo, far, message, process, says_hello


@contextmanager
def strangers(address: tuple[str, int], count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address, 5)) for _ in range(count)]


@pytest.fixture(scope="module")
def starved() -> Iterator[Process]:
    """A server that may have 100 files open."""
    with process(100) as made:
        yield made


def test_idle_strangers_keep_nobody_out(starved: Process, is_far: bool) -> None:
    with strangers(starved.address[:2], 150):
        client = TransportClient("server", far(starved.address) if is_far else starved.address, SECRET)
        assert says_hello(client)
        client.close()


def test_running_out_of_descriptors_is_survived(starved: Process, is_far: bool) -> None:
    starved.tell("exhaust")
    with strangers(starved.address[:2], 20):
        time.sleep(0.3)
        starved.tell("release")
        client = TransportClient("server", far(starved.address) if is_far else starved.address, SECRET)
        assert says_hello(client)
        client.close()


def test_the_oldest_stranger_gives_way(server: TransportServer) -> None:
    with strangers(server.address[:2], MAX_PENDING + 1) as (oldest, *others):
        oldest.settimeout(0.9)  # Before its handshake would be over time.
        while oldest.recv(100):
            pass
        others[-1].settimeout(0.1)
        others[-1].recv(100)
        with pytest.raises(TimeoutError):
            others[-1].recv(100)


def test_a_stranger_is_hung_up_on_in_time(server: TransportServer) -> None:
    with strangers(server.address[:2], 1) as (idle,):
        began = time.monotonic()
        idle.settimeout(10)
        while idle.recv(100):
            pass
        assert 0.5 < time.monotonic() - began < 5


def test_a_password_of_300_megabytes_is_not_taken_in(starved: Process) -> None:
    with strangers(starved.address[:2], 1) as (stranger,):
        before, sent, block = starved.peak_bytes(), 0, bytes(1 << 20)
        with suppress(ConnectionError):
            while sent < 300 << 20:
                sent += stranger.send(block)
        assert sent < 30 << 20, "no more than sockets hold"
        assert starved.peak_bytes() - before < 30 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * HEADER_BYTES,
        MAGIC.ljust(HEADER_BYTES, b"\0"),
        bytes(range(256)) * 256,
        b"",
    ],
    ids=["http", "letters", "magic", "noise", "nothing"],
)
def test_strangers_get_no_answer_and_harm_nobody(server: TransportServer, data: bytes) -> None:
    with strangers(server.address[:2], 1) as (stranger,):
        stranger.settimeout(10)
        told = b""
        with suppress(OSError):  # Hung up on already, perhaps.
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            while some := stranger.recv(1 << 16):
                told += some
        assert len(told) <= 37 + 32
        assert told[37:] == bytes(len(told[37:])), "refused"
    client = TransportClient("server", server.address, SECRET)
    assert says_hello(client)
    client.close()


@pytest.mark.parametrize("secret", ["", "0123456789abcdeg", "0123"])
def test_who_does_not_know_the_secret_is_not_let_in(server: TransportServer, secret: str, is_far: bool) -> None:
    with pytest.raises(AuthenticationError, match=r"^server (refuses our secret|was called without a secret)$"):
        TransportClient("server", far(server.address) if is_far else server.address, secret)


def test_the_secret_may_change() -> None:
    secrets = [""]
    server = TransportServer("127.0.0.1", lambda: secrets[0], echo, **SHORT)
    with pytest.raises(AuthenticationError):
        TransportClient("server", server.address, SECRET)
    secrets[0] = SECRET
    client = TransportClient("server", server.address, SECRET)
    secrets[0] = "another"
    assert says_hello(client), "it was let in with the one before, and is told apart by `answer`"
    with pytest.raises(AuthenticationError):
        TransportClient("server", server.address, SECRET)
    client.close()
    server.close()


def test_a_busy_server_is_not_lost(server: TransportServer) -> None:
    client = TransportClient("server", server.address, SECRET, silence_seconds=0.8)
    slow = client.ask(message(np.arange(3), kind=WORK, seconds=1.5))
    assert (client.answer(slow).arrays[0] == np.arange(3)).all()
    assert says_hello(client)
    client.close()


def test_the_initializer_runs_in_threads_that_answer() -> None:
    initialized: set[int] = set()
    answered: set[int] = set()

    def answer(*arguments: object) -> Message:
        answered.add(threading.get_ident())
        return message()

    server = TransportServer("127.0.0.1", lambda: SECRET, answer, lambda: initialized.add(threading.get_ident()))
    clients = [TransportClient("server", server.address, SECRET) for _ in range(3)]
    for client in clients:
        client.answer(client.ask(message()))
        client.close()
    assert answered == initialized
    assert len(answered) == 3
    server.close()


def test_close_ends_everything() -> None:
    before = set(threading.enumerate())
    server = TransportServer("127.0.0.1", lambda: SECRET, echo, **SHORT)
    client = TransportClient("server", server.address, SECRET)
    assert says_hello(client)
    server.close()
    with pytest.raises(PeerLostError, match="server is gone"):
        client.answer(client.ask(message()))
    client.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


def test_clients_that_come_and_go_do_not_end_the_keepalives_of_others() -> None:
    """A connection may be closed between being listed for a keep-alive and being sent one."""
    server = TransportServer("127.0.0.1", lambda: SECRET, echo, keepalive_seconds=1e-5)
    for _ in range(300):
        passing = TransportClient("server", server.address, SECRET)
        assert says_hello(passing)
        passing.close()
    client = TransportClient("server", server.address, SECRET, silence_seconds=0.4)
    assert client.answer(client.ask(message(kind=WORK, seconds=0.8)))
    client.close()
    server.close()
