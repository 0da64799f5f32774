"""Tables that are mapped: the same vectors as tables that are read, and nothing that is written reaches a file."""

from __future__ import annotations

import gc
import mmap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dkge_dist.store import tables
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.parts import map_file, map_files
from dkge_dist.store.storage import Storage, StoreError, open_storage
from dkge_dist.store.tables import BlockIndex, load_table, save_delta, save_table

BLOCK, DIM = mmap.PAGESIZE // 64, 16
"""A block is one page."""


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def vectors(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, DIM)).astype(np.float32)


def saved(storage: Storage, values: np.ndarray, deltas: int = 0, more: int = 0) -> TableEntry:
    """A table of some rows and `more`, and rows of it that were written later."""
    with storage.staging() as staging:
        entry = save_table(staging, values, BLOCK)
        rng = np.random.default_rng(1)
        parts = []
        for number in range(deltas):
            rows = np.sort(rng.choice(values.shape[0] + more, 20, replace=False))
            parts.append(save_delta(staging, rows, vectors(20, 100 + number)))
        return entry.model_copy(update={"deltas": parts, "rows": values.shape[0] + more})


def files(storage: Storage) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(storage.location, "parts").glob("*/*")}


@pytest.mark.parametrize("rows", [BLOCK - 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 7])
@pytest.mark.parametrize(("deltas", "more", "room"), [(0, 0, 0), (0, 0, 40), (2, 9, 0), (3, BLOCK + 9, 5 * BLOCK)])
def test_mapped_tables_are_those_that_are_read(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, rows: int, deltas: int, more: int, room: int
) -> None:
    entry = saved(storage, vectors(rows), deltas, more)
    kept = files(storage)
    mapped = load_table(storage, entry, room)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "map_files", lambda *_: None)
        read = load_table(storage, entry, room)
    assert mapped.shape == read.shape == (max(room, rows + more), DIM)
    assert mapped.dtype == read.dtype == np.float32
    assert mapped.flags.writeable
    assert mapped.tobytes() == read.tobytes()
    mapped += 1
    assert np.array_equal(mapped, read + 1)
    assert files(storage) == kept
    assert np.array_equal(load_table(storage, entry, room), read)


def test_what_stands_behind_the_last_row_of_a_block_is_nobodys(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block is filled up; rows that a table got since are zeros all the same."""
    monkeypatch.setenv("DKGE_VERIFY", "folded")
    values = vectors(BLOCK + 7)
    entry = saved(storage, values, deltas=1, more=30)
    last = BlockIndex(storage, entry).parts[1]
    path = storage.part_path(last)
    content = bytearray(path.read_bytes())
    content[7 * 64 :] = b"x" * (len(content) - 7 * 64)
    path.write_bytes(content)
    rows, _ = tables.load_delta(storage, entry, entry.deltas[0])
    untouched = np.setdiff1d(np.arange(BLOCK + 7, BLOCK + 37), rows)
    assert untouched.shape[0]
    assert not load_table(storage, entry)[untouched].any()


def maps(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def test_memory_is_given_back_with_the_last_view_of_it(storage: Storage) -> None:
    entry = saved(storage, vectors(3 * BLOCK))
    path = storage.part_path(BlockIndex(storage, entry).parts[1])
    table = load_table(storage, entry)
    assert maps(path) == 1
    some = table[BLOCK : BLOCK + 2]
    del table
    gc.collect()
    assert maps(path) == 1
    assert np.array_equal(some, vectors(3 * BLOCK)[BLOCK : BLOCK + 2])
    del some
    gc.collect()
    assert maps(path) == 0


def test_what_cannot_be_mapped_is_read(storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = vectors(3 * BLOCK)
    entry = saved(storage, values)
    monkeypatch.setattr("dkge_dist.store.parts._libc", lambda: SimpleNamespace(mmap=lambda *_: 2**64 - 1))
    assert np.array_equal(load_table(storage, entry), values)
    monkeypatch.undo()
    assert map_files([], mmap.PAGESIZE, 0) is None
    assert map_files([tmp_path / "nobody"], mmap.PAGESIZE, mmap.PAGESIZE) is None
    (tmp_path / "odd").write_bytes(bytes(100))
    assert map_files([tmp_path / "odd"], 100, 100) is None


def test_one_file_is_mapped_read_only(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(b"0123456789")
    found = map_file(path, 10)
    assert found.tobytes() == b"0123456789"
    assert not found.flags.writeable
    assert maps(path) == 1
    del found
    gc.collect()
    assert maps(path) == 0


def test_files_that_cannot_be_mapped_are_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"012")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "short")
    for name in ("short", "empty", "link", "absent"):
        with pytest.raises(StoreError, match=f"part {tmp_path / name} cannot be mapped"):
            map_file(tmp_path / name, 10)
