"""Two ends of a connection: what is sent arrives, by socket or by shared memory, and silence is noticed."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dkge_dist.cluster.transport import Message, RowSelection, shared_memory
from dkge_dist.cluster.transport.channel import Channel
from dkge_dist.cluster.transport.errors import ProtocolError
from tests.cluster.transport.echo import message

Channels = tuple[Channel, Channel]
near_only = pytest.mark.parametrize("is_far", [False], ids=["one machine"])


@pytest.mark.parametrize(("dtype", "shape"), [("<i4", (3,)), ("<i8", (0,)), ("<f4", (7, 5)), ("<f4", (0, 5))])
def test_arrays_arrive_as_they_were_sent(channels: Channels, dtype: str, shape: tuple[int, ...]) -> None:
    one, other = channels
    sent = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    order = np.arange(shape[0])[::-2]
    one.send(Message(7, (1, -(2**62), 3), 0.1, [5, 255, 0], [sent, sent[::2], RowSelection(sent, order)]))
    *header, (whole, half, some) = other.receive()
    assert header == [7, (1, -(2**62), 3), 0.1, [5, 255, 0]]
    assert whole.dtype.str == some.dtype.str == dtype
    assert (whole == sent).all()
    assert (half == sent[::2]).all()
    assert some.shape == sent[order].shape
    assert (some == sent[order]).all()


@near_only
def test_a_reply_made_in_place_is_not_copied(channels: Channels) -> None:
    one, other = channels
    for shapes in ([(3, 5), (0, 5), (7, 2)], [], [(1, 1)]):
        made = one.allocate_reply(shapes)
        for number, array in enumerate(made):
            array[...] = number
        one.send(message(*made))
        seen = other.receive().arrays
        assert [array.shape for array in seen] == shapes
        for number, (array, here) in enumerate(zip(seen, made, strict=True)):
            assert (array == number).all()
            here[...] = 9
            assert (array == 9).all(), "one and the same memory"


@near_only
def test_a_reply_that_is_not_sent_is_freed(channels: Channels) -> None:
    """As when the reply turns out to be an error."""
    one, other = channels
    for _ in range(3 * shared_memory.SLOTS):
        one.allocate_reply([(1000, 1000)])
        one.send(message(np.zeros(3, np.uint8)))
        assert other.receive().arrays[0].shape == (3,)
    assert one.allocate_reply([(1000, 1000)])[0].base is not None, "there is still space in shared memory"


@near_only
def test_send_that_may_not_block_says_so(channels: Channels) -> None:
    one, other = channels
    large = np.zeros(shared_memory.SHARED_BYTES + 1, np.uint8)
    assert not one.send(message(large), may_block=False)
    small, sent = message(np.zeros(3, np.uint8)), 0
    empty = message()
    while one.send(empty, may_block=False):
        sent += 1
    assert not one.send(small, may_block=False)
    for _ in range(sent):
        assert other.receive().arrays == []
    assert one.send(small, may_block=False)
    assert other.receive().arrays[0].shape == (3,)


def test_keepalives_are_no_messages(channels: Channels) -> None:
    one, other = channels
    for _ in range(3):
        one.send_keepalive()
    one.send(message(np.zeros(2, np.int32)))
    one.send_keepalive()
    assert other.receive().arrays[0].shape == (2,)


def test_keepalives_never_block(channels: Channels) -> None:
    one, other = channels
    for _ in range(100_000):  # More than any socket holds.
        one.send_keepalive()
    one.hang_up()
    with pytest.raises(EOFError):
        other.receive()


def test_silence_is_noticed(channels: Channels) -> None:
    _, other = channels
    other.limit_silence(0.3)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"no sign of life for 0\.3 s"):
        other.receive()
    assert 0.2 < time.monotonic() - began < 3


@near_only
def test_keepalives_break_the_silence(channels: Channels) -> None:
    one, other = channels
    other.limit_silence(0.8)
    with ThreadPoolExecutor() as threads:
        received = threads.submit(other.receive)
        for _ in range(10):
            time.sleep(0.1)
            one.send_keepalive()
        one.send(message())
        assert received.result().arrays == []


def test_a_peer_that_takes_nothing_is_noticed(channels: Channels) -> None:
    one, _ = channels
    one.limit_silence(0.3)
    with pytest.raises(TimeoutError, match=r"took nothing for 0\.3 s"):
        one.send(message(np.zeros(shared_memory.SHARED_BYTES, np.uint8)))


def test_the_other_end_being_gone_is_noticed(channels: Channels) -> None:
    one, other = channels
    one.close()
    with pytest.raises((EOFError, ConnectionResetError)):
        other.receive()


def test_unsealed_memory_is_not_mapped() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, shared_memory.SHARED_BYTES)
    socket.send_fds(one, [b"m"], [descriptor])
    os.close(descriptor)
    with one, other, pytest.raises(ProtocolError, match="not sealed"):
        Channel(other).share()
