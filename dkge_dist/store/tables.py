"""Tables of vectors in a store: a base in blocks of rows, each a part, and deltas with rows that were written later.

Blocks are the chunks of a Zarr v3 array, uncompressed, so that they can be mapped as they are. The array's `zarr.json`
is a part too; it names the blocks, so that versions share a base by naming one part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dkge_dist.kernels.sets import distinct
from dkge_dist.store.codes import CodeIndex, with_codes
from dkge_dist.store.columns import column_of, numbers_of, read_columns, write_columns
from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.mapping import forget_pages, map_file, map_files
from dkge_dist.store.storage import Blob, Staging, Storage, StoreError
from dkge_dist.store.verify import DamagedPartError, When, add_part, add_parts, open_part, verify_bytes, when_blocks
from dkge_dist.types import ROW, Array

MIN_BLOCK_ROWS, MAX_BLOCK_ROWS, BLOCKS = 64, 16_384, 256
VALUE = np.dtype("<f4")
MAX_DIM = 1 << 16


def block_rows(rows: int) -> int:
    """Rows of a table block: a power of two near rows / 256, so that shards map whole blocks of a useful size."""
    wanted = max(1, rows // BLOCKS)
    return min(MAX_BLOCK_ROWS, max(MIN_BLOCK_ROWS, 1 << (wanted - 1).bit_length()))


def _zarr_json(parts: list[Blob], rows: int, dim: int, block: int) -> bytes:
    """`zarr.json` of a base. Its bytes are part of the format: the same blocks always give the same digest."""
    content = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [rows, dim],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [block, dim]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"parts": [[value for value in part if value is not None] for part in parts]},
    }
    return json.dumps(content).encode()


class BlockIndex:
    """The blocks of a table's base. Checked when read: what is mapped by it has the size it needs.

    `when` says whether blocks are verified here; by default the environment says it.
    """

    def __init__(self, storage: Storage, entry: TableEntry, when: When | None = None) -> None:
        self.storage = storage
        self.verifies = (when or when_blocks()) == "mapped"
        self.rows: int
        self.dim: int
        self.block: int
        path, data = open_part(storage, entry.base.part)
        try:
            content = json.loads(data.tobytes())
            self.rows, self.dim = content["shape"]
            self.block = content["chunk_grid"]["configuration"]["chunk_shape"][0]
            self.parts = [_block_of(*named) for named in content["attributes"]["parts"]]
            numbers = (self.rows, self.dim, self.block)
            sound = all(isinstance(number, int) and number >= 0 for number in numbers) and self.block * self.dim > 0
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
            sound = False
        if not sound or len(self.parts) != -(-self.rows // self.block) or self.dim != entry.dim or entry.dim > MAX_DIM:
            raise StoreError(f"part {path} is no index of a table of dimension {entry.dim}")
        if self.rows > entry.rows or (self.rows < entry.rows and not entry.deltas):
            raise StoreError(f"part {path} has {self.rows} rows, its table {entry.rows}")
        wrong = next((part for part in self.parts if part.size != self.block * self.dim * VALUE.itemsize), None)
        if wrong is not None:
            raise StoreError(f"part {path}: block {wrong.digest} has {wrong.size} bytes instead of those of a block")

    def read(self, number: int) -> Array:
        """The rows of one block, without its padding."""
        values = np.empty((min(self.block, self.rows - number * self.block), self.dim), VALUE)
        self.read_into(number, values)
        return values

    def map(self, number: int) -> Array:
        """One block with its padding, read-only, over the mapped file."""
        part = self.parts[number]
        data = open_part(self.storage, part)[1] if self.verifies else map_file(self.storage.part_path(part), part.size)
        return data.view(VALUE).reshape(self.block, self.dim)

    def verify(self, path: Path, number: int, data: Array) -> None:
        """Compare the bytes of a block with its checksum."""
        verify_bytes(path, self.parts[number], data)

    def read_into(self, number: int, out: Array) -> None:
        """Copy the rows of one block to `out`."""
        out[:] = self.map(number)[: out.shape[0]]


def _block_of(digest: str, size: int, checksum: str | None = None) -> Blob:
    """A block as an index names it. Older stores have no checksums."""
    return Blob(str(digest), int(size), None if checksum is None else str(checksum))


def save_table(staging: Staging, values: Array, block: int, coded: bool = False) -> TableEntry:
    """Write all rows of a table; `coded` with codes beside them, if they are many."""
    rows, dim = values.shape
    parts = save_blocks(staging, (values[first : first + block] for first in range(0, rows, block)), block)
    entry = save_index(staging, parts, rows, dim, block)
    return with_codes(staging, entry, values, block) if coded else entry


def save_index(staging: Staging, parts: list[Blob], rows: int, dim: int, block: int) -> TableEntry:
    """Make a table of blocks that are written already, by this process or by others."""
    base = save_bytes(staging, _zarr_json(parts, rows, dim, block), len(parts))
    return TableEntry(rows=rows, dim=dim, base=base, deltas=[])


def save_blocks(staging: Staging, some: Iterable[Array], block: int) -> list[Blob]:
    """Write blocks; one that has fewer rows is padded with zeros, as Zarr does."""

    def writing(values: Array) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            with path.open("wb") as file:
                file.write(np.ascontiguousarray(values, VALUE).data)
                file.write(bytes((block - values.shape[0]) * values.shape[1] * VALUE.itemsize))

        return write

    return add_parts(staging, [writing(values) for values in some])


def save_bytes(staging: Staging, data: bytes, rows: int) -> PartEntry:
    """Write a small part that is in memory; `rows` is how many entries it holds."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    return PartEntry.of(add_part(staging, write), rows)


def save_delta(staging: Staging, rows: Array, values: Array) -> PartEntry:
    """Write some rows of a table. They are distinct and sorted."""
    dim = values.shape[1]
    flat = column_of(np.ascontiguousarray(values, VALUE).reshape(-1))
    columns = {"row": rows.astype(ROW), "value": pa.FixedSizeListArray.from_arrays(flat, dim)}
    return PartEntry.of(add_part(staging, lambda path: write_columns(path, columns)), rows.shape[0])


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
        count = min(self.index.block, self.entry.rows - number * self.index.block)
        base, written = self._base(number), self._written(number)
        return base if base.shape[0] == count and not written else self._patched(base, written, count)

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

    def chunk(self, number: int) -> Array:
        """One block with its padding. Mapped and read-only if it is just as the base has it, else a copy."""
        written = self._written(number)
        if number < self.index.rows // self.index.block and not written:
            return self.index.map(number)
        return self._patched(self._base(number), written, self.index.block)

    def _base(self, number: int) -> Array:
        return self.index.read(number) if number < len(self.index.parts) else np.empty((0, self.entry.dim), VALUE)

    def _written(self, number: int) -> list[tuple[Array, Array]]:
        """What deltas have of a block: (places in it, vectors), later ones last."""
        first = number * self.index.block
        spans = [np.searchsorted(rows, (first, first + self.index.block)) for rows, _ in self._deltas]
        found = zip(self._deltas, spans, strict=True)
        return [(rows[begin:end] - first, values[begin:end]) for (rows, values), (begin, end) in found if begin < end]

    def _patched(self, base: Array, written: list[tuple[Array, Array]], count: int) -> Array:
        """`count` rows: those of the base, zeros where it has none, and over them those of deltas."""
        values = np.zeros((count, self.entry.dim), VALUE)
        values[: base.shape[0]] = base
        for places, vectors in written:
            values[places] = vectors
        return values


def blocks(storage: Storage, entry: TableEntry, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Array]]:
    """A table (or only the blocks `numbers`) as (first row, vectors), without ever holding all of it."""
    table = StoredTable(storage, entry)
    wanted = range(table.count) if numbers is None else list(numbers)
    storage.fetch(table.index.parts[number] for number in wanted if number < len(table.index.parts))
    for number in wanted:
        yield number * table.index.block, table.rows(number)


def map_base(index: BlockIndex) -> Array | None:
    """The rows of a base, mapped and writable, verified by nobody; None where they cannot be mapped. Padded."""
    index.storage.fetch(index.parts)
    size = index.block * index.dim * VALUE.itemsize
    files = [index.storage.part_path(part) for part in index.parts]
    mapped = map_files(files, size, size * len(files), ahead=False)  # By codes few of the rows are read.
    return None if mapped is None else mapped.view(VALUE).reshape(-1, index.dim)


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
    size = index.block * entry.dim * VALUE.itemsize
    mapped = map_files(files, size, shape[0] * shape[1] * VALUE.itemsize)
    if mapped is not None and index.verifies:
        for number, path in enumerate(files):
            try:
                index.verify(path, number, mapped[number * size : (number + 1) * size])
            except DamagedPartError:
                if not storage.drop_copy(index.parts[number]):
                    raise
                return load_table(storage, entry, rows, when, will_scan)
        if not will_scan:
            forget_pages(mapped[: full * size])
    values = np.zeros(shape, VALUE) if mapped is None else mapped.view(VALUE).reshape(shape)
    for number in range(0 if mapped is None else full, len(index.parts)):
        index.read_into(number, values[number * index.block : min((number + 1) * index.block, index.rows)])
    for part in entry.deltas:
        written, their = load_delta(storage, entry, part)
        values[written] = their
    return values


def table_parts(storage: Storage, entry: TableEntry) -> Iterator[PartEntry]:
    """The blocks that a table's indexes name: of vectors, and of codes where it has any."""
    for part in BlockIndex(storage, entry).parts:
        yield PartEntry.of(part, 0)
    for part in CodeIndex(storage, entry).parts if entry.codes is not None else ():
        yield PartEntry.of(part, 0)
