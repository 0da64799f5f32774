"""Parts that are verified by chunks: what is looked at is verified, and nothing else is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.store import chunks, verify
from dkge_dist.store.chunks import ChunkedColumn, ChunkedPart, chunk_sums
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import add_part
from dkge_dist.store.storage import Storage, StoreError, open_storage
from tests.store.damage import flipped

CHUNK = 64
NUMBERS = np.arange(0, 300, 3, dtype=np.int64)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", CHUNK)


class Stored:
    """Some numbers as a part, with the checksums of its chunks."""

    def __init__(self, folder: Path) -> None:
        self.storage: Storage = open_storage(folder)
        with self.storage.staging() as staging:
            part = verify.add_part(staging, lambda path: path.write_bytes(NUMBERS.tobytes()) and None)
            self.part = PartEntry.of(part, len(NUMBERS))
            self.sums = add_part(staging, {"sum": chunk_sums(np.frombuffer(NUMBERS.tobytes(), np.uint8))})
        self.path = self.storage.part_path(self.part.part)

    def open(self) -> tuple[ChunkedPart, ChunkedColumn]:
        part = ChunkedPart(self.storage, self.part, self.sums)
        return part, ChunkedColumn(part, part.data.view(np.int64))


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_numbers_and_where_they_would_be(stored: Stored) -> None:
    _, column = stored.open()
    assert [column[i] for i in range(len(column))] == NUMBERS.tolist()
    for wanted in range(-1, 302):
        assert column.search(wanted) == int(np.searchsorted(NUMBERS, wanted))


def test_a_wrong_bit_is_found_where_it_is_looked_at_and_only_there(stored: Stored) -> None:
    per_chunk = CHUNK // NUMBERS.itemsize
    for bit in range(0, 8 * NUMBERS.nbytes, 129):
        flipped(stored.path, bit)
        hit = bit // 8 // CHUNK
        _, column = stored.open()
        for place in range(len(column)):
            if place // per_chunk == hit:
                with pytest.raises(StoreError, match=f"{stored.path} is damaged: its bytes from {hit * CHUNK} on"):
                    column[place]
            else:
                assert column[place] == NUMBERS[place]
        with pytest.raises(StoreError, match="is damaged"):
            stored.open()[0].require_all()
        flipped(stored.path, bit)


def test_a_small_part_is_verified_as_a_whole(stored: Stored) -> None:
    assert ChunkedPart(stored.storage, stored.part, None).data.tobytes() == NUMBERS.tobytes()
    flipped(stored.path, 700)
    with pytest.raises(StoreError, match="is damaged"):
        ChunkedPart(stored.storage, stored.part, None)


def test_checksums_of_something_else_are_refused(stored: Stored) -> None:
    with stored.storage.staging() as staging:
        stored.sums = add_part(staging, {"sum": np.zeros(3, np.uint64)})
    with pytest.raises(StoreError, match="has 3 checksums, of 800 bytes"):
        stored.open()
