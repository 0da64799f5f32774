"""Bit rot: a flipped bit in any part ends in a message that names the part, and gets no new checksum."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from dkge_dist.store.models import save_compact
from dkge_dist.store.parts import DamagedPartError, save_bytes
from dkge_dist.store.storage import Blob, Storage, StoreError, open_storage
from dkge_dist.store.store import Store
from dkge_dist.store.tables import BlockIndex, StoredTable, load_table, save_delta, save_table
from dkge_dist.surfaces import api
from dkge_dist.types import Field, UsageError
from tests.graphs import fresh_labels, write_changes
from tests.jobs.reads import counted_reads
from tests.store.damage import flipped

BLOCK, DIM = 64, 16
"""A block is one page."""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


@pytest.fixture
def nights(with_nights: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_nights, tmp_path / "store"))


def path_of(store: Path, digest: str) -> Path:
    return store / "parts" / digest[:2] / digest


def ingest(store: Path) -> Any:
    return api.ingest(store, write_changes(store.parent / "next.changes", fresh_labels(9)))


def nightly(store: Path) -> Any:
    return api.nightly(store, write_changes(store.parent / "next.changes", fresh_labels(9)))


COMMANDS: dict[str, Callable[[Path], Any]] = {
    "answer": lambda store: api.answer(store, "e1", "r1"),
    "evaluate": lambda store: api.evaluate(store),
    "export": lambda store: api.export(store, store.parent / "out", format="npy"),
    "ingest": ingest,
    "nightly": nightly,
}


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.slow if name == "nightly" else ()) for name in COMMANDS]
)
def test_a_flipped_bit_in_any_part_that_is_read_is_named(nights: Path, command: str) -> None:
    """Bits at random and the last one: slots, labels, triples, degrees, changes, indexes, blocks, deltas, weights."""
    work = nights.parent / "work"

    def run() -> Any:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(nights, work / "store")
        return work / "store"

    with counted_reads(run()) as reads:
        COMMANDS[command](work / "store")
    assert len(reads.parts) > 10
    rng = np.random.default_rng(3)
    for digest in reads.parts:
        store = run()
        path = path_of(store, digest)
        size = path.stat().st_size
        flipped(path, int(rng.integers(8 * size)) if rng.random() < 0.8 else 8 * size - 1)
        versions = sorted((store / "versions").iterdir())
        with pytest.raises(StoreError, match=digest):
            COMMANDS[command](store)
        if command == "ingest":
            assert sorted((store / "versions").iterdir()) == versions


def test_what_is_rotten_gets_no_new_checksums(nights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if blocks are verified only when they are folded."""
    monkeypatch.setenv("DKGE_VERIFY", "folded")
    store = Store.open(nights)
    model = store.find_model()
    block = BlockIndex(store.storage, model.model.entities[Field.CONTEXT]).parts[0]
    flipped(path_of(nights, block.digest), 77)
    api.answer(nights, "e1", "r1")
    with store.storage.staging() as staging, pytest.raises(DamagedPartError, match=block.digest):
        save_compact(store, staging, model)


def table(storage: Storage) -> tuple[Any, np.ndarray]:
    values = np.random.default_rng(0).normal(size=(3 * BLOCK + 5, DIM)).astype(np.float32)
    with storage.staging() as staging:
        entry = save_table(staging, values, BLOCK)
        delta = save_delta(staging, np.arange(4), values[:4])
        return entry.model_copy(update={"deltas": [delta]}), values


READERS: dict[str, Callable[[Storage, Any], Any]] = {
    "mapped": load_table,
    "scanned": lambda storage, entry: load_table(storage, entry, will_scan=True),
    "blocks": lambda storage, entry: np.concatenate([StoredTable(storage, entry).rows(n) for n in range(4)]),
    "chunks": lambda storage, entry: [StoredTable(storage, entry).chunk(n) for n in range(4)],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("number", range(4))
def test_blocks_are_verified_by_every_reader(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, reader: str, number: int
) -> None:
    entry, values = table(storage)
    READERS[reader](storage, entry)
    part = BlockIndex(storage, entry).parts[number]
    # The last byte is padding in the last block, and belongs to the part all the same.
    flipped(storage.part_path(part), 8 * part.size - 1)
    with pytest.raises(DamagedPartError, match=part.digest):
        READERS[reader](storage, entry)
    monkeypatch.setenv("DKGE_VERIFY", "folded")
    found = READERS[reader](storage, entry)
    assert reader == "chunks" or np.array_equal(found, values) == (number == 3)
    with pytest.raises(DamagedPartError, match=part.digest):
        load_table(storage, entry, when="mapped")


def test_checksums_are_xxh3_of_the_bytes(storage: Storage) -> None:
    for data in (b"", b"x", bytes(100_000)):
        with storage.staging() as staging:
            entry = save_bytes(staging, data, 1)
        expected = Blob(hashlib.sha256(data).hexdigest(), len(data), xxhash.xxh3_64_hexdigest(data))
        assert entry.part == expected


def test_another_word_for_when_is_refused(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    entry, _ = table(storage)
    monkeypatch.setenv("DKGE_VERIFY", "never")
    with pytest.raises(UsageError, match="DKGE_VERIFY=never: blocks are verified when they are mapped or folded"):
        load_table(storage, entry)
