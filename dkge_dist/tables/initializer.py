"""Start values of tables: at random, or those of a version. And whether such tables fit into this machine's memory.

At random, a row has the same values whether it is made alone or with all others.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import load_table
from dkge_dist.types import TRAINED, Array, DkgeError, Field

VALUE_BYTES = 4
CGROUP = Path("/sys/fs/cgroup/memory.max")


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


def refuse_too_large(tables: Sequence[TableStart], available: int | None = None) -> None:
    """DkgeError if the vectors of some tables and their optimizer state need more memory than is available."""
    available = available_memory() if available is None else available
    needed = sum(one.rows * VALUE_BYTES * (one.dim * len(Field) + len(TRAINED)) for one in tables)
    if needed > available:
        largest = max(tables, key=lambda one: one.rows)
        raise DkgeError(
            f"{largest.rows:,} vectors of dimension {largest.dim} do not fit: tables need {needed / 1e9:,.1f} GB, "
            f"this machine has {available / 1e9:,.1f} GB to give; take a smaller model.dim, or --shards on a cluster"
        )


def available_memory() -> int:
    """Bytes that this process could still get: of the machine, and of what a container allows."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # Where there is no limit it says "max".
        found.append(int(CGROUP.read_text(encoding="ascii")))
    return min(found)
