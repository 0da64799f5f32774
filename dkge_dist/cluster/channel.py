"""Messages between two processes: a small header and raw arrays, sent from where they lie.

Between machines arrays follow their header through the socket. On one machine both sides see a piece of each other's
memory: arrays are written there once and used where they lie, for as long as somebody refers to them. What finds no
room there goes through the socket.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import socket
import struct
import weakref
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.types import Array, DkgeError

LENGTH = struct.Struct("<I")
MAX_HEADER = 1 << 16
MAX_ARRAY = 1 << 33
KINDS = {"<i4": 4, "<i8": 8, "<f4": 4}
ALIGNMENT = SLOTS = 64
SHARED_BYTES = 1 << 28
"""Of address space a direction; memory is taken as it is first used, and the first that is free is used again."""

SILENCE_SECONDS = 30
"""After which a machine that neither answers nor acknowledges is taken for lost."""

Message = tuple[dict[str, Any], list[Array]]
About = tuple[str, Sequence[int]]
"""An array's kind and shape."""
Where = tuple[int, list[int]]
"""A message's slot in shared memory, and where its arrays begin."""


def tuned(connection: socket.socket) -> socket.socket:
    """A connection that sends at once and, between machines, notices that the other one is gone without a word."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", SILENCE_SECONDS // 3),
            ("TCP_KEEPINTVL", SILENCE_SECONDS // 6),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", SILENCE_SECONDS * 1000),
        ):
            if hasattr(socket, name):  # Not every system has them all.
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


class Rows(NamedTuple):
    """Some rows of an array, put together only where they are sent from."""

    values: Array
    order: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what is sent."""
        return (self.order.shape[0], *self.values.shape[1:])

    @property
    def nbytes(self) -> int:
        """Of what is sent."""
        return math.prod(self.shape) * self.values.itemsize

    def put_into(self, out: Array) -> None:
        """Put them together. Clipping is for speed alone (with a check `take` goes by a buffer): the rows are there."""
        np.take(self.values, self.order, 0, out, mode="clip")


Sent = Array | Rows


class Memory:
    """Memory of one sender that its receiver sees too. It has no name anywhere: with the last process that knows it, it
    is gone.

    It begins with a byte for each message that may lie there at a time: the sender sets it, the receiver clears it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, SHARED_BYTES)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._used = self._bytes[:SLOTS]
        self._lying: dict[int, tuple[int, int]] = {}

    @classmethod
    def new(cls) -> Memory:
        """Memory of our own."""
        descriptor = os.memfd_create("dkge", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SHARED_BYTES)
        return cls(descriptor)

    def put(self, arrays: Sequence[Sent]) -> Where | None:
        """Copy the arrays of a message to the first room that is large enough; None if there is none."""
        self._lying = {slot: span for slot, span in self._lying.items() if self._used[slot]}
        sizes = [-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays]
        at, needed = SLOTS, sum(sizes)
        for begin, end in sorted(self._lying.values()):
            if at + needed <= begin:
                break
            at = end
        if at + needed > SHARED_BYTES or len(self._lying) == SLOTS:
            return None
        slot = next(slot for slot in range(SLOTS) if slot not in self._lying)
        self._lying[slot], self._used[slot] = (at, at + needed), 1
        begins = [at + before for before in accumulate(sizes[:-1], initial=0)]
        for begin, array in zip(begins, arrays, strict=True):
            _write(array, self._bytes[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape))
        return slot, begins

    def get(self, where: Where, about: Sequence[About]) -> list[Array]:
        """The arrays of a message, where they lie. Once nobody refers to any of them, the sender may use the room."""
        slot, begins = where
        if not 0 <= slot < SLOTS:
            raise DkgeError(f"message {slot} of {SLOTS} is none of ours")
        whole = np.frombuffer(self._memory, np.uint8)  # What views of it keep alive.
        weakref.finalize(whole, self._used.__setitem__, slot, 0).atexit = False
        return [_view(whole, begin, *what) for begin, what in zip(begins, about, strict=True)]

    def close(self) -> None:
        """Let go of the descriptor; the memory stays for as long as arrays of it are used."""
        os.close(self.descriptor)


def _write(array: Sent, out: Array) -> None:
    if isinstance(array, Rows):
        array.put_into(out)
    else:
        out[...] = array


def _made(array: Sent) -> Array:
    if not isinstance(array, Rows):
        return np.ascontiguousarray(array)
    out = np.empty(array.shape, array.dtype)
    array.put_into(out)
    return out


def _view(whole: Array, begin: int, kind: str, shape: Sequence[int]) -> Array:
    size = math.prod(shape) * KINDS[kind]
    if begin < SLOTS or begin % ALIGNMENT or begin + size > SHARED_BYTES:
        raise DkgeError(f"an array at {begin} of {SHARED_BYTES} shared bytes is none of ours")
    return whole[begin : begin + size].view(kind).reshape(shape)


class Channel:
    """One side of a connection. Sending and receiving may be done by two threads, each by one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._out: Memory | None = None
        self._in: Memory | None = None

    def share(self) -> None:
        """Show each other a piece of memory, if this is one machine. Both sides call it at the same point."""
        if self.socket.family != socket.AF_UNIX:
            return
        own = Memory.new()
        try:
            socket.send_fds(self.socket, [b"m"], [own.descriptor])
            _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1)
            if not descriptors:
                raise EOFError("the other side closed the connection")
            other = Memory(descriptors[0])
        finally:
            own.close()
        other.close()
        self._out, self._in = own, other

    def send(self, header: dict[str, Any], arrays: Sequence[Sent]) -> None:
        """Send a header and arrays."""
        where = self._out.put(arrays) if self._out is not None and arrays else None
        about = {"arrays": [(array.dtype.str, array.shape) for array in arrays], "where": where}
        text = json.dumps({**header, **about}).encode()
        buffers = [memoryview(LENGTH.pack(len(text)) + text)]
        if where is None:
            buffers += [memoryview(_made(array).data).cast("B") for array in arrays if array.nbytes]
        while buffers:
            sent = self.socket.sendmsg(buffers[:64])
            while buffers and sent >= len(buffers[0]):
                sent -= len(buffers.pop(0))
            if sent:
                buffers[0] = buffers[0][sent:]

    def receive(self) -> Message:
        """The next header and its arrays. EOFError if the other side is gone."""
        (size,) = LENGTH.unpack(self._filled(memoryview(bytearray(LENGTH.size))))
        if size > MAX_HEADER:
            raise DkgeError(f"a message that begins with {size} bytes of header is none of ours")
        header = json.loads(bytes(self._filled(memoryview(bytearray(size)))))
        where, about = header.pop("where"), header.pop("arrays")
        for kind, shape in about:
            if kind not in KINDS or not 0 <= math.prod(shape) * KINDS[kind] <= MAX_ARRAY:
                raise DkgeError(f"an array of {kind} {shape} is none of ours")
        if where is not None and self._in is not None:
            return header, self._in.get(where, about)
        arrays = [np.empty(shape, kind) for kind, shape in about]
        for array in arrays:
            self._filled(memoryview(array.reshape(-1).view(np.uint8).data))
        return header, arrays

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def _filled(self, into: memoryview) -> memoryview:
        at = 0
        while at < len(into):
            got = self.socket.recv_into(into[at:])
            if not got:
                raise EOFError("the other side closed the connection")
            at += got
        return into
