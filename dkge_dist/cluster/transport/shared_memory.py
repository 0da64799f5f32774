"""Memory that one process writes and another one reads: arrays of a message are used where they lie.

It has no name anywhere: a sealed memfd, handed over on a Unix socket, is gone with the last process that maps it. The
seals keep its size as it was checked: a peer that could shrink it would end its reader by SIGBUS.

It begins with one byte per slot. The sender sets it when a message lies there; the receiver clears it once nothing
refers to the arrays of the message, so that the sender uses the space again.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dkge_dist.cluster.transport.errors import ProtocolError
from dkge_dist.cluster.transport.message import Shape, Spec
from dkge_dist.types import Array

ALIGNMENT = SLOTS = 64
SHARED_BYTES = 1 << 28
"""Of address space a direction. Memory is taken when it is first written, and the lowest free space is used first."""


def is_available() -> bool:
    """Does this system have sealed memory without a name (Linux)?"""
    return hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class SharedMemory:
    """One direction of a connection. The sender allocates, the receiver looks and lets go."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, SHARED_BYTES)
        self._used: dict[int, tuple[int, int]] = {}
        self._leases: dict[int, weakref.ref[Array]] = {}

    @classmethod
    def create(cls) -> SharedMemory:
        """Memory of the sender, sealed."""
        descriptor = os.memfd_create("dkge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, SHARED_BYTES)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _seals())
            return cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def attach(cls, descriptor: int) -> SharedMemory:
        """Memory that a sender handed over. ProtocolError unless it has the size agreed on and cannot lose it."""
        size = os.fstat(descriptor).st_size
        if size != SHARED_BYTES:
            raise ProtocolError(f"shared memory of {size} bytes instead of {SHARED_BYTES}")
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError:
            seals = 0  # No memfd at all.
        if seals & _seals() != _seals():
            raise ProtocolError("shared memory is not sealed: it could be cut short while it is read")
        return cls(descriptor)

    def allocate(self, sizes: Sequence[int]) -> tuple[int, list[int]] | None:
        """A slot, and the offsets of arrays of so many bytes in the first free space that holds all; None if none."""
        memory, used = self._memory, self._used
        for slot in [slot for slot in used if not memory[slot]]:
            del used[slot]
        padded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
        at, needed = SLOTS, sum(padded)
        for begin, end in sorted(used.values()):
            if at + needed <= begin:
                break
            at = end
        if at + needed > SHARED_BYTES or len(used) == SLOTS:
            return None
        slot = next(slot for slot in range(SLOTS) if slot not in used)
        used[slot], memory[slot] = (at, at + needed), 1
        offsets = []
        for size in padded:
            offsets.append(at)
            at += size
        return slot, offsets

    def free(self, slot: int) -> None:
        """Give up a slot that was allocated and not sent."""
        self._memory[slot] = 0

    def view(self, offset: int, dtype: np.dtype[Any], shape: Shape) -> Array:
        """The sender's view of an array that it allocated."""
        return np.ndarray(shape, dtype, self._memory, offset)

    def receive(self, slot: int, offsets: Sequence[int], specs: Sequence[Spec]) -> list[Array]:
        """The arrays of a message, where they lie. The sender gets the space back once nothing refers to them."""
        if not 0 <= slot < SLOTS:
            raise ProtocolError(f"unknown shared-memory slot {slot} of {SLOTS}")
        for offset, (dtype, shape) in zip(offsets, specs, strict=True):
            if offset < SLOTS or offset % ALIGNMENT or offset + math.prod(shape) * dtype.itemsize > SHARED_BYTES:
                raise ProtocolError(f"array of shape {shape} at {offset} is outside of {SHARED_BYTES} shared bytes")
        whole = np.frombuffer(self._memory, np.uint8)  # What views of it keep alive.
        self._leases[slot] = weakref.ref(whole, partial(_clear, self._memory, slot))
        return [np.ndarray(s, dtype, whole, offset) for offset, (dtype, s) in zip(offsets, specs, strict=True)]

    def close(self) -> None:
        """Let go of the descriptor. The mapping stays for as long as arrays in it are used."""
        os.close(self.descriptor)


def _clear(memory: mmap.mmap, slot: int, _: object) -> None:
    memory[slot] = 0


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
