"""The connection between a worker and a shard: cut, forged, mistaken; without Ray."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from dkge_dist.cluster.calls import WireCall, results
from dkge_dist.cluster.requests import answered, pull_request, push_request, read_pulled, read_reply, write_request
from dkge_dist.cluster.server import ShardServer
from dkge_dist.cluster.wire import Connection, Listener, ShardLostError
from dkge_dist.shards.plan import ShardPlan
from dkge_dist.shards.shard import Field, Optimizer, Start
from dkge_dist.types import ROW, Array, DkgeError

ATTEMPT = "0123456789abcdef"
START = Start((3, 0), 200, 5, 1.0)
OPTIMIZER = Optimizer("adagrad", 0.1)
PLACES = np.array([3, 1, 150], ROW)


def shard(attempt: str = ATTEMPT) -> ShardServer:
    server = ShardServer(0, ShardPlan(200, 64, 1))
    server.open(attempt, 1, START)
    return server


def listening(server: ShardServer) -> Listener:
    return Listener("127.0.0.1", server.knows, lambda *request: answered(server, *request))


def push(connection: Connection, step: int, value: float = 1.0) -> WireCall:
    gradients = {Field.KNOWLEDGE: (PLACES, np.full((3, 5), value, np.float32))}
    late = {Field.CONTEXT: np.array([7, 7], ROW)}
    return WireCall(0, connection.ask(*push_request(step, 0, gradients, OPTIMIZER, late)), read_reply)


def pull(connection: Connection, after: int = 0) -> WireCall:
    wanted = {Field.KNOWLEDGE: PLACES, Field.CONTEXT: np.empty(0, ROW)}
    return WireCall(0, connection.ask(*pull_request(wanted, after, None)), read_pulled)


def test_what_comes_over_the_wire_is_what_the_shard_says() -> None:
    server, twin = shard(), shard()
    connection = Connection(0, listening(server).address, ATTEMPT)
    first, reply, second = results([pull(connection), push(connection, 0), pull(connection, 1)])
    gradients = {Field.KNOWLEDGE: (PLACES, np.ones((3, 5), np.float32))}
    expected = twin.push(ATTEMPT, 0, 0, gradients, OPTIMIZER, {Field.CONTEXT: np.array([7, 7], ROW)})
    assert (first[Field.KNOWLEDGE] == START.run(Field.KNOWLEDGE, 0, 200)[PLACES]).all()
    assert first[Field.CONTEXT].shape == (0, 5)
    assert (reply.late[Field.CONTEXT] == expected.late[Field.CONTEXT]).all()
    assert reply.patches == {}
    assert (second[Field.KNOWLEDGE] == twin.pull(ATTEMPT, {Field.KNOWLEDGE: PLACES}, 1)[Field.KNOWLEDGE]).all()
    connection.ask(*write_request(Field.JOINT, PLACES, np.full((3, 5), 4, np.float32))).result()
    assert (server.pull(ATTEMPT, {Field.JOINT: PLACES}, 0)[Field.JOINT] == 4).all()


@pytest.mark.parametrize("cut_before", [True, False], ids=["request lost", "answer lost"])
def test_a_push_over_a_connection_that_breaks_is_applied_once(cut_before: bool) -> None:
    server, twin = shard(), shard()
    seen: list[str] = []

    def counted(attempt: str, header: dict[str, object], arrays: list[Array]) -> object:
        answer = answered(server, attempt, header, arrays)
        seen.append(str(header["method"]))
        if not cut_before and len(seen) == 1:
            connection._socket.shutdown(socket.SHUT_RDWR)
        return answer

    listener = Listener("127.0.0.1", server.knows, counted)  # type: ignore[arg-type]
    connection = Connection(0, listener.address, ATTEMPT)
    if cut_before:
        connection._socket.shutdown(socket.SHUT_RDWR)
    push(connection, 0).result()
    push(connection, 1, 0.5).result()
    assert seen.count("push") == (2 if cut_before else 3)
    for step, value in ((0, 1.0), (1, 0.5)):
        twin.push(ATTEMPT, step, 0, {Field.KNOWLEDGE: (PLACES, np.full((3, 5), value, np.float32))}, OPTIMIZER)
    every = {Field.KNOWLEDGE: np.arange(200, dtype=ROW)}
    assert (server.pull(ATTEMPT, every, 2)[Field.KNOWLEDGE] == twin.pull(ATTEMPT, every, 2)[Field.KNOWLEDGE]).all()


@pytest.mark.parametrize("attempt", ["", "0123456789abcdeg", "0123"])
def test_whoever_does_not_know_the_attempt_is_not_let_in(attempt: str) -> None:
    with pytest.raises(ShardLostError, match="shard 0 has been restarted or belongs to another attempt"):
        Connection(0, listening(shard()).address, attempt)


def test_a_shard_that_no_attempt_was_opened_on_lets_nobody_in() -> None:
    with pytest.raises(ShardLostError):
        Connection(0, listening(ShardServer(0, ShardPlan(200, 64, 1))).address, "")


def test_a_worker_of_an_older_attempt_is_refused_at_its_next_request() -> None:
    server = shard()
    connection = Connection(0, listening(server).address, ATTEMPT)
    pull(connection).result()
    server.open("another", 1, START)
    with pytest.raises(ShardLostError, match="shard 0 belongs to another attempt by now"):
        pull(connection).result()


def test_a_shard_that_is_gone_is_said_to_be() -> None:
    server = shard()
    refusing = Connection(0, listening(server).address, ATTEMPT)
    server.open("another", 1, START)
    refusing._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ShardLostError, match=r"shard 0 (has been restarted|belongs to another)"):
        pull(refusing).result()


def test_an_error_of_the_shard_names_it() -> None:
    server = shard()

    def failing(*request: object) -> object:
        raise DkgeError("no such row")

    server.pull = failing  # type: ignore[assignment]
    with pytest.raises(DkgeError, match=r"^shard 0: no such row$"):
        pull(Connection(0, listening(server).address, ATTEMPT)).result()


def test_a_mistake_in_the_shard_is_told_to_who_asked() -> None:
    connection = Connection(0, listening(shard()).address, ATTEMPT)
    request = write_request(Field.JOINT, np.array([10_000], ROW), np.zeros((1, 5), np.float32))
    call = WireCall(0, connection.ask(*request), read_pulled)
    with pytest.raises(DkgeError, match=r"^shard 0: IndexError: "):
        call.result()


def test_a_shard_that_hangs_up_on_every_request_is_given_up() -> None:
    server = shard()

    def hangs_up(*request: object) -> object:
        raise EOFError

    listener = Listener("127.0.0.1", server.knows, hangs_up)  # type: ignore[arg-type]
    with pytest.raises(ShardLostError, match="shard 0 is gone"):
        pull(Connection(0, listener.address, ATTEMPT)).result()


LENGTH = struct.Struct("<I")


@pytest.mark.parametrize(
    "words",
    [
        lambda: b"GET / HTTP/1.1\r\n\r\n",
        lambda: LENGTH.pack(2**31) + b"x",
        lambda: LENGTH.pack(3) + b"abc",
        lambda: LENGTH.pack(2) + b"{}",
        lambda: LENGTH.pack(12) + b'{"arrays":1}',
        lambda: LENGTH.pack(47) + b'{"attempt":"x","arrays":[["|O",[2]],["<f4",[]]]}'[:47],
    ],
)
def test_what_is_none_of_ours_is_hung_up_on_and_harms_nobody(words: Callable[[], bytes]) -> None:
    server = shard()
    listener = listening(server)
    with socket.create_connection(listener.address) as stranger:
        stranger.sendall(words())
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(10)
        with suppress(ConnectionResetError):
            assert stranger.recv(1 << 16) == b""
    pull(Connection(0, listener.address, ATTEMPT)).result()
