"""The format of a message: a header of fixed size, then raw arrays. In: Message. Out: bytes, and Header from bytes.

Pure: no socket, no shared memory. A header has a fixed size so that one system call reads it: with many shards most of
a request's cost is what surrounds its rows, and every shard meets it with cold caches.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.cluster.transport.errors import ProtocolError
from dkge_dist.types import Array

MAGIC = b"dkge"
PREFIX = struct.Struct("<4sBBhqqqd")
"""Magic, kind, number of arrays, slot in shared memory (or -1), three integers, a scalar."""
ARRAY = struct.Struct("<BBHiqq")
"""Of an array: tag, dtype, unused, columns (-1: one-dimensional), rows, offset in shared memory."""
MAX_ARRAYS = 12
HEADER_BYTES = PREFIX.size + MAX_ARRAYS * ARRAY.size
MAX_ARRAY_BYTES = 1 << 33
DTYPES = tuple(np.dtype(name) for name in ("<i4", "<i8", "<f4", "|u1"))
DTYPE_CODE = {dtype: code for code, dtype in enumerate(DTYPES)}
FLOAT = DTYPES[2]
NO_SLOT = -1

KEEPALIVE = 255
"""The one kind that the transport keeps to itself: this process runs."""
KEEPALIVE_HEADER = PREFIX.pack(MAGIC, KEEPALIVE, 0, NO_SLOT, 0, 0, 0, 0.0).ljust(HEADER_BYTES, b"\0")

Shape = tuple[int, ...]
AllocateReply = Callable[[Sequence[Shape]], list[Array]]
"""Gives float32 arrays of these shapes for a reply to be written into, in shared memory where there is some."""


class RowSelection(NamedTuple):
    """Some rows of an array. They are gathered where they are sent from, which saves a copy."""

    values: Array
    order: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.values.dtype

    @property
    def shape(self) -> Shape:
        """Of what is sent."""
        return (self.order.shape[0], *self.values.shape[1:])

    @property
    def nbytes(self) -> int:
        """Of what is sent."""
        return math.prod(self.shape) * self.values.itemsize

    def gather_into(self, out: Array) -> None:
        """Copy the rows. `clip` is for speed alone (a checked `take` goes through a buffer): all rows exist."""
        np.take(self.values, self.order, 0, out, mode="clip")


Payload = Array | RowSelection


class Message(NamedTuple):
    """To be sent: a kind (0 to 254, the caller's), three integers, a scalar, and arrays with a tag each."""

    kind: int
    integers: tuple[int, int, int]
    scalar: float
    tags: Sequence[int]
    arrays: Sequence[Payload]


class Received(NamedTuple):
    """A message at the other end."""

    kind: int
    integers: tuple[int, int, int]
    scalar: float
    tags: list[int]
    arrays: list[Array]


Spec = tuple[np.dtype[Any], Shape]
Header = tuple[int, int, tuple[int, int, int], float, list[int], list[int], list[Spec]]
"""Kind, slot, integers, scalar; of each array the tag, the offset in shared memory, dtype and shape. A plain tuple: it
lives for two lines, once a message."""


def pack_header(buffer: bytearray, message: Message, slot: int, offsets: Sequence[int]) -> None:
    """Write the header of a message whose arrays lie at `offsets` of a slot, or follow it (`NO_SLOT`)."""
    arrays = message.arrays
    PREFIX.pack_into(buffer, 0, MAGIC, message.kind, len(arrays), slot, *message.integers, message.scalar)
    at = PREFIX.size
    for number, (tag, array) in enumerate(zip(message.tags, arrays, strict=True)):
        shape = array.shape
        columns = shape[1] if len(shape) == 2 else -1
        offset = offsets[number] if slot >= 0 else 0
        ARRAY.pack_into(buffer, at, tag, DTYPE_CODE[array.dtype], 0, columns, shape[0], offset)
        at += ARRAY.size


def unpack_header(buffer: bytes | bytearray) -> Header:
    """Read and check a header. ProtocolError if it is none, or speaks of arrays that nobody sends."""
    magic, kind, count, slot, one, two, three, scalar = PREFIX.unpack_from(buffer)
    if magic != MAGIC:
        raise ProtocolError(f"unknown message magic {magic!r}")
    if count > MAX_ARRAYS:
        raise ProtocolError(f"a message of {count} arrays: at most {MAX_ARRAYS}")
    tags, offsets = [], []
    specs: list[Spec] = []
    for number in range(count):
        tag, code, _, columns, rows, offset = ARRAY.unpack_from(buffer, PREFIX.size + number * ARRAY.size)
        shape = (rows,) if columns < 0 else (rows, columns)
        if code >= len(DTYPES):
            raise ProtocolError(f"array {number}: unknown dtype {code}")
        if rows < 0 or math.prod(shape) * DTYPES[code].itemsize > MAX_ARRAY_BYTES:
            raise ProtocolError(f"array {number}: shape {shape} is outside of 0 to {MAX_ARRAY_BYTES} bytes")
        tags.append(tag)
        offsets.append(offset)
        specs.append((DTYPES[code], shape))
    return kind, slot, (one, two, three), scalar, tags, offsets, specs


def write_payload(array: Payload, out: Array) -> None:
    """Copy what is to be sent to where it is sent from."""
    if isinstance(array, RowSelection):
        array.gather_into(out)
    else:
        out[...] = array


def contiguous(array: Payload) -> Array:
    """What is to be sent as one piece of memory."""
    if not isinstance(array, RowSelection):
        return np.ascontiguousarray(array)
    out = np.empty(array.shape, array.dtype)
    array.gather_into(out)
    return out
