"""Tables of vectors in a store: what is saved is loaded, Zarr reads it too, deltas win, wrong indexes are refused."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.parts import save_bytes
from dkge_dist.store.storage import Blob, Storage, StoreError, open_storage
from dkge_dist.store.tables import (
    MAX_BLOCK_ROWS,
    MIN_BLOCK_ROWS,
    BlockIndex,
    StoredTable,
    block_rows,
    blocks,
    load_table,
    save_delta,
    save_index,
    save_table,
    table_parts,
)
from tests.store.damage import HARMS, harm_file

ROWS, DIM, BLOCK = 150, 5, 64


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def vectors(rows: int = ROWS, dim: int = DIM, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


def saved(storage: Storage, values: np.ndarray, block: int = BLOCK) -> TableEntry:
    with storage.staging() as staging:
        return save_table(staging, values, block)


def as_zarr(storage: Storage, entry: TableEntry, folder: Path) -> Any:
    """The parts of a table laid out as the Zarr format has them, opened by Zarr itself."""
    index = BlockIndex(storage, entry)
    folder.mkdir()
    shutil.copy(storage.part_path(entry.base.part), folder / "zarr.json")
    for number, part in enumerate(index.parts):
        (folder / "c" / str(number)).mkdir(parents=True)
        shutil.copy(storage.part_path(part), folder / "c" / str(number) / "0")
    return zarr.open_array(folder, mode="r")


@settings(max_examples=25)
@given(st.integers(0, 200), st.integers(1, 9), st.integers(1, 80), st.integers(0, 99))
def test_what_is_saved_is_loaded_by_us_and_by_zarr(rows: int, dim: int, block: int, seed: int) -> None:
    values, block = vectors(rows, dim, seed), max(block, rows // 12)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(Path(folder))
        entry = saved(storage, values, block)
        assert (entry.rows, entry.dim, entry.deltas) == (rows, dim, [])
        loaded = load_table(storage, entry)
        assert loaded.dtype == np.float32
        assert loaded.flags.writeable
        assert loaded.tobytes() == values.tobytes()
        index = BlockIndex(storage, entry)
        assert len(index.parts) == -(-rows // block)
        for number in range(len(index.parts)):
            here = values[number * block : (number + 1) * block]
            assert np.array_equal(index.map(number)[: here.shape[0]], here)
        array = as_zarr(storage, entry, Path(folder) / "array")
        assert array.shape == (rows, dim)
        assert array.chunks == (block, dim)
        assert array.dtype == np.float32
        assert np.array_equal(array[:], values)


def test_odd_numbers_come_back_bit_by_bit(storage: Storage) -> None:
    values = vectors()
    values[[3, 64, 149], 2] = [np.nan, -np.inf, -0.0]
    values[7, 0] = np.float32(1e-45)
    assert load_table(storage, saved(storage, values)).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    "make", [lambda v: v[:, ::2], lambda v: v[::-1], np.asfortranarray, lambda v: v.astype(np.float64)]
)
def test_any_layout_of_values_is_saved_as_what_it_holds(
    storage: Storage, make: Callable[[np.ndarray], np.ndarray]
) -> None:
    values = make(vectors())
    assert np.array_equal(load_table(storage, saved(storage, values)), values.astype(np.float32))


def test_equal_blocks_are_one_part(storage: Storage) -> None:
    values = np.tile(vectors(BLOCK), (3, 1))
    entry = saved(storage, values)
    assert len({part.digest for part in table_parts(storage, entry)}) == 1
    assert np.array_equal(load_table(storage, entry), values)
    with storage.staging() as staging:
        save_table(staging, values, BLOCK)
        assert staging.written == 0


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 10_000, 100_000, 3_244_455, 10**9])
def test_block_sizes_are_powers_of_two_near_a_256th(rows: int) -> None:
    block = block_rows(rows)
    assert block & (block - 1) == 0
    assert MIN_BLOCK_ROWS <= block <= MAX_BLOCK_ROWS
    if MIN_BLOCK_ROWS < block < MAX_BLOCK_ROWS:
        assert rows / 256 / 2 < block < rows / 256 * 2


def altered(storage: Storage, entry: TableEntry, change: Callable[[Any], Any]) -> TableEntry:
    """A table whose index somebody wrote who can compute checksums."""
    content = json.loads(storage.part_path(entry.base.part).read_bytes())
    made = change(content)
    data = made if isinstance(made, bytes) else json.dumps(content).encode()
    with storage.staging() as staging:
        return entry.model_copy(update={"base": save_bytes(staging, data, entry.base.rows)})


def part_sizes(content: Any, size: object) -> None:
    for part in content["attributes"]["parts"]:
        part[1] = size


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(shape=[ROWS + 1, DIM]),
        lambda c: c.update(shape=[ROWS - 1, DIM]),
        lambda c: c.update(shape=[ROWS + BLOCK, DIM]),
        lambda c: c.update(shape=[10**30, DIM]),
        lambda c: c.update(shape=[-ROWS, DIM]),
        lambda c: c.update(shape=[ROWS, DIM + 1]),
        lambda c: c.update(shape=[ROWS, 0]),
        lambda c: c.update(shape=[ROWS]),
        lambda c: c.update(shape=[ROWS, DIM, 1]),
        lambda c: c.update(shape=[float(ROWS), DIM]),
        lambda c: c.update(shape=None),
        lambda c: c["chunk_grid"]["configuration"].update(chunk_shape=[0, DIM]),
        lambda c: c["chunk_grid"]["configuration"].update(chunk_shape=[-BLOCK, DIM]),
        lambda c: c["chunk_grid"]["configuration"].update(chunk_shape=[BLOCK + 1, DIM]),
        lambda c: c["chunk_grid"]["configuration"].update(chunk_shape=[]),
        lambda c: c["chunk_grid"].pop("configuration"),
        lambda c: c["attributes"]["parts"].pop(),
        lambda c: c["attributes"]["parts"].append(c["attributes"]["parts"][0]),
        lambda c: c["attributes"].update(parts=7),
        lambda c: c["attributes"].update(parts=["xx", "yy", "zz"]),
        lambda c: c.pop("attributes"),
        lambda c: part_sizes(c, BLOCK * DIM * 4 - 4),
        lambda c: part_sizes(c, "many"),
        lambda c: part_sizes(c, float("inf")),
        lambda c: b"",
        lambda c: b"\xff",
        lambda c: b"[]",
        lambda c: b"null",
        lambda c: b"7",
    ],
)  # fmt: skip
def test_indexes_that_do_not_fit_are_refused_and_named(storage: Storage, change: Callable[[Any], Any]) -> None:
    entry = altered(storage, saved(storage, vectors()), change)
    for read in (load_table, lambda *arguments: list(table_parts(*arguments))):
        with pytest.raises(StoreError, match=f"part .*{entry.base.digest}"):
            read(storage, entry)


@pytest.mark.parametrize("digest", ["../" * 21 + "x", "A" * 64, "", "/etc/passwd"])
def test_blocks_are_named_by_digests_only(storage: Storage, digest: str) -> None:
    def change(content: Any) -> None:
        content["attributes"]["parts"][1][0] = digest

    with pytest.raises(StoreError, match="is no part name"):
        load_table(storage, altered(storage, saved(storage, vectors()), change))


@pytest.mark.parametrize("update", [{"dim": DIM - 1}, {"dim": 1 << 40}, {"rows": ROWS - 1}, {"rows": ROWS + 1}])
def test_entries_that_do_not_fit_are_refused_before_anything_is_allocated(
    storage: Storage, update: dict[str, int]
) -> None:
    entry = saved(storage, vectors()).model_copy(update=update)
    with pytest.raises(StoreError, match=f"part .*{entry.base.digest}"):
        load_table(storage, entry)


@pytest.mark.parametrize("harm", HARMS)
def test_broken_blocks_are_named(storage: Storage, harm: str, tmp_path: Path) -> None:
    entry = saved(storage, vectors())
    path = storage.part_path(BlockIndex(storage, entry).parts[2])
    harm_file(path, harm, tmp_path / "aside")
    with pytest.raises(StoreError, match=str(path)):
        load_table(storage, entry)


def test_bytes_of_an_index_are_part_of_the_format(storage: Storage) -> None:
    """Indexes are named by their digests: the same blocks have to give the same bytes."""
    with storage.staging() as staging:
        entry = save_index(staging, [Blob("ab" * 32, 1280, "ef" * 8), Blob("cd" * 32, 1280, "01" * 8)], 100, 5, 64)
    assert storage.part_path(entry.base.part).read_bytes().decode() == (
        '{"zarr_format": 3, "node_type": "array", "shape": [100, 5], "data_type": "float32", "chunk_grid": {"name": '
        '"regular", "configuration": {"chunk_shape": [64, 5]}}, "chunk_key_encoding": {"name": "default", '
        '"configuration": {"separator": "/"}}, "fill_value": 0.0, "codecs": [{"name": "bytes", "configuration": '
        '{"endian": "little"}}], "attributes": {"parts": '
        f'[["{"ab" * 32}", 1280, "{"ef" * 8}"], ["{"cd" * 32}", 1280, "{"01" * 8}"]]}}}}'
    )


def with_deltas(storage: Storage, rows: int, more: int, deltas: int) -> tuple[TableEntry, np.ndarray]:
    """A table with later rows, and what it is as one array."""
    expected = np.zeros((rows + more, DIM), np.float32)
    expected[:rows] = vectors(rows)
    rng = np.random.default_rng(7)
    with storage.staging() as staging:
        entry = save_table(staging, expected[:rows], BLOCK)
        parts = []
        for number in range(deltas):
            written = np.sort(rng.choice(rows + more, (rows + more) // 10, replace=False))
            expected[written] = vectors(len(written), seed=100 + number)
            parts.append(save_delta(staging, written, expected[written]))
    return entry.model_copy(update={"deltas": parts, "rows": rows + more}), expected


@pytest.mark.parametrize("rows", [0, 1, BLOCK, ROWS, 3 * BLOCK])
@pytest.mark.parametrize(("more", "deltas"), [(0, 0), (0, 1), (0, 3), (5, 2), (2 * BLOCK + 3, 2)])
def test_blocks_have_the_rows_that_the_whole_table_has(storage: Storage, rows: int, more: int, deltas: int) -> None:
    entry, expected = with_deltas(storage, rows, more, deltas)
    assert np.array_equal(load_table(storage, entry), expected)
    table = StoredTable(storage, entry)
    assert table.count == -(-(rows + more) // BLOCK)
    found = list(blocks(storage, entry))
    assert [first for first, _ in found] == [number * BLOCK for number in range(table.count)]
    for number, (first, values) in enumerate(found):
        assert np.array_equal(values, expected[first : first + BLOCK])
        chunk = table.chunk(number)
        assert (chunk.shape, chunk.dtype) == ((BLOCK, DIM), np.float32)
        assert np.array_equal(chunk[: values.shape[0]], values)
        assert not chunk[values.shape[0] :].any()
    some = [number for number in (2, 0) if number < table.count]
    assert [first for first, _ in blocks(storage, entry, some)] == [number * BLOCK for number in some]


def test_chunks_without_deltas_are_mapped(storage: Storage) -> None:
    values = vectors(3 * BLOCK)
    with storage.staging() as staging:
        entry = save_table(staging, values, BLOCK)
        delta = save_delta(staging, np.array([BLOCK + 3]), np.ones((1, DIM), np.float32))
    table = StoredTable(storage, entry.model_copy(update={"deltas": [delta]}))
    maps = Path("/proc/self/maps")
    paths = [str(storage.part_path(part)) for part in table.index.parts]
    chunks = [table.chunk(number) for number in range(3)]
    assert [path in maps.read_text() for path in paths] == [True, False, True]
    assert [chunk.flags.writeable for chunk in chunks] == [False, True, False]
    values[BLOCK + 3] = 1
    assert np.array_equal(np.concatenate(chunks), values)


def test_padding_of_the_last_block_is_not_shown(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it holds: the table may have grown into it."""
    monkeypatch.setenv("DKGE_VERIFY", "folded")
    entry, expected = with_deltas(storage, BLOCK + 10, 20, 1)
    path = storage.part_path(BlockIndex(storage, entry).parts[1])
    content = path.read_bytes()
    path.write_bytes(content[: 10 * DIM * 4] + b"x" * (len(content) - 10 * DIM * 4))
    table = StoredTable(storage, entry)
    assert np.array_equal(table.rows(1), expected[BLOCK:])
    assert np.array_equal(table.chunk(1)[:30], expected[BLOCK:])


@pytest.mark.parametrize("rows", [[-1], [ROWS], [3, 3], [4, 3]])
def test_deltas_of_other_rows_are_refused(storage: Storage, rows: list[int]) -> None:
    with storage.staging() as staging:
        entry = save_table(staging, vectors(), BLOCK)
        delta = save_delta(staging, np.array(rows), vectors(len(rows)))
    damaged = entry.model_copy(update={"deltas": [delta]})
    for read in (load_table, StoredTable):
        with pytest.raises(StoreError, match=f"part .*{delta.digest} is damaged: its rows are not those of a table"):
            read(storage, damaged)


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(0, 99), st.lists(st.integers(0, 40), max_size=4), st.data())
def test_rows_are_taken_as_all_of_them_are_loaded(rows: int, seed: int, counts: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_storage(Path(folder))
        entry = saved(storage, vectors(rows, 2, seed), 8)
        grown = rows + data.draw(st.integers(0, 20)) if counts else rows
        with storage.staging() as staging:
            some = [np.sort(rng.choice(grown, min(count, grown), replace=False)) for count in counts]
            deltas = [save_delta(staging, these, vectors(len(these), 2, seed + 1)) for these in some]
        entry = entry.model_copy(update={"rows": grown, "deltas": deltas})
        wanted = np.sort(rng.choice(grown, data.draw(st.integers(0, grown)), replace=False))
        taken = StoredTable(storage, entry).take(wanted)
        assert taken.tobytes() == load_table(storage, entry)[wanted].tobytes()
