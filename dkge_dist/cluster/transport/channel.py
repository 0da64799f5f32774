"""One end of an authenticated connection: messages out, messages in, by socket and by shared memory.

Between machines arrays follow their header through the socket. On one machine each end maps a piece of the other's
memory: arrays are written there once and used where they lie. What does not fit there goes through the socket.

With a silence limit, `receive` and `send` raise TimeoutError when nothing comes from the other end for so long. A
server sends keep-alives, so that an answer may take any time.
"""

from __future__ import annotations

import math
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from dkge_dist.cluster.transport.message import (
    FLOAT,
    HEADER_BYTES,
    KEEPALIVE,
    KEEPALIVE_HEADER,
    NO_SLOT,
    Message,
    Payload,
    Received,
    Shape,
    contiguous,
    pack_header,
    unpack_header,
    write_payload,
)
from dkge_dist.cluster.transport.shared_memory import SharedMemory
from dkge_dist.types import Array

SILENCE_SECONDS = 30.0
"""After which a process that should speak, or a machine that does not answer the kernel's probes, counts as lost."""


class Channel:
    """One thread may send while another one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._out: SharedMemory | None = None
        self._in: SharedMemory | None = None
        self._header_out, self._header_in = bytearray(HEADER_BYTES), bytearray(HEADER_BYTES)
        self._view_out, self._view_in = memoryview(self._header_out), memoryview(self._header_in)
        self._reply: tuple[int, list[int], list[Array]] | None = None
        self._silence_seconds = math.inf
        self._heard = -math.inf  # When the last keep-alive came.
        if connection.family != socket.AF_UNIX:
            _tune_tcp(connection)

    @property
    def is_local(self) -> bool:
        """Is the other end on this machine, reached by a Unix socket?"""
        return self.socket.family == socket.AF_UNIX

    def share(self) -> None:
        """Exchange shared memory, if this is one machine. Both ends call it right after the handshake, whose timeout
        still holds."""
        if not self.is_local:
            return
        own = SharedMemory.create()
        try:
            socket.send_fds(self.socket, [b"m"], [own.descriptor])
            _, descriptors, _, _ = socket.recv_fds(self.socket, 1, 1, socket.MSG_CMSG_CLOEXEC)
            if not descriptors:
                raise EOFError("the other side closed the connection")
        finally:
            own.close()
        try:
            self._in = SharedMemory.attach(descriptors[0])
        finally:
            os.close(descriptors[0])
        self._out = own

    def limit_silence(self, silence_seconds: float | None) -> None:
        """From now on block for any time (None), or raise TimeoutError after so many seconds without a sign of life.

        The kernel keeps the time: Python's own timeouts would cost a call to `poll` for every call that they guard.
        """
        self.socket.settimeout(None)
        if silence_seconds is not None:
            self._silence_seconds = silence_seconds
            fraction, whole = math.modf(silence_seconds)
            timeout = struct.pack("ll", int(whole), int(fraction * 1e6))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def allocate_reply(self, shapes: Sequence[Shape]) -> list[Array]:
        """Float32 arrays for the next message that is sent: filled by the caller where the receiver will see them."""
        sizes = [math.prod(shape) * FLOAT.itemsize for shape in shapes]
        found = self._out.allocate(sizes) if self._out is not None and shapes else None
        if self._out is None or found is None:
            return [np.empty(shape, FLOAT) for shape in shapes]
        slot, offsets = found
        arrays = [self._out.view(offset, FLOAT, shape) for offset, shape in zip(offsets, shapes, strict=True)]
        self._reply = (slot, offsets, arrays)
        return arrays

    def send(self, message: Message, may_block: bool = True) -> bool:
        """Send a message. False, and nothing is sent, if that would have to wait until the other end reads and it may
        not block."""
        arrays = message.arrays
        slot, offsets = self._write_shared(arrays) if self._out is not None and arrays else (NO_SLOT, [])
        if slot < 0 and arrays and not may_block:
            return False
        pack_header(self._header_out, message, slot, offsets)
        if may_block:
            self._send_all(self._view_out)
        else:
            try:  # A header is one buffer of the kernel: a Unix socket takes all of it or nothing.
                self.socket.send(self._header_out, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if slot >= 0 and self._out is not None:
                    self._out.free(slot)
                return False
        if slot < 0:
            for array in arrays:
                if array.nbytes:
                    self._send_all(memoryview(contiguous(array).data).cast("B"))
        return True

    def _write_shared(self, arrays: Sequence[Payload]) -> tuple[int, list[int]]:
        """Write arrays to shared memory, unless they were made there; (NO_SLOT, []) if they do not fit."""
        reply, self._reply = self._reply, None
        memory = self._out
        assert memory is not None
        if reply is not None:
            slot, offsets, made = reply
            if len(made) == len(arrays) and all(one is other for one, other in zip(made, arrays, strict=True)):
                return slot, offsets
            memory.free(slot)
        found = memory.allocate([array.nbytes for array in arrays])
        if found is None:
            return NO_SLOT, []
        slot, offsets = found
        for offset, array in zip(offsets, arrays, strict=True):
            write_payload(array, memory.view(offset, array.dtype, array.shape))
        return slot, offsets

    def _send_all(self, data: memoryview) -> None:
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                # A server that works does not read. Then the thread that receives gets its keep-alives.
                if time.monotonic() - self._heard >= self._silence_seconds:
                    raise TimeoutError(f"took nothing for {self._silence_seconds:g} s") from None

    def send_keepalive(self) -> None:
        """Say that this process runs, unless the other end has not read what was sent before."""
        poll = select.poll()
        poll.register(self.socket, select.POLLOUT)
        if poll.poll(0):  # There is room for a header, so that this does not block.
            self._send_all(memoryview(KEEPALIVE_HEADER))

    def receive(self) -> Received:
        """The next message. EOFError if the other end is gone, TimeoutError if it is silent."""
        kind = KEEPALIVE
        while kind == KEEPALIVE:
            self._receive_into(self._view_in)
            kind, slot, integers, scalar, tags, offsets, specs = unpack_header(self._header_in)
            if kind == KEEPALIVE:
                self._heard = time.monotonic()
        if slot >= 0 and self._in is not None:
            arrays = self._in.receive(slot, offsets, specs)
        else:
            arrays = [np.empty(shape, dtype) for dtype, shape in specs]
            for array in arrays:
                self._receive_into(memoryview(array.reshape(-1).view(np.uint8).data))
        return Received(kind, integers, scalar, tags, arrays)

    def _receive_into(self, data: memoryview) -> None:
        while data:
            try:
                got = self.socket.recv_into(data, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                raise TimeoutError(f"no sign of life for {self._silence_seconds:g} s") from None
            if not got:
                raise EOFError("the other side closed the connection")
            data = data[got:]

    def hang_up(self) -> None:
        """End the connection: threads that send or receive on it now get an error. `close` comes after them."""
        with suppress(OSError):  # It is not connected any more.
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Shared memory stays for as long as arrays in it are used."""
        self.socket.close()

    def __del__(self) -> None:
        # Of a client that was not closed: its connection ends with the last reference to it.
        self.socket.close()


def _tune_tcp(connection: socket.socket) -> None:
    """Send at once, and notice a machine that vanished while nothing was due. Not every system has all the options.

    No TCP_USER_TIMEOUT: it also ends connections whose other end is alive and does not read for a while.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = int(SILENCE_SECONDS)
    for name, value in (("TCP_KEEPIDLE", seconds // 3), ("TCP_KEEPINTVL", seconds // 6), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
