"""Tables of vectors in a store: a base in blocks of rows, each a part, and deltas with rows that were written later.

Blocks are the chunks of a Zarr v3 array, uncompressed, so that they can be mapped as they are. The array's `zarr.json`
is a part too; it names the blocks, so that versions share a base by naming one part.

Joint vectors of many entities have 8-bit codes beside the base, a quarter of its size and a bit, as another such array.
Ranks and answers read codes, and vectors only of rows that are near by their codes (see `kernels.codes`). What deltas
wrote is few, and encoded when it is read: a night writes no codes, and folding writes new ones. Beside its codes a row
has a checksum of its vector: a question reads some rows of most blocks, and verifies these alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dkge_dist.kernels.codes import Grid, encode, grid_of, groups_of, sample_of, tiles_of
from dkge_dist.kernels.ranks import TILE
from dkge_dist.kernels.sets import distinct
from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.parts import (
    DamagedPartError,
    When,
    column_of,
    forget_pages,
    map_file,
    map_files,
    numbers_of,
    open_part,
    read_columns,
    save_bytes,
    save_columns,
    verify_bytes,
    when_blocks,
)
from dkge_dist.store.storage import Blob, Staging, Storage, StoreError
from dkge_dist.types import ROW, Array

MIN_BLOCK_ROWS, MAX_BLOCK_ROWS, BLOCKS = 64, 16_384, 256
VALUE, WORD = np.dtype("<f4"), np.dtype("<u8")
MAX_DIM = 1 << 16
CODED_FROM_ROWS = 1 << 16
"""Smaller tables have no codes: all of their vectors are read in less than a millisecond."""

IN_CACHE = 1 << 23
"""Bytes that are verified before they are scanned: few enough to be in a cache then, and enough for all threads."""

RUN_ROWS = 16_384


def block_rows(rows: int) -> int:
    """Rows of a table block: a power of two near rows / 256, so that shards map whole blocks of a useful size."""
    wanted = max(1, rows // BLOCKS)
    return min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, 1 << (wanted - 1).bit_length()))


def wants_codes(rows: int) -> bool:
    """Is a table of so many rows worth codes?"""
    return rows >= CODED_FROM_ROWS


def save_table(staging: Staging, values: Array, block: int, coded: bool = False) -> TableEntry:
    """Write all rows of a table; `coded` with codes beside them, if they are many."""
    rows, dim = values.shape
    some = [values[first : first + block] for first in range(0, rows, block)]
    entry = save_index(staging, save_blocks(staging, some, block), rows, dim, block)
    if not coded or not wants_codes(rows):
        return entry
    grid = grid_of(values[sample_of(rows)])
    return save_code_index(staging, entry, save_code_blocks(staging, some, block, grid), block, grid)


def save_blocks(staging: Staging, some: Iterable[Array], block: int) -> list[Blob]:
    """Write blocks; one that has fewer rows is padded with zeros, as Zarr does."""
    return staging.add_all(_padded(partial(np.ascontiguousarray, values, VALUE), block) for values in some)


def save_code_blocks(staging: Staging, some: Iterable[Array], block: int, grid: Grid) -> list[Blob]:
    """Write the codes of blocks of vectors, padded likewise."""
    return staging.add_all(_padded(partial(encode, values, grid), block // TILE) for values in some)


def _padded(make: Callable[[], Array], length: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        values = make()
        with path.open("wb") as file:
            file.write(values.data)
            file.write(bytes((length - values.shape[0]) * values[:1].nbytes))

    return write


def save_index(staging: Staging, parts: list[Blob], rows: int, dim: int, block: int) -> TableEntry:
    """Make a table of blocks that are written already, by this process or by others."""
    base = _save_array(staging, parts, [rows, dim], [block, dim], "float32")
    return TableEntry(rows=rows, dim=dim, base=base, deltas=[])


def save_code_index(staging: Staging, entry: TableEntry, parts: list[Blob], block: int, grid: Grid) -> TableEntry:
    """A table with codes whose blocks are written already, by this process or by others."""
    inner, about = [groups_of(entry.dim) + 1, TILE], {"rows": entry.rows, "grid": grid}
    codes = _save_array(staging, parts, [tiles_of(entry.rows), *inner], [block // TILE, *inner], "uint64", **about)
    return entry.model_copy(update={"codes": codes})


def _save_array(
    staging: Staging, parts: list[Blob], shape: list[int], chunk: list[int], dtype: str, **about: Any
) -> PartEntry:
    """`zarr.json` of an array. Its bytes are part of the format: the same blocks always give the same digest."""
    content = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0 if dtype == "float32" else 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {**about, "parts": parts},
    }
    return save_bytes(staging, json.dumps(content).encode(), len(parts))


class _ArrayIndex:
    """The blocks of a stored array. Checked when read: what is mapped by it has the size it needs."""

    def __init__(self, storage: Storage, part: PartEntry, dtype: np.dtype[Any], inner: tuple[int, ...]) -> None:
        self.storage, self.dtype = storage, dtype
        self.parts: list[Blob] = []
        self.about: dict[str, Any] = {}
        self.path, data = open_part(storage, part.part)
        try:
            content = json.loads(data.tobytes())
            self.about = content["attributes"]
            length, *rest = content["shape"]
            wide, *chunk = content["chunk_grid"]["configuration"]["chunk_shape"]
            self.parts = [Blob(str(digest), int(size), str(checksum)) for digest, size, checksum in self.about["parts"]]
            sound = all(isinstance(number, int) and number >= 0 for number in (length, wide)) and wide > 0
            sound = sound and rest == chunk == list(inner) and len(self.parts) == -(-length // wide)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            sound = False
        if not sound:
            raise StoreError(f"part {self.path} is no index of blocks of {' x '.join(map(str, inner))}")
        self.length: int = length
        self.chunk: tuple[int, ...] = (wide, *inner)
        self.size = math.prod(self.chunk) * dtype.itemsize
        """Bytes of a block."""
        wrong = next((part for part in self.parts if part.size != self.size), None)
        if wrong is not None:
            raise StoreError(f"part {self.path}: block {wrong.digest} has {wrong.size} bytes instead of {self.size}")

    def map(self, number: int) -> Array:
        """One block with its padding, verified, read-only, over the mapped file."""
        return open_part(self.storage, self.parts[number])[1].view(self.dtype).reshape(self.chunk)

    def map_all(self, ahead: bool = True) -> Array | None:
        """All blocks, mapped and writable, verified by nobody; None where they cannot be mapped. Padded."""
        self.storage.fetch(self.parts)
        paths = [self.storage.part_path(part) for part in self.parts]
        mapped = map_files(paths, self.size, self.size * len(paths), ahead)
        return None if mapped is None else mapped.view(self.dtype).reshape(-1, *self.chunk[1:])

    def verify(self, number: int, data: Array) -> None:
        """Compare the bytes of a block with its checksum."""
        part = self.parts[number]
        verify_bytes(self.storage.part_path(part), part, data.reshape(-1).view(np.uint8))


class BlockIndex(_ArrayIndex):
    """The blocks of a table's base. `when` says whether they are verified here; by default the environment says it."""

    def __init__(self, storage: Storage, entry: TableEntry, when: When | None = None) -> None:
        self.verifies = (when or when_blocks()) == "mapped"
        if not 0 < entry.dim <= MAX_DIM:
            raise StoreError(f"part {entry.base.digest} is no index of a table of dimension {entry.dim}")
        super().__init__(storage, entry.base, VALUE, (entry.dim,))
        self.rows, self.dim, self.block = self.length, entry.dim, self.chunk[0]
        if self.rows > entry.rows or (self.rows < entry.rows and not entry.deltas):
            raise StoreError(f"part {self.path} has {self.rows} rows, its table {entry.rows}")

    def map(self, number: int) -> Array:
        """One block with its padding, read-only, over the mapped file."""
        if self.verifies:
            return super().map(number)
        part = self.parts[number]
        return map_file(self.storage.part_path(part), part.size).view(VALUE).reshape(self.chunk)


class CodeIndex(_ArrayIndex):
    """The blocks of a table's codes, and what codes stand for."""

    def __init__(self, storage: Storage, entry: TableEntry) -> None:
        assert entry.codes is not None, "a table with codes"
        super().__init__(storage, entry.codes, WORD, (groups_of(entry.dim) + 1, TILE))
        try:
            self.rows: int = self.about["rows"]
            self.grid = Grid(*map(float, self.about["grid"]))
            sound = isinstance(self.rows, int) and 0 < self.rows <= entry.rows and self.length == tiles_of(self.rows)
            sound = sound and bool(np.isfinite(self.grid).all()) and self.grid.scale > 0
        except (ValueError, KeyError, TypeError, OverflowError):
            sound = False
        if not sound:
            raise StoreError(f"part {self.path} is no index of codes of dimension {entry.dim}")
        self.block = self.chunk[0] * TILE


def save_delta(staging: Staging, rows: Array, values: Array) -> PartEntry:
    """Write some rows of a table. They are distinct and sorted."""
    flat = column_of(np.ascontiguousarray(values, VALUE).reshape(-1))
    value = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return save_columns(staging, {"row": rows.astype(ROW), "value": value})


def load_delta(storage: Storage, entry: TableEntry, part: PartEntry) -> tuple[Array, Array]:
    """The rows of a delta and their values, over the mapped file. Checked: a table of this size has these rows."""
    types = {"row": pa.int32(), "value": pa.list_(pa.float32(), entry.dim)}
    rows_column, value_column = read_columns(storage, part, types)
    rows = numbers_of(rows_column)
    if rows.shape[0] and (rows[0] < 0 or rows[-1] >= entry.rows or (np.diff(rows) <= 0).any()):
        raise StoreError(f"part {part.digest} is damaged: its rows are not those of a table of {entry.rows}")
    # Not `flatten`, which first imports all that Arrow computes.
    values = numbers_of(value_column.values).reshape(-1, entry.dim)
    return rows, values


class StoredTable:
    """A table with its deltas applied, block by block. Safe for many threads: nothing changes once it is opened."""

    def __init__(self, storage: Storage, entry: TableEntry) -> None:
        self.entry = entry
        self.index = BlockIndex(storage, entry)
        self._deltas = [load_delta(storage, entry, part) for part in entry.deltas]

    @property
    def count(self) -> int:
        """How many blocks there are, those that only deltas have included."""
        return -(-self.entry.rows // self.index.block)

    def rows(self, number: int) -> Array:
        """The rows of one block."""
        return self._block(number, min(self.index.block, self.entry.rows - number * self.index.block))

    def chunk(self, number: int) -> Array:
        """One block with its padding. Mapped and read-only if it is just as the base has it, else a copy."""
        return self._block(number, self.index.block)

    def take(self, rows: Array) -> Array:
        """Some rows (ascending). Blocks are looked at only for rows that no delta has."""
        values = np.zeros((rows.shape[0], self.entry.dim), VALUE)
        missing = np.ones(rows.shape[0], np.bool_)
        for written, vectors in reversed(self._deltas):
            places = np.searchsorted(written, rows)
            found = missing & (places < written.shape[0])
            found[found] = written[places[found]] == rows[found]
            values[found] = vectors[places[found]]
            missing &= ~found
        wanted = np.flatnonzero(missing & (rows < self.index.rows))
        numbers = rows[wanted] // self.index.block
        looked_at = distinct(numbers).tolist()
        self.index.storage.fetch(self.index.parts[number] for number in looked_at)
        for number in looked_at:
            here = wanted[slice(*np.searchsorted(numbers, (number, number + 1)))]
            values[here] = self.index.map(number)[rows[here] - number * self.index.block]
        return values

    def written_rows(self, first_delta: int = 0) -> list[Array]:
        """The rows of every delta from one on."""
        return [rows for rows, _ in self._deltas[first_delta:]]

    def _block(self, number: int, count: int) -> Array:
        """`count` rows from a block on: those of the base, zeros where it has none, and over them those of deltas."""
        first = number * self.index.block
        spans = [np.searchsorted(rows, (first, first + self.index.block)) for rows, _ in self._deltas]
        of_base = min(count, max(0, self.index.rows - first))
        if of_base == count and all(begin == end for begin, end in spans):
            return self.index.map(number)[:count]
        values = np.zeros((count, self.entry.dim), VALUE)
        if of_base:
            values[:of_base] = self.index.map(number)[:of_base]
        for (rows, vectors), (begin, end) in zip(self._deltas, spans, strict=True):
            values[rows[begin:end] - first] = vectors[begin:end]
        return values


def blocks(storage: Storage, entry: TableEntry, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Array]]:
    """A table (or only the blocks `numbers`) as (first row, vectors), without ever holding all of it."""
    table = StoredTable(storage, entry)
    wanted = range(table.count) if numbers is None else list(numbers)
    storage.fetch(table.index.parts[number] for number in wanted if number < len(table.index.parts))
    for number in wanted:
        yield number * table.index.block, table.rows(number)


def load_table(
    storage: Storage, entry: TableEntry, rows: int | None = None, when: When | None = None, will_scan: bool = False
) -> Array:
    """All rows of a table, writable; with at least `rows` rows, zeros where the table has none.

    Mapped where blocks are whole pages: what is written stays in memory, and what is only read is shared with the page
    cache. Verifying looks at every page; they stay mapped if the caller `will_scan` them. `when` as for `BlockIndex`.
    """
    index = BlockIndex(storage, entry, when)  # Before anything is allocated: it refuses impossible shapes.
    shape = (max(rows or 0, entry.rows), entry.dim)
    # The last block is padded, and its padding does not count.
    full = index.rows // index.block
    storage.fetch([*index.parts, *(part.part for part in entry.deltas)])
    files = [storage.part_path(part) for part in index.parts[:full]]
    mapped = map_files(files, index.size, shape[0] * shape[1] * VALUE.itemsize)
    if mapped is not None and index.verifies:
        for number in range(full):
            try:
                index.verify(number, mapped[number * index.size : (number + 1) * index.size])
            except DamagedPartError:
                if not storage.drop_copy(index.parts[number]):
                    raise
                return load_table(storage, entry, rows, when, will_scan)
        if not will_scan:
            forget_pages(mapped[: full * index.size])
    values = np.zeros(shape, VALUE) if mapped is None else mapped.view(VALUE).reshape(shape)
    for number in range(0 if mapped is None else full, len(index.parts)):
        first, end = number * index.block, min((number + 1) * index.block, index.rows)
        values[first:end] = index.map(number)[: end - first]
    for part in entry.deltas:
        written, their = load_delta(storage, entry, part)
        values[written] = their
    return values


def table_parts(storage: Storage, entry: TableEntry) -> Iterator[PartEntry]:
    """The blocks that a table's indexes name: of vectors, and of codes where it has any."""
    codes = CodeIndex(storage, entry).parts if entry.codes is not None else []
    for part in [*BlockIndex(storage, entry).parts, *codes]:
        yield PartEntry.of(part, 0)


def check_codes(storage: Storage, table: TableEntry) -> list[str]:
    """What is wrong with codes whose parts are all sound: they are not those of the vectors."""
    index = CodeIndex(storage, table)
    for first, values in blocks(storage, table.model_copy(update={"rows": index.rows, "deltas": []})):
        expected = encode(values, index.grid)
        if not np.array_equal(index.map(first // index.block)[: expected.shape[0]], expected):
            return [f"codes of the rows from {first} on are not those of their vectors"]
    return []


class StoredCodes:
    """The codes of a table's base, mapped. A block is verified when it is first asked for, just before it is scanned.

    Safe for many threads: at worst two of them verify the same block.
    """

    def __init__(self, storage: Storage, entry: TableEntry) -> None:
        self.index = CodeIndex(storage, entry)
        self._is_sound = np.full(len(self.index.parts), when_blocks() != "mapped")
        mapped = self.index.map_all()
        if mapped is None:
            mapped = np.concatenate([self.index.map(number) for number in range(len(self.index.parts))])
            self._is_sound[:] = True
        self.tiles = mapped

    @property
    def block_tiles(self) -> int:
        """Tiles of a block."""
        return self.index.chunk[0]

    def spans(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The tiles from `begin` to `end` in spans to be scanned one after the other, each after `verify`.

        Where nobody verified yet, spans are so short that they are in the cache when they are scanned.
        """
        if self._is_sound[begin // self.block_tiles : -(-end // self.block_tiles)].all():
            return [(begin, end)] if begin < end else []
        step = self.block_tiles * max(1, IN_CACHE // self.index.size)
        return [(max(begin, at), min(end, at + step)) for at in range(begin - begin % step, end, step)]

    def verify(self, begin: int, end: int) -> None:
        """Compare the blocks of some tiles with their checksums, unless that was done."""
        for number in range(begin // self.block_tiles, -(-end // self.block_tiles)):
            if self._is_sound[number]:
                continue
            tiles = self.tiles[number * self.block_tiles : (number + 1) * self.block_tiles]
            try:
                self.index.verify(number, tiles)
            except DamagedPartError:
                tiles[:] = self.index.map(number)  # It is fetched anew where this was a copy, else refused.
            self._is_sound[number] = True


def may_differ(old: StoredTable, new: StoredTable) -> Array:
    """Rows (ascending) outside of which both tables have the same vectors. Rows that one of them lacks are left out.

    Versions share blocks and deltas by naming the same parts. A block that both name, and a delta that both begin with,
    is equal without being read: where one came from the other by updates, the cost follows the updates.
    """
    both = min(old.entry.rows, new.entry.rows)
    deltas = zip(old.entry.deltas, new.entry.deltas, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0].digest == pair[1].digest, deltas))
    found = [np.empty(0, ROW), *old.written_rows(shared), *new.written_rows(shared), *_other_blocks(old, new)]
    rows = distinct(*found)
    return rows[: np.searchsorted(rows, both)]


def _other_blocks(old: StoredTable, new: StoredTable) -> list[Array]:
    """The rows of blocks that are not the same part in both bases; a fold or a training lies between."""
    if old.entry.base.digest == new.entry.base.digest:
        return []
    ours, theirs = old.index, new.index
    if ours.block != theirs.block:
        return [np.arange(max(ours.rows, theirs.rows), dtype=ROW)]
    pairs = zip_longest(ours.parts, theirs.parts)
    starts = [number * ours.block for number, (one, other) in enumerate(pairs) if one != other]
    return [np.arange(first, first + ours.block, dtype=ROW) for first in starts]


def differing(old: StoredTable, new: StoredTable, rows: Array) -> Array:
    """Of these rows (ascending, both tables have them), those whose vectors differ in any bit."""
    runs = (rows[first : first + RUN_ROWS] for first in range(0, rows.shape[0], RUN_ROWS))
    is_other = [(old.take(run).view(np.uint32) != new.take(run).view(np.uint32)).any(1) for run in runs]
    found: Array = rows[np.concatenate([np.empty(0, np.bool_), *is_other])]
    return found
