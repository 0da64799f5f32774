"""Rows of the three tables and their optimizer state. A plain class: it knows neither Ray nor files.

`knowledge` holds o^k, `context` o^c, `joint` the materialised o*. Only the first two are trained, row by row: a step
reads and writes the rows that got a gradient and nothing else.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dkge_dist.kernels.jit import frozen
from dkge_dist.kernels.optimizers import adagrad_rows, sgd_rows
from dkge_dist.kernels.ragged import gather_rows
from dkge_dist.types import ROW, Array, DkgeError


class Field(StrEnum):
    """The vectors that an object has."""

    KNOWLEDGE = "knowledge"
    CONTEXT = "context"
    JOINT = "joint"


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


class Shard:
    """All three vectors of some rows, addressed by their place in the shard."""

    def __init__(self, values: dict[Field, Array], state: dict[Field, Array] | None = None) -> None:
        self.values = values
        rows = values[Field.KNOWLEDGE].shape[0]
        self.state = state or {field: np.zeros(rows, np.float32) for field in TRAINED}

    def gather(self, field: Field, rows: Array) -> Array:
        """Copies of some rows."""
        table = self.values[field]
        out = np.empty((rows.shape[0], table.shape[1]), np.float32)
        gather_rows(table, frozen(rows, ROW), out)
        return out

    def step(self, field: Field, rows: Array, gradients: Array, optimizer: Optimizer) -> None:
        """One optimizer step on distinct rows."""
        table, rows = self.values[field], frozen(rows, ROW)
        gradients = frozen(gradients, np.float32)
        if optimizer.kind == "adagrad":
            adagrad_rows(table, self.state[field], rows, gradients, np.float32(optimizer.rate), np.float32(EPSILON))
        else:
            sgd_rows(table, rows, gradients, np.float32(optimizer.rate))

    def write(self, field: Field, rows: Array, values: Array) -> None:
        """Set rows to given values."""
        self.values[field][rows] = values

    def save(self, folder: Path) -> None:
        """Write the trained fields and their optimizer state into a folder."""
        for field in TRAINED:
            np.save(folder / f"{field}.npy", self.values[field], allow_pickle=False)
            np.save(folder / f"{field}-state.npy", self.state[field], allow_pickle=False)

    def load(self, folder: Path) -> None:
        """Go back to what `save` wrote."""
        for field in TRAINED:
            for name, into in ((f"{field}.npy", self.values[field]), (f"{field}-state.npy", self.state[field])):
                stored = np.load(folder / name, mmap_mode="r", allow_pickle=False)
                if stored.shape != into.shape:
                    raise DkgeError(f"{folder / name}: holds {stored.shape} instead of {into.shape}")
                into[:] = stored
