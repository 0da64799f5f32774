"""Large parts of which a few bytes are read: verified a chunk at a time, before anybody sees a byte of it.

Verifying a whole part takes reading all of it, which is too much where some names of millions are asked for. So the
checksums of its chunks stand in a part of their own, a two-thousandth of its size.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pyarrow as pa
import xxhash

from dkge_dist.store import verify
from dkge_dist.store.columns import read_numbers
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.mapping import map_file
from dkge_dist.store.storage import Storage, StoreError
from dkge_dist.store.verify import DamagedPartError
from dkge_dist.types import Array

CHUNK_BYTES = 1 << 14
SMALL_BYTES = 16 * CHUNK_BYTES
"""Parts up to this size are verified as a whole."""
SUM_TYPES = {"sum": pa.uint64()}


def chunk_sums(data: Array) -> Array:
    """The checksum of every chunk."""
    chunks = range(0, data.shape[0], CHUNK_BYTES)
    return np.array([_sum(data[begin : begin + CHUNK_BYTES]) for begin in chunks], np.uint64)


def _sum(chunk: Array) -> int:
    return xxhash.xxh3_64_intdigest(chunk.data)


class ChunkedPart:
    """A mapped part. Whoever looks at some of its bytes has them verified first."""

    def __init__(self, storage: Storage, part: PartEntry, sums: PartEntry | None) -> None:
        if sums is None:
            self.path, self.data = verify.open_part(storage, part.part)
            self._sums = np.empty(0, np.uint64)
        else:
            (self._sums,) = read_numbers(storage, sums, SUM_TYPES)
            if self._sums.shape[0] != -(-part.size // CHUNK_BYTES):
                raise StoreError(f"{storage}: part {sums.digest} has {sums.rows} checksums, of {part.size:,} bytes")
            self.path = storage.part_path(part.part)
            self.data = map_file(self.path, part.size)
        self._is_seen = bytearray(self._sums.shape[0])
        self._address = int(self.data.ctypes.data)

    def require(self, begin: int, end: int) -> None:
        """DamagedPartError if bytes `begin` to `end` are not those that were written."""
        last = min((end - 1) // CHUNK_BYTES, len(self._is_seen) - 1)
        for chunk in range(begin // CHUNK_BYTES, last + 1):
            if not self._is_seen[chunk]:
                if _sum(self.data[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]) != self._sums[chunk]:
                    raise DamagedPartError(
                        f"part {self.path} is damaged: its bytes from {chunk * CHUNK_BYTES} on are not those that were "
                        "written; `dkge check` names all such parts"
                    )
                self._is_seen[chunk] = 1

    def require_all(self) -> None:
        """The same for all of it."""
        self.require(0, self.data.shape[0])

    def position(self, view: Array) -> int:
        """Where in this part an array begins that lies in it."""
        return int(view.ctypes.data) - self._address


class ChunkedColumn:
    """A column of numbers in such a part."""

    def __init__(self, part: ChunkedPart, numbers: Array) -> None:
        self._part, self._numbers = part, numbers
        self._first, self._size = part.position(numbers), numbers.itemsize

    def __len__(self) -> int:
        return int(self._numbers.shape[0])

    def __getitem__(self, place: int) -> int:
        begin = self._first + place * self._size
        self._part.require(begin, begin + self._size)
        return int(self._numbers[place])

    def search(self, wanted: int) -> int:
        """In an ascending column: the first place whose number is not below `wanted`, or its length."""
        return bisect_left(self, wanted)
