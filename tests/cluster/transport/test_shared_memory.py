"""Shared memory: sealed, used again when nothing refers to it, and never read outside of it."""

from __future__ import annotations

import fcntl
import os
import tempfile

import numpy as np
import pytest

from dkge_dist.cluster.transport.errors import ProtocolError
from dkge_dist.cluster.transport.shared_memory import SHARED_BYTES, SLOTS, SharedMemory

FLOAT = np.dtype(np.float32)


def test_space_is_used_again_once_nothing_refers_to_it() -> None:
    memory = SharedMemory.create()
    sent = np.arange(40, dtype=np.float32)
    first, second, third = (memory.allocate([sent.nbytes]) for _ in range(3))
    assert first is not None
    assert second is not None
    for _, (offset,) in (first, second):
        memory.view(offset, FLOAT, sent.shape)[...] = sent
    seen = [memory.receive(*where, [(FLOAT, (40,))])[0] for where in (first, second)]
    parts = [array[10:20] for array in seen]
    del seen
    assert (parts[1] == sent[10:20]).all()
    assert memory.allocate([sent.nbytes]) not in (first, second, third)
    del parts[1]
    assert memory.allocate([sent.nbytes]) == second
    del parts[0]
    large, small = memory.allocate([2 * sent.nbytes]), memory.allocate([sent.nbytes])
    assert large is not None
    assert small is not None
    assert small[1] == first[1] < large[1]
    memory.close()


def test_no_space_is_no_error() -> None:
    memory = SharedMemory.create()
    assert memory.allocate([SHARED_BYTES]) is None
    assert all(memory.allocate([1]) is not None for _ in range(SLOTS))
    assert memory.allocate([1]) is None
    memory.close()


@pytest.mark.parametrize("offset", [0, 8, 65, SHARED_BYTES, SHARED_BYTES - 64, -64])
def test_arrays_outside_are_refused(offset: int) -> None:
    memory = SharedMemory.create()
    with pytest.raises(ProtocolError, match=f"at {offset} is outside of"):
        memory.receive(0, [offset], [(FLOAT, (5, 4))])
    memory.close()


@pytest.mark.parametrize("slot", [-1, SLOTS])
def test_unknown_slots_are_refused(slot: int) -> None:
    memory = SharedMemory.create()
    with pytest.raises(ProtocolError, match=f"unknown shared-memory slot {slot}"):
        memory.receive(slot, [64], [(FLOAT, (2, 2))])
    memory.close()


@pytest.mark.parametrize("size", [0, SHARED_BYTES - 4096, 2 * SHARED_BYTES])
def test_its_size_cannot_be_changed(size: int) -> None:
    memory = SharedMemory.create()
    with pytest.raises(PermissionError):
        os.ftruncate(memory.descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(memory.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    memory.close()


def test_attached_memory_is_the_same() -> None:
    memory = SharedMemory.create()
    other = SharedMemory.attach(memory.descriptor)
    found = memory.allocate([16])
    assert found is not None
    slot, offsets = found
    memory.view(offsets[0], FLOAT, (4,))[...] = 7
    assert (other.receive(slot, offsets, [(FLOAT, (4,))])[0] == 7).all()
    memory.close()


def unsealed(size: int) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    return descriptor


def half_sealed(size: int) -> int:
    descriptor = unsealed(size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return descriptor


def on_disk(size: int) -> int:
    with tempfile.TemporaryFile() as file:
        os.ftruncate(file.fileno(), size)
        return os.dup(file.fileno())


@pytest.mark.parametrize("make", [unsealed, half_sealed, on_disk])
def test_memory_that_may_shrink_is_refused(make: object) -> None:
    descriptor = make(SHARED_BYTES)  # type: ignore[operator]
    with pytest.raises(ProtocolError, match="not sealed"):
        SharedMemory.attach(descriptor)
    os.close(descriptor)


def test_memory_of_another_size_is_refused() -> None:
    descriptor = unsealed(4096)
    with pytest.raises(ProtocolError, match=f"4096 bytes instead of {SHARED_BYTES}"):
        SharedMemory.attach(descriptor)
    os.close(descriptor)
