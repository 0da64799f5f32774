"""Messages between two processes: a header of a few numbers and raw arrays, sent from where they lie.

Between machines arrays follow their header through the socket. On one machine both sides see a piece of each other's
memory: arrays are written there once and used where they lie, for as long as somebody refers to them. What finds no
room there goes through the socket.

A header is a block of fixed size, read by one call to the system: with many shards most of a request's cost is what
surrounds its rows, and every shard meets it with cold caches.
"""

from __future__ import annotations

import math
import mmap
import os
import socket
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.types import Array, DkgeError

PREFIX = struct.Struct("<4sBBhqqqd")
"""A mark, what it is about, how many arrays, their slot in shared memory (or -1), three numbers and a fraction."""
ABOUT = struct.Struct("<BBHiqq")
"""Of an array: its tag, its type, nothing, numbers a row (or -1), rows, where it lies in shared memory."""
MARK = b"dkge"
MAX_ARRAYS = 12
HEADER_BYTES = PREFIX.size + MAX_ARRAYS * ABOUT.size
MAX_ARRAY = 1 << 33
TYPES = tuple(np.dtype(name) for name in ("<i4", "<i8", "<f4", "|u1"))
TYPE_NUMBER = {dtype: number for number, dtype in enumerate(TYPES)}
ALIGNMENT = SLOTS = 64
SHARED_BYTES = 1 << 28
"""Of address space a direction; memory is taken as it is first used, and the first that is free is used again."""

SILENCE_SECONDS = 30
"""After which a machine that neither answers nor acknowledges is taken for lost."""

Shape = tuple[int, ...]
Room = Callable[[Sequence[Shape]], list[Array]]
"""Gives arrays of floats of these shapes, for rows to be put together in."""


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


class Message(NamedTuple):
    """What it is about, three numbers and a fraction that belong to it, and arrays, each with a tag."""

    about: int
    numbers: tuple[int, int, int]
    fraction: float
    tags: Sequence[int]
    arrays: Sequence[Sent]


class Received(NamedTuple):
    """A message at the other end."""

    about: int
    numbers: tuple[int, int, int]
    fraction: float
    tags: list[int]
    arrays: list[Array]


class Memory:
    """Memory of one sender that its receiver sees too. It has no name anywhere: with the last process that knows it, it
    is gone.

    It begins with a byte for each message that may lie there at a time: the sender sets it, the receiver clears it.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, SHARED_BYTES)
        self._bytes = np.frombuffer(self._memory, np.uint8)
        self._lying: dict[int, tuple[int, int]] = {}

    @classmethod
    def new(cls) -> Memory:
        """Memory of our own."""
        descriptor = os.memfd_create("dkge", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, SHARED_BYTES)
        return cls(descriptor)

    def reserve(self, sizes: Sequence[int]) -> tuple[int, list[int]] | None:
        """A slot, and where arrays of so many bytes begin in the first room that is large enough; None if none is."""
        memory, lying = self._memory, self._lying
        for slot in [slot for slot in lying if not memory[slot]]:
            del lying[slot]
        padded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        at, needed = SLOTS, sum(padded)
        for begin, end in sorted(lying.values()):
            if at + needed <= begin:
                break
            at = end
        if at + needed > SHARED_BYTES or len(lying) == SLOTS:
            return None
        slot = next(slot for slot in range(SLOTS) if slot not in lying)
        lying[slot], memory[slot] = (at, at + needed), 1
        begins = []
        for size in padded:
            begins.append(at)
            at += size
        return slot, begins

    def release(self, slot: int) -> None:
        """Give up a slot that was reserved."""
        self._memory[slot] = 0

    def view(self, begin: int, dtype: np.dtype[Any], shape: Shape) -> Array:
        """An array that lies here."""
        return np.ndarray(shape, dtype, self._memory, begin)

    def get(self, slot: int, begins: Sequence[int], kinds: Sequence[tuple[np.dtype[Any], Shape]]) -> list[Array]:
        """The arrays of a message, where they lie. Once nobody refers to any of them, the sender may use the room."""
        if not 0 <= slot < SLOTS:
            raise DkgeError(f"message {slot} of {SLOTS} is none of ours")
        whole = np.frombuffer(self._memory, np.uint8)  # What views of it keep alive.
        weakref.finalize(whole, self._memory.__setitem__, slot, 0).atexit = False
        arrays = []
        for begin, (dtype, shape) in zip(begins, kinds, strict=True):
            if begin < SLOTS or begin % ALIGNMENT or begin + math.prod(shape) * dtype.itemsize > SHARED_BYTES:
                raise DkgeError(f"an array at {begin} of {SHARED_BYTES} shared bytes is none of ours")
            arrays.append(np.ndarray(shape, dtype, whole, begin))
        return arrays

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


class Channel:
    """One side of a connection. Sending and receiving may be done by two threads, each by one at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._out: Memory | None = None
        self._in: Memory | None = None
        self._sent, self._got = bytearray(HEADER_BYTES), bytearray(HEADER_BYTES)
        self._room: tuple[int, list[int], list[Array]] | None = None

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

    def room(self, shapes: Sequence[Shape]) -> list[Array]:
        """Arrays of floats for the next message that is sent: filled by the caller where the receiver will see them."""
        floats = TYPES[2]
        sizes = [math.prod(shape) * floats.itemsize for shape in shapes]
        found = self._out.reserve(sizes) if self._out is not None and shapes else None
        if self._out is None or found is None:
            return [np.empty(shape, floats) for shape in shapes]
        slot, begins = found
        arrays = [self._out.view(begin, floats, shape) for begin, shape in zip(begins, shapes, strict=True)]
        self._room = (slot, begins, arrays)
        return arrays

    def send(self, message: Message, may_wait: bool = True) -> bool:
        """Send a message. Arrays that find no room in shared memory go through the socket, which may have to wait until
        the other side reads; False, and nothing is sent, if it may not."""
        arrays = message.arrays
        slot, begins = self._put(arrays) if self._out is not None and arrays else (-1, [])
        if slot < 0 and arrays and not may_wait:
            return False
        header = self._sent
        PREFIX.pack_into(header, 0, MARK, message.about, len(arrays), slot, *message.numbers, message.fraction)
        at = PREFIX.size
        for number, (tag, array) in enumerate(zip(message.tags, arrays, strict=True)):
            shape = array.shape
            width = shape[1] if len(shape) == 2 else -1
            begin = begins[number] if slot >= 0 else 0
            ABOUT.pack_into(header, at, tag, TYPE_NUMBER[array.dtype], 0, width, shape[0], begin)
            at += ABOUT.size
        self.socket.sendall(header)
        if slot < 0:
            for array in arrays:
                if array.nbytes:
                    self.socket.sendall(memoryview(_made(array).data).cast("B"))
        return True

    def _put(self, arrays: Sequence[Sent]) -> tuple[int, list[int]]:
        """Put arrays into shared memory, unless that is where they were made; (-1, []) if there is no room for them."""
        room, self._room = self._room, None
        memory = self._out
        assert memory is not None
        if room is not None:
            slot, begins, there = room
            if len(there) == len(arrays) and all(one is other for one, other in zip(there, arrays, strict=True)):
                return slot, begins
            memory.release(slot)
        found = memory.reserve([array.nbytes for array in arrays])
        if found is None:
            return -1, []
        slot, begins = found
        for begin, array in zip(begins, arrays, strict=True):
            _write(array, memory.view(begin, array.dtype, array.shape))
        return slot, begins

    def receive(self) -> Received:
        """The next message. EOFError if the other side is gone."""
        header = self._got
        self._fill(memoryview(header))
        mark, about, count, slot, one, two, three, fraction = PREFIX.unpack_from(header)
        if mark != MARK or count > MAX_ARRAYS:
            raise DkgeError("a message that is none of ours")
        tags, begins, kinds = [], [], []
        for number in range(count):
            tag, of, _, width, rows, begin = ABOUT.unpack_from(header, PREFIX.size + number * ABOUT.size)
            shape = (rows,) if width < 0 else (rows, width)
            if of >= len(TYPES) or rows < 0 or math.prod(shape) * TYPES[of].itemsize > MAX_ARRAY:
                raise DkgeError(f"an array of type {of} and shape {shape} is none of ours")
            tags.append(tag)
            begins.append(begin)
            kinds.append((TYPES[of], shape))
        if slot >= 0 and self._in is not None:
            arrays = self._in.get(slot, begins, kinds)
        else:
            arrays = [np.empty(shape, dtype) for dtype, shape in kinds]
            for array in arrays:
                self._fill(memoryview(array.reshape(-1).view(np.uint8).data))
        return Received(about, (one, two, three), fraction, tags, arrays)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def __del__(self) -> None:
        # A worker's table is not closed: with the last who refers to it, its connections are gone.
        self.socket.close()

    def _fill(self, into: memoryview) -> None:
        at = 0
        while at < len(into):
            got = self.socket.recv_into(into[at:], 0, socket.MSG_WAITALL)
            if not got:
                raise EOFError("the other side closed the connection")
            at += got
