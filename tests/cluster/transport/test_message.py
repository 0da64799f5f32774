"""The format of a message: what is packed is what is unpacked, and nothing else is taken for a message."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.cluster.transport import Message, RowSelection
from dkge_dist.cluster.transport.errors import ProtocolError
from dkge_dist.cluster.transport.message import (
    ARRAY,
    HEADER_BYTES,
    KEEPALIVE,
    KEEPALIVE_HEADER,
    MAGIC,
    MAX_ARRAYS,
    NO_SLOT,
    PREFIX,
    contiguous,
    pack_header,
    unpack_header,
)


def test_header_round_trip() -> None:
    arrays = [np.zeros(3, np.int32), np.zeros((0, 5), np.float32), np.zeros((7, 2), np.int64), np.zeros(1, np.uint8)]
    sent = Message(254, (1, -(2**62), 3), 0.1, [5, 255, 0, 9], arrays)
    buffer = bytearray(HEADER_BYTES)
    pack_header(buffer, sent, 7, [64, 128, 192, 2**40])
    *values, offsets, specs = unpack_header(buffer)
    assert values == [254, 7, (1, -(2**62), 3), 0.1, [5, 255, 0, 9]]
    assert offsets == [64, 128, 192, 2**40]
    assert specs == [(array.dtype, array.shape) for array in arrays]


def test_keepalive_is_a_header() -> None:
    assert len(KEEPALIVE_HEADER) == HEADER_BYTES
    assert unpack_header(KEEPALIVE_HEADER)[0] == KEEPALIVE


def header(magic: bytes = MAGIC, count: int = 1, dtype: int = 3, columns: int = -1, rows: int = 3) -> bytes:
    prefix = PREFIX.pack(magic, 100, count, NO_SLOT, 0, 0, 0, 0.0)
    return (prefix + ARRAY.pack(0, dtype, 0, columns, rows, 0)).ljust(HEADER_BYTES, b"\0")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"x" * HEADER_BYTES, "unknown message magic b'xxxx'"),
        (header(magic=b"DKGE"), "unknown message magic b'DKGE'"),
        (header(count=200), f"200 arrays: at most {MAX_ARRAYS}"),
        (header(dtype=99), "array 0: unknown dtype 99"),
        (header(rows=-1), r"array 0: shape \(-1,\)"),
        (header(rows=2**62), "array 0: shape"),
        (header(columns=2**31 - 1, rows=2**40), "array 0: shape"),
    ],
)
def test_other_bytes_are_refused(data: bytes, told: str) -> None:
    assert unpack_header(header())[-1] == [(np.dtype(np.uint8), (3,))]
    with pytest.raises(ProtocolError, match=told):
        unpack_header(data)


def test_row_selection_is_the_rows_in_order() -> None:
    values = np.arange(20, dtype=np.float32).reshape(5, 4)
    order = np.array([4, 0, 0])
    some = RowSelection(values, order)
    assert some.shape == (3, 4)
    assert some.nbytes == values[order].nbytes
    assert (contiguous(some) == values[order]).all()
