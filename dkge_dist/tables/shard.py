"""Rows of the three tables and their optimizer state. A plain class: it knows neither Ray nor files.

`knowledge` holds o^k, `context` o^c, `joint` the materialised o*. Only the first two are trained, row by row: a step
reads and writes the rows that got a gradient and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.optimizers import adagrad_rows, sgd_rows
from dkge_dist.kernels.ragged import gather_rows
from dkge_dist.types import ROW, Array, DkgeError, Field

TRAINED = (Field.KNOWLEDGE, Field.CONTEXT)
EPSILON = 1e-10


class Optimizer(NamedTuple):
    """How a gradient moves a row."""

    kind: Literal["adagrad", "sgd"]
    rate: float


def initial_rows(count: int, dim: int, rng: np.random.Generator, scale: float = 1.0) -> Array:
    """U(−6/√d, 6/√d), as published, times `scale`."""
    bound = np.float32(scale * 6 / np.sqrt(dim))
    rows = rng.random((count, dim), np.float32)
    rows -= np.float32(0.5)
    rows *= 2 * bound
    return rows


class RowInitializer(NamedTuple):
    """Start values of a whole table of `rows`, of which any run of rows can be made without the others."""

    seed: tuple[int, ...]
    rows: int
    dim: int
    scale: float

    def run(self, field: Field, first: int, count: int) -> Array:
        """The start values of some rows after one another."""
        before = (TRAINED.index(field) * self.rows + first) * self.dim
        return initial_rows(count, self.dim, _generator_after(before, self.seed), self.scale)


def _generator_after(numbers: int, seed: tuple[int, ...]) -> np.random.Generator:
    """A generator that has drawn so many 32-bit numbers; two of them come out of one step of it."""
    bits = np.random.PCG64(list(seed))
    bits.advance(numbers // 2)
    rng = np.random.Generator(bits)
    rng.random(numbers % 2, np.float32)
    return rng


def checkpoint_files(dim: int) -> list[tuple[str, tuple[int, ...]]]:
    """The files of a checkpoint, and the shape of a row in each: trained fields and their optimizer state."""
    return [file for field in TRAINED for file in ((f"{field}.npy", (dim,)), (f"{field}-state.npy", ()))]


class Shard:
    """Vectors of some rows, addressed by their place in the shard."""

    def __init__(self, values: dict[Field, Array], state: dict[Field, Array] | None = None) -> None:
        self.values = values
        trained = {field: values[field].shape[0] for field in TRAINED if field in values}
        self.state = state or {field: np.zeros(rows, np.float32) for field, rows in trained.items()}

    def gather(self, field: Field, rows: Array) -> Array:
        """Copies of some rows."""
        out = np.empty((rows.shape[0], self.values[field].shape[1]), np.float32)
        self.gather_into(field, rows, out)
        return out

    def gather_into(self, field: Field, rows: Array, out: Array) -> None:
        """Copy some rows to where somebody wants them."""
        gather_rows(self.values[field], as_readonly(rows, ROW), out)

    def step(self, field: Field, rows: Array, gradients: Array, optimizer: Optimizer) -> None:
        """One optimizer step on distinct rows."""
        table, rows = self.values[field], as_readonly(rows, ROW)
        gradients = as_readonly(gradients, np.float32)
        if optimizer.kind == "adagrad":
            adagrad_rows(table, self.state[field], rows, gradients, np.float32(optimizer.rate), np.float32(EPSILON))
        else:
            sgd_rows(table, rows, gradients, np.float32(optimizer.rate))

    def write(self, field: Field, rows: Array, values: Array) -> None:
        """Set rows to given values."""
        self.values[field][rows] = values

    def files(self) -> Iterator[tuple[str, Array]]:
        """What a checkpoint holds, by file name."""
        arrays = [array for field in TRAINED for array in (self.values[field], self.state[field])]
        return zip((name for name, _ in checkpoint_files(0)), arrays, strict=True)

    def save(self, folder: Path) -> None:
        """Write the trained fields and their optimizer state into a folder."""
        for name, values in self.files():
            np.save(folder / name, values, allow_pickle=False)

    def load(self, folder: Path) -> None:
        """Go back to what `save` wrote."""
        for name, into in self.files():
            stored = np.load(folder / name, mmap_mode="r", allow_pickle=False)
            if stored.shape != into.shape:
                raise DkgeError(f"{folder / name}: holds {stored.shape} instead of {into.shape}")
            into[:] = stored
