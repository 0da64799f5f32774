"""Start values of tables: at random, or those of a version.

At random, a row has the same values whether it is made alone or with all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import load_table
from dkge_dist.types import TRAINED, Array, Field


def initial_rows(count: int, dim: int, rng: np.random.Generator, scale: float = 1.0) -> Array:
    """U(−6/√d, 6/√d), as published, times `scale`."""
    bound = np.float32(scale * 6 / np.sqrt(dim))
    rows = rng.random((count, dim), np.float32)
    rows -= np.float32(0.5)
    rows *= 2 * bound
    return rows


def mean_start(dim: int) -> float:
    """The mean absolute value of `initial_rows` at scale 1."""
    return float(3 / np.sqrt(dim))


class RowInitializer(NamedTuple):
    """Start values of a whole table of `rows`. A shard makes its own blocks without making the others."""

    seed: tuple[int, ...]
    rows: int
    dim: int
    scale: float

    def block(self, field: Field, first: int, count: int) -> Array:
        """The start values of `count` consecutive rows. Joint vectors are zeros until they are materialised."""
        if field not in TRAINED:
            return np.zeros((count, self.dim), np.float32)
        before = (TRAINED.index(field) * self.rows + first) * self.dim
        return initial_rows(count, self.dim, _generator_after(before, self.seed), self.scale)

    def whole(self) -> dict[Field, Array]:
        """All rows of every field."""
        return {field: self.block(field, 0, self.rows) for field in Field}


class StoredTables(NamedTuple):
    """Tables of a version in a store, with room for `rows`. A shard reads its own rows of them."""

    location: str
    tables: dict[Field, TableEntry]
    rows: int

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return next(iter(self.tables.values())).dim

    def whole(self) -> dict[Field, Array]:
        """All rows of every field."""
        storage = open_storage(self.location)
        return {field: load_table(storage, entry, self.rows) for field, entry in self.tables.items()}


TableStart = RowInitializer | StoredTables


def _generator_after(numbers: int, seed: tuple[int, ...]) -> np.random.Generator:
    """A generator that has drawn so many 32-bit numbers; one step of it gives two of them."""
    bits = np.random.PCG64(list(seed))
    bits.advance(numbers // 2)
    rng = np.random.Generator(bits)
    rng.random(numbers % 2, np.float32)
    return rng
