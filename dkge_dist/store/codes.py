"""8-bit codes of the joint vectors of entities, beside the blocks of their table: a quarter of its size and a bit.

Ranks and answers read codes, and vectors only of rows that are near by their codes (see `kernels.codes`). Codes are
those of a base. What deltas wrote is few, and encoded when it is read: a night writes no codes, and folding writes new
ones. An index, a part too, names the blocks and says what codes stand for. Beside its codes a row has a checksum of its
vector: a question reads some rows of most blocks, and verifies these alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from dkge_dist.kernels.codes import Grid, encode, grid_of, groups_of, sample_of
from dkge_dist.kernels.ranks import TILE
from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.mapping import map_files
from dkge_dist.store.storage import Blob, Staging, Storage, StoreError
from dkge_dist.store.verify import DamagedPartError, add_part, add_parts, open_part, verify_bytes, when_blocks
from dkge_dist.types import Array

CODED_FROM_ROWS = 1 << 16
"""Smaller tables have no codes: all of their vectors are read in less than a millisecond."""

IN_CACHE = 1 << 23
"""Bytes that are verified before they are scanned: few enough to be in a cache then, and enough for all threads."""


def wants_codes(rows: int) -> bool:
    """Is a table of so many rows worth codes?"""
    return rows >= CODED_FROM_ROWS


def with_codes(staging: Staging, entry: TableEntry, values: Array, block: int) -> TableEntry:
    """A table that was just saved from `values`, with codes if it is worth them."""
    if not wants_codes(values.shape[0]):
        return entry
    grid = grid_of(values[sample_of(values.shape[0])])
    parts = save_code_blocks(staging, (values[at : at + block] for at in range(0, values.shape[0], block)), block, grid)
    return save_code_index(staging, entry, parts, block, grid)


def save_code_blocks(staging: Staging, some: Iterable[Array], block: int, grid: Grid) -> list[Blob]:
    """Write the codes of blocks; one that has fewer rows is padded."""

    def writing(values: Array) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            tiles = encode(values, grid)
            with path.open("wb") as file:
                file.write(tiles.astype("<u8", copy=False).data)
                file.write(bytes((block // TILE - tiles.shape[0]) * tiles[0].nbytes))

        return write

    return add_parts(staging, [writing(values) for values in some])


def save_code_index(staging: Staging, entry: TableEntry, parts: list[Blob], block: int, grid: Grid) -> TableEntry:
    """A table with codes whose blocks are written already, by this process or by others."""
    named = [[value for value in part if value is not None] for part in parts]
    content = {"rows": entry.rows, "dim": entry.dim, "block": block, **grid._asdict(), "parts": named}

    def write(path: Path) -> None:
        path.write_bytes(json.dumps(content).encode())

    return entry.model_copy(update={"codes": PartEntry.of(add_part(staging, write), len(parts))})


class CodeIndex:
    """The blocks of a table's codes. Checked when read: what is mapped by it has the size it needs."""

    def __init__(self, storage: Storage, entry: TableEntry) -> None:
        assert entry.codes is not None, "a table with codes"
        self.storage = storage
        self.rows: int
        self.block: int
        path, data = open_part(storage, entry.codes.part)
        words = groups_of(entry.dim) + 1
        try:
            content = json.loads(data.tobytes())
            self.rows, dim, self.block = (content[key] for key in ("rows", "dim", "block"))
            self.grid = Grid(*(float(content[key]) for key in Grid._fields))
            self.parts = [Blob(str(digest), int(size), str(checksum)) for digest, size, checksum in content["parts"]]
            sound = all(isinstance(number, int) and number > 0 for number in (self.rows, dim, self.block))
            sound = sound and dim == entry.dim and self.rows <= entry.rows and self.block % TILE == 0
            sound = sound and len(self.parts) == -(-self.rows // self.block)
            sound = sound and bool(np.isfinite(self.grid).all()) and self.grid.scale > 0
            sound = sound and all(part.size == self.block * words * 8 for part in self.parts)
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError, AttributeError):
            sound = False
        if not sound:
            raise StoreError(f"part {path} is no index of codes of dimension {entry.dim}")
        self.shape = (self.block // TILE, words, TILE)

    def read(self, number: int) -> Array:
        """The tiles of one block, verified."""
        return open_part(self.storage, self.parts[number])[1].view("<u8").reshape(self.shape)


def check_codes(storage: Storage, table: TableEntry, blocks: Iterable[tuple[int, Array]]) -> list[str]:
    """What is wrong with codes whose parts are all sound: they are not those of the vectors."""
    index = CodeIndex(storage, table)
    for first, values in blocks:
        found = index.read(first // index.block)
        expected = encode(values, index.grid)
        if not np.array_equal(found[: expected.shape[0]], expected):
            return [f"codes of the rows from {first} on are not those of their vectors"]
    return []


class StoredCodes:
    """The codes of a table's base, mapped. A block is verified when it is first asked for, just before it is scanned.

    Safe for many threads: at worst two of them verify the same block.
    """

    def __init__(self, storage: Storage, entry: TableEntry) -> None:
        self.index = CodeIndex(storage, entry)
        parts = self.index.parts
        storage.fetch(parts)
        self._paths = [storage.part_path(part) for part in parts]
        self._is_sound = np.full(len(parts), when_blocks() != "mapped")
        size = parts[0].size
        mapped = map_files(self._paths, size, size * len(parts))
        if mapped is None:
            self.tiles = np.concatenate([self.index.read(number) for number in range(len(parts))])
            self._is_sound[:] = True
        else:
            self.tiles = mapped.view("<u8").reshape(-1, *self.index.shape[1:])

    @property
    def block_tiles(self) -> int:
        """Tiles of a block."""
        return self.index.shape[0]

    def spans(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The tiles from `begin` to `end` in spans to be scanned one after the other, each after `verify`.

        Where nobody verified yet, spans are so short that they are in the cache when they are scanned.
        """
        if self._is_sound[begin // self.block_tiles : -(-end // self.block_tiles)].all():
            return [(begin, end)] if begin < end else []
        step = self.block_tiles * max(1, IN_CACHE // self.index.parts[0].size)
        return [(max(begin, at), min(end, at + step)) for at in range(begin - begin % step, end, step)]

    def verify(self, begin: int, end: int) -> None:
        """Compare the blocks of some tiles with their checksums, unless that was done."""
        for number in range(begin // self.block_tiles, -(-end // self.block_tiles)):
            if self._is_sound[number]:
                continue
            tiles = self.tiles[number * self.block_tiles : (number + 1) * self.block_tiles]
            try:
                verify_bytes(self._paths[number], self.index.parts[number], tiles.reshape(-1).view(np.uint8))
            except DamagedPartError:
                tiles[:] = self.index.read(number)  # It is fetched anew where this was a copy, else refused.
            self._is_sound[number] = True
