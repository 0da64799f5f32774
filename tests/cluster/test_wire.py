"""The connection between a worker and a shard: cut, forged, mistaken; without Ray."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from dkge_dist.cluster import channel
from dkge_dist.cluster.calls import WireCall, results
from dkge_dist.cluster.requests import (
    PUSH,
    answered,
    pull_request,
    push_request,
    read_nothing,
    read_pulled,
    read_reply,
    write_request,
)
from dkge_dist.cluster.server import ShardServer
from dkge_dist.cluster.wire import Connection, Listener, ShardLostError
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Optimizer, RowInitializer
from dkge_dist.types import ROW, DkgeError, Field

ATTEMPT = "0123456789abcdef"
START = RowInitializer((3, 0), 200, 5, 1.0)
OPTIMIZER = Optimizer("adagrad", 0.1)
PLACES = np.array([3, 1, 150], ROW)


def shard(attempt: str = ATTEMPT) -> ShardServer:
    server = ShardServer(0, ShardPlan(200, 64, 1))
    server.open(attempt, 1, START)
    return server


@pytest.fixture(params=["one machine", "two machines"])
def far(request: pytest.FixtureRequest) -> bool:
    """Do the sides take each other for different machines?"""
    return bool(request.param == "two machines")


def listening(server: ShardServer) -> Listener:
    return Listener("127.0.0.1", server.knows, partial(answered, server))


def connect(listener: Listener, far: bool = False, attempt: str = ATTEMPT) -> Connection:
    return Connection(0, listener.address._replace(name="") if far else listener.address, attempt)


def push(connection: Connection, step: int, value: float = 1.0) -> WireCall:
    gradients = {Field.KNOWLEDGE: (PLACES, np.full((3, 5), value, np.float32))}
    late = {Field.CONTEXT: np.array([7, 7], ROW)}
    return WireCall(0, connection, push_request(step, 0, gradients, OPTIMIZER, late), read_reply)


def pull(connection: Connection, after: int = 0) -> WireCall:
    wanted = {Field.KNOWLEDGE: PLACES, Field.CONTEXT: np.empty(0, ROW)}
    return WireCall(0, connection, pull_request(wanted, after, None), read_pulled)


def test_what_comes_over_the_wire_is_what_the_shard_says(far: bool) -> None:
    server, twin = shard(), shard()
    connection = connect(listening(server), far)
    first, reply, second = results([pull(connection), push(connection, 0), pull(connection, 1)])
    gradients = {Field.KNOWLEDGE: (PLACES, np.ones((3, 5), np.float32))}
    expected = twin.push(ATTEMPT, 0, 0, gradients, OPTIMIZER, {Field.CONTEXT: np.array([7, 7], ROW)})
    assert (first[Field.KNOWLEDGE] == START.run(Field.KNOWLEDGE, 0, 200)[PLACES]).all()
    assert first[Field.CONTEXT].shape == (0, 5)
    assert (reply.late[Field.CONTEXT] == expected.late[Field.CONTEXT]).all()
    assert reply.patches == {}
    assert (second[Field.KNOWLEDGE] == twin.pull(ATTEMPT, {Field.KNOWLEDGE: PLACES}, 1)[Field.KNOWLEDGE]).all()
    WireCall(0, connection, write_request(Field.JOINT, PLACES, np.full((3, 5), 4, np.float32)), read_nothing).result()
    assert (server.pull(ATTEMPT, {Field.JOINT: PLACES}, 0)[Field.JOINT] == 4).all()


@pytest.mark.parametrize("cut_before", [True, False], ids=["request lost", "answer lost"])
def test_a_push_over_a_connection_that_breaks_is_applied_once(cut_before: bool, far: bool) -> None:
    server, twin = shard(), shard()
    seen: list[int] = []

    def counted(attempt: str, request: channel.Received, room: channel.Room) -> channel.Message:
        answer = answered(server, attempt, request, room)
        seen.append(request.about)
        if not cut_before and len(seen) == 1:
            connection._channel.socket.shutdown(socket.SHUT_RDWR)
        return answer

    listener = Listener("127.0.0.1", server.knows, counted)
    connection = connect(listener, far)
    if cut_before:
        connection._channel.socket.shutdown(socket.SHUT_RDWR)
    push(connection, 0).result()
    push(connection, 1, 0.5).result()
    assert seen.count(PUSH) == (2 if cut_before else 3)
    for step, value in ((0, 1.0), (1, 0.5)):
        twin.push(ATTEMPT, step, 0, {Field.KNOWLEDGE: (PLACES, np.full((3, 5), value, np.float32))}, OPTIMIZER)
    every = {Field.KNOWLEDGE: np.arange(200, dtype=ROW)}
    assert (server.pull(ATTEMPT, every, 2)[Field.KNOWLEDGE] == twin.pull(ATTEMPT, every, 2)[Field.KNOWLEDGE]).all()


@pytest.mark.parametrize("attempt", ["", "0123456789abcdeg", "0123"])
def test_whoever_does_not_know_the_attempt_is_not_let_in(attempt: str, far: bool) -> None:
    with pytest.raises(ShardLostError, match="shard 0 has been restarted or belongs to another attempt"):
        connect(listening(shard()), far, attempt)


def test_a_shard_that_no_attempt_was_opened_on_lets_nobody_in() -> None:
    with pytest.raises(ShardLostError):
        connect(listening(ShardServer(0, ShardPlan(200, 64, 1))), attempt="")


def test_a_worker_of_an_older_attempt_is_refused_at_its_next_request() -> None:
    server = shard()
    connection = connect(listening(server))
    pull(connection).result()
    server.open("another", 1, START)
    with pytest.raises(ShardLostError, match="shard 0 belongs to another attempt by now"):
        pull(connection).result()


def test_a_shard_that_is_gone_is_said_to_be() -> None:
    server = shard()
    refusing = connect(listening(server))
    server.open("another", 1, START)
    refusing._channel.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ShardLostError, match=r"shard 0 (has been restarted|belongs to another)"):
        pull(refusing).result()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone has it")
def test_between_machines_silence_is_noticed() -> None:
    """That nobody answers cannot be played on one machine; that the system is asked to notice can be seen."""
    connection = connect(listening(shard()), far=True)._channel.socket
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10


def test_an_error_of_the_shard_names_it() -> None:
    server = shard()

    def failing(*request: object) -> object:
        raise DkgeError("no such row")

    server.pull = failing  # type: ignore[assignment]
    with pytest.raises(DkgeError, match=r"^shard 0: no such row$"):
        pull(connect(listening(server))).result()


def test_a_mistake_in_the_shard_is_told_to_who_asked() -> None:
    connection = connect(listening(shard()))
    request = write_request(Field.JOINT, np.array([10_000], ROW), np.zeros((1, 5), np.float32))
    call = WireCall(0, connection, request, read_pulled)
    with pytest.raises(DkgeError, match=r"^shard 0: IndexError: "):
        call.result()


def test_a_shard_that_hangs_up_on_every_request_is_given_up() -> None:
    server = shard()

    def hangs_up(*request: object) -> object:
        raise EOFError

    listener = Listener("127.0.0.1", server.knows, hangs_up)  # type: ignore[arg-type]
    with pytest.raises(ShardLostError, match="shard 0 is gone"):
        pull(connect(listener)).result()


def test_many_requests_at_once_that_find_no_room_in_shared_memory_are_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    monkeypatch.setattr(channel, "SHARED_BYTES", 1 << 14)
    server = shard()
    held = server.pull(ATTEMPT, {Field.KNOWLEDGE: np.arange(200, dtype=ROW)}, 0)[Field.KNOWLEDGE]
    connection = connect(listening(server), far)
    rng = np.random.default_rng(5)
    asked = [rng.integers(0, 200, size).astype(ROW) for size in rng.integers(0, 3000, 40)]
    calls = [WireCall(0, connection, pull_request({Field.KNOWLEDGE: some}, 0, None), read_pulled) for some in asked]
    for some, values in zip(asked, results(calls), strict=True):
        assert (values[Field.KNOWLEDGE] == held[some]).all()


def test_arrays_that_are_received_are_those_that_were_sent(far: bool) -> None:
    one, other = (channel.Channel(side) for side in socket.socketpair(socket.AF_UNIX))
    if not far:
        with ThreadPoolExecutor() as threads:
            list(threads.map(lambda side: side.share(), (one, other)))
    for kind, shape in (("<i4", (3,)), ("<i8", (0,)), ("<f4", (7, 5)), ("<f4", (0, 5))):
        sent = np.arange(np.prod(shape), dtype=kind).reshape(shape)
        order = np.arange(shape[0])[::-2]
        one.send(channel.Message(7, (1, -(2**62), 3), 0.1, [5, 255, 0], [sent, sent[::2], channel.Rows(sent, order)]))
        *header, (whole, half, some) = other.receive()
        assert header == [7, (1, -(2**62), 3), 0.1, [5, 255, 0]]
        assert whole.dtype.str == some.dtype.str == kind
        assert (whole == sent).all()
        assert (half == sent[::2]).all()
        assert some.shape == sent[order].shape
        assert (some == sent[order]).all()
    one.close()
    other.close()


def near_channels() -> tuple[channel.Channel, channel.Channel]:
    one, other = (channel.Channel(side) for side in socket.socketpair(socket.AF_UNIX))
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda side: side.share(), (one, other)))
    return one, other


def test_what_is_made_where_the_receiver_sees_it_is_not_copied_and_arrives() -> None:
    one, other = near_channels()
    for shapes in ([(3, 5), (0, 5), (7, 2)], [], [(1, 1)]):
        made = one.room(shapes)
        for number, array in enumerate(made):
            array[...] = number
        one.send(channel.Message(1, (0, 0, 0), 0.0, list(range(len(made))), made))
        seen = other.receive().arrays
        assert [array.shape for array in seen] == shapes
        for number, (array, here) in enumerate(zip(seen, made, strict=True)):
            assert (array == number).all()
            here[...] = 9
            assert (array == 9).all(), "one and the same memory"
    one.close()
    other.close()


def test_room_that_was_asked_for_and_not_used_is_given_back() -> None:
    """As when the answer turns out to be an error."""
    one, other = near_channels()
    for _ in range(3 * channel.SLOTS):
        one.room([(1000, 1000)])
        one.send(channel.Message(1, (0, 0, 0), 0.0, [0], [np.zeros(3, np.uint8)]))
        assert other.receive().arrays[0].shape == (3,)
    assert one.room([(1000, 1000)])[0].base is not None, "there is still room in shared memory"
    one.close()
    other.close()


def put(memory: channel.Memory, sent: np.ndarray) -> tuple[int, list[int]] | None:
    return memory.reserve([sent.nbytes])


def test_room_in_shared_memory_is_used_again_once_nobody_refers_to_what_was_there() -> None:
    memory = channel.Memory.new()
    sent = np.arange(40, dtype=np.float32)
    first, second, third = (put(memory, sent) for _ in range(3))
    assert first is not None
    assert second is not None
    for _, (begin,) in (first, second):
        memory.view(begin, sent.dtype, sent.shape)[...] = sent
    seen = [memory.get(*where, [(sent.dtype, (40,))])[0] for where in (first, second)]
    parts = [array[10:20] for array in seen]
    del seen
    assert (parts[1] == sent[10:20]).all()
    assert put(memory, sent) not in (first, second, third)
    del parts[1]
    assert put(memory, sent) == second
    del parts[0]
    large, small = put(memory, np.tile(sent, 2)), put(memory, sent)
    assert large is not None
    assert small is not None
    assert small[1] == first[1] < large[1]
    memory.close()


@pytest.mark.parametrize("begin", [0, 8, 65, channel.SHARED_BYTES, -64])
def test_an_array_that_is_said_to_lie_elsewhere_is_refused(begin: int) -> None:
    memory = channel.Memory.new()
    kind = (np.dtype(np.float32), (2, 2))
    with pytest.raises(DkgeError, match="none of ours"):
        memory.get(0, [begin], [kind])
    with pytest.raises(DkgeError, match="none of ours"):
        memory.get(-1, [64], [kind])
    memory.close()


def header(mark: bytes = channel.MARK, count: int = 1, of: int = 3, width: int = -1, rows: int = 3) -> bytes:
    """Of a message that may or may not be ours."""
    prefix = channel.PREFIX.pack(mark, 100, count, -1, 0, 0, 0, 0.0)
    return (prefix + channel.ABOUT.pack(0, of, 0, width, rows, 0)).ljust(channel.HEADER_BYTES, b"\0")


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * channel.HEADER_BYTES,
        header(mark=b"DKGE") + b"abc",
        header(count=200),
        header(count=0),
        header(of=99) + b"abc",
        header(rows=-1),
        header(rows=2**62),
        header(width=2**31 - 1, rows=2**40),
        header() + b"\xff\xfe\xfd",
        header(rows=5) + b"wrong",
    ],
)
def test_what_is_none_of_ours_is_hung_up_on_and_harms_nobody(words: bytes) -> None:
    server = shard()
    listener = listening(server)
    with socket.create_connection(listener.address[:2]) as stranger:
        stranger.sendall(words)
        stranger.settimeout(10)
        with suppress(OSError):  # Hung up on already, perhaps.
            stranger.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            told = stranger.recv(1 << 16)
            assert told == b"" or channel.PREFIX.unpack_from(told)[4] == 0, "not welcome"
    pull(connect(listener)).result()


def test_nothing_is_asked_of_a_closed_connection(far: bool) -> None:
    """And nobody waits on it: the thread that reads answers from another machine ends."""
    before = set(threading.enumerate())
    connection = connect(listening(shard()), far)
    pull(connection).result()
    readers = [thread for thread in set(threading.enumerate()) - before if thread.name == "shard-0"]
    assert len(readers) == far
    connection.close()
    with pytest.raises(ShardLostError, match="the connection to shard 0 is closed"):
        pull(connection).result()
    for reader in readers:
        reader.join(10)
        assert not reader.is_alive()
