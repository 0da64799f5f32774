"""Rows of the three fields and their optimizer state. A plain class: it knows neither Ray nor files.

Only `knowledge` and `context` are trained, row by row: a step reads and writes the rows that got a gradient and nothing
else.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.rows import adagrad_rows, gather_rows, sgd_rows
from dkge_dist.types import ROW, TRAINED, Array, Field

EPSILON = 1e-10

DAMPING = 4.0
"""Mean square that damped Adagrad begins with; gradients of a triple that is not learnt are of the size of 1."""

OptimizerKind = Literal["adagrad", "sgd", "damped_adagrad"]


class Optimizer(NamedTuple):
    """How a gradient moves a row."""

    kind: OptimizerKind
    rate: float


class Shard:
    """Vectors of some rows, addressed by their local row in the shard."""

    def __init__(self, values: dict[Field, Array]) -> None:
        self.values = values
        self.state = {field: np.zeros(values[field].shape[0], np.float32) for field in TRAINED if field in values}

    def gather(self, field: Field, rows: Array) -> Array:
        """Copies of some rows."""
        out = np.empty((rows.shape[0], self.values[field].shape[1]), np.float32)
        self.gather_into(field, rows, out)
        return out

    def gather_into(self, field: Field, rows: Array, out: Array) -> None:
        """Copy some rows into `out`."""
        gather_rows(self.values[field], as_readonly(rows, ROW), out)

    def step(self, field: Field, rows: Array, gradients: Array, optimizer: Optimizer) -> None:
        """One optimizer step on distinct rows."""
        table, rows = self.values[field], as_readonly(rows, ROW)
        gradients = as_readonly(gradients, np.float32)
        rate = np.float32(optimizer.rate)
        if optimizer.kind == "sgd":
            sgd_rows(table, rows, gradients, rate)
        else:
            damping = np.float32(DAMPING if optimizer.kind == "damped_adagrad" else 0)
            adagrad_rows(table, self.state[field], rows, gradients, rate, damping, np.float32(EPSILON))

    def write(self, field: Field, rows: Array, values: Array, is_reset: bool = False) -> None:
        """Set rows to given values; with `is_reset` (of a trained field) their optimizer state is forgotten too."""
        self.values[field][rows] = values
        if is_reset:
            self.state[field][rows] = 0
