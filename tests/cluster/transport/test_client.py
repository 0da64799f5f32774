"""The client's side: broken connections are made again, lost servers are noticed in a stated time."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dkge_dist.cluster.transport import (
    Address,
    AllocateReply,
    AuthenticationError,
    Message,
    PeerLostError,
    PeerSilentError,
    Received,
    TransportClient,
    TransportServer,
    address,
    shared_memory,
)
from dkge_dist.cluster.transport.handshake import GREETING, NONCE_BYTES, PROOF_BYTES
from tests.cluster.transport.echo import SECRET, SHORT, WORK, Process, echo, far, message, process, says_hello


def connect(at: Address, is_far: bool = False, silence_seconds: float = 10.0) -> TransportClient:
    return TransportClient("shard 3", far(at) if is_far else at, SECRET, silence_seconds)


def test_requests_are_answered_in_any_order_asked_for(server: TransportServer, is_far: bool) -> None:
    client = connect(server.address, is_far)
    pending = [client.ask(message(np.full(5, number))) for number in range(10)]
    for number in (3, 9, 0, *range(10)):
        assert (client.answer(pending[number]).arrays[0] == number).all()
    client.close()


def test_threads_share_a_client(server: TransportServer, is_far: bool) -> None:
    client = connect(server.address, is_far)

    def ask(number: int) -> bool:
        pending = [client.ask(message(np.full(number, number))) for _ in range(5)]
        return all((client.answer(one).arrays[0] == np.full(number, number)).all() for one in pending)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(100)))
    client.close()


def test_requests_that_do_not_fit_shared_memory_are_answered(monkeypatch: pytest.MonkeyPatch, is_far: bool) -> None:
    monkeypatch.setattr(shared_memory, "SHARED_BYTES", 1 << 14)
    server = TransportServer("127.0.0.1", lambda: SECRET, echo, **SHORT)
    client = connect(server.address, is_far)
    rng = np.random.default_rng(5)
    sent = [rng.integers(0, 200, size) for size in rng.integers(0, 9000, 40)]
    for array, pending in zip(sent, [client.ask(message(array)) for array in sent], strict=True):
        assert (client.answer(pending).arrays[0] == array).all()
    client.close()
    server.close()


@pytest.mark.parametrize("cut_before", [True, False], ids=["request lost", "reply lost"])
def test_a_broken_connection_is_made_again(cut_before: bool, is_far: bool) -> None:
    seen: list[int] = []

    def cutting(secret: str, request: Received, allocate: AllocateReply) -> Message:
        seen.append(int(request.arrays[0][0]))
        if not cut_before and len(seen) == 1:
            client._channel.hang_up()
        return echo(secret, request, allocate)

    server = TransportServer("127.0.0.1", lambda: SECRET, cutting, **SHORT)
    client = connect(server.address, is_far)
    if cut_before:
        client._channel.hang_up()
    pending = [client.ask(message(np.full(1, number))) for number in range(3)]
    assert [int(client.answer(one).arrays[0][0]) for one in pending] == [0, 1, 2]
    assert seen[-3:] == [0, 1, 2]
    assert len(seen) <= 3 + (not cut_before)
    client.close()
    server.close()


def test_a_server_that_always_hangs_up_is_given_up() -> None:
    def hangs_up(*request: object) -> Message:
        raise EOFError

    server = TransportServer("127.0.0.1", lambda: SECRET, hangs_up, **SHORT)
    client = connect(server.address)
    with pytest.raises(PeerLostError, match="shard 3 is gone"):
        client.answer(client.ask(message()))
    with pytest.raises(PeerLostError, match="shard 3 is gone"):
        client.ask(message())
    client.close()
    server.close()


def test_a_killed_server_is_gone(is_far: bool) -> None:
    with process() as server:
        client = connect(server.address, is_far)
        pending = client.ask(message(kind=WORK, seconds=60))
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(PeerLostError, match="shard 3 is gone"):
            client.answer(pending)
        client.close()


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Process]:
    """A server in a process of its own, which lives on."""
    with process() as made:
        yield made


def test_a_stopped_server_is_lost_in_time(elsewhere: Process, is_far: bool) -> None:
    client = connect(elsewhere.address, is_far, silence_seconds=0.5)
    assert says_hello(client)
    with elsewhere.stopped():
        began = time.monotonic()
        with pytest.raises(PeerSilentError, match=r"shard 3 is gone: no sign of life for 0\.5 s"):
            client.answer(client.ask(message()))
        assert time.monotonic() - began < 5
        with pytest.raises(PeerSilentError, match=r"shard 3 is gone: no sign of life for 0\.5 s"):
            client.ask(message())
    client.close()


def test_a_server_stopped_at_work_is_lost_in_time(elsewhere: Process, is_far: bool) -> None:
    """Keep-alives stop with the process."""
    client = connect(elsewhere.address, is_far, silence_seconds=0.5)
    pending = client.ask(message(kind=WORK, seconds=60))
    time.sleep(0.8)
    assert pending.reply is None
    with elsewhere.stopped(), pytest.raises(PeerSilentError, match=r"no sign of life for 0\.5 s"):
        client.answer(pending)
    client.close()


def test_a_stopped_server_is_lost_while_much_is_sent(elsewhere: Process, is_far: bool) -> None:
    client = connect(elsewhere.address, is_far, silence_seconds=0.5)
    assert says_hello(client)
    with elsewhere.stopped(), pytest.raises(PeerSilentError, match=r"shard 3 is gone: (took nothing|no sign of life)"):
        client.answer(client.ask(message(np.zeros(shared_memory.SHARED_BYTES, np.uint8))))
    client.close()


def test_a_busy_server_may_be_sent_more_than_sockets_hold(elsewhere: Process) -> None:
    """It does not read while it works: what is sent meanwhile waits, for longer than any silence."""
    client = connect(elsewhere.address, is_far=True, silence_seconds=0.8)
    slow = client.ask(message(kind=WORK, seconds=1.5))
    large = np.arange(1 << 22)
    assert (client.answer(client.ask(message(large))).arrays[0] == large).all()
    client.answer(slow)
    client.close()


def test_a_stopped_server_keeps_no_newcomer_waiting(elsewhere: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dkge_dist.cluster.transport.client.HANDSHAKE_SECONDS", 0.2)
    began = time.monotonic()
    with elsewhere.stopped(), pytest.raises(PeerSilentError, match="shard 3 is gone"):
        connect(elsewhere.address)
    assert time.monotonic() - began < 10


def test_packets_that_are_dropped_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue of connections drops every further one, as a firewall would."""
    monkeypatch.setattr(address, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        host, port = listening.getsockname()
        with socket.create_connection((host, port)):
            began = time.monotonic()
            with pytest.raises(PeerSilentError, match="shard 3 is gone: timed out"):
                connect(Address(host, port))
            assert time.monotonic() - began < 10


def take_over(name: str, heard: list[bytes]) -> None:
    """Listen at a name that was freed, play a server without a secret, and keep what a client says."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        connection, _ = listening.accept()
    with connection:
        connection.settimeout(5)
        connection.sendall(GREETING + os.urandom(NONCE_BYTES))
        heard.append(connection.recv(1 << 16))
        connection.sendall(os.urandom(PROOF_BYTES))
        while some := connection.recv(1 << 16):
            heard.append(some)


def test_a_process_that_takes_over_a_freed_name_is_refused() -> None:
    with process() as server:
        client = connect(server.address)
        assert says_hello(client)
    heard: list[bytes] = []
    impostor = threading.Thread(target=take_over, args=(server.address.unix_name, heard))
    impostor.start()
    with pytest.raises(AuthenticationError, match="shard 3 does not know the secret"):
        client.answer(client.ask(message(np.arange(100))))
    impostor.join()
    said = b"".join(heard)
    assert len(said) == NONCE_BYTES + PROOF_BYTES, "no request, no shared memory"
    assert SECRET.encode() not in said
    client.close()


def test_nothing_is_asked_of_a_closed_client(server: TransportServer, is_far: bool) -> None:
    """And nothing waits on it: the thread that reads replies from another machine ends."""
    before = set(threading.enumerate())
    client = connect(server.address, is_far)
    assert says_hello(client)
    readers = [thread for thread in set(threading.enumerate()) - before if thread.name == "read shard 3"]
    assert len(readers) == is_far
    client.close()
    with pytest.raises(PeerLostError, match="the connection to shard 3 is closed"):
        client.ask(message())
    for reader in readers:
        reader.join(10)
        assert not reader.is_alive()


def test_close_ends_the_wait_of_others(server: TransportServer, is_far: bool) -> None:
    client = connect(server.address, is_far)
    pending = client.ask(message(kind=WORK, seconds=3.0))
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.answer, pending)
        time.sleep(0.2)
        began = time.monotonic()
        client.close()
        with pytest.raises(PeerLostError, match="the connection to shard 3 is closed"):
            waiting.result()
        assert time.monotonic() - began < 2
