"""The table protocol: what training, updating and evaluation know of where rows live."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.types import Array, Field

Pulled = dict[Field, Array]
Gradients = Mapping[Field, tuple[Array, Array]]


class Table(Protocol):
    """Rows by their permanent number, wherever they are held."""

    def expect(self, wanted: Mapping[Field, Array]) -> None:
        """These very arrays will be pulled next but one push at most: a table far away may begin to fetch them.

        What is then pulled is as if nobody had expected it. May be called from another thread.
        """

    def pull(self, wanted: Mapping[Field, Array]) -> Pulled:
        """Copies of the distinct rows asked for, by field."""

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on (distinct rows, gradients) of each field."""

    def write(self, field: Field, rows: Array, values: Array) -> None:
        """Set rows to given values, such as materialised o*."""

    def save(self, folder: Path) -> None:
        """Write the trained fields and their optimizer state into an empty folder."""

    def load(self, folder: Path) -> None:
        """Go back to what `save` wrote."""


class LocalTable:
    """All rows in this process."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard

    def expect(self, wanted: Mapping[Field, Array]) -> None:
        """Nothing to do: rows are here."""

    def pull(self, wanted: Mapping[Field, Array]) -> Pulled:
        """Copies of the distinct rows asked for, by field."""
        return {field: self.shard.gather(field, rows) for field, rows in wanted.items()}

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on (distinct rows, gradients) of each field."""
        for field, (rows, values) in gradients.items():
            self.shard.step(field, rows, values, optimizer)

    def write(self, field: Field, rows: Array, values: Array) -> None:
        """Set rows to given values."""
        self.shard.write(field, rows, values)

    def save(self, folder: Path) -> None:
        """Write the trained fields and their optimizer state into an empty folder."""
        self.shard.save(folder)

    def load(self, folder: Path) -> None:
        """Go back to what `save` wrote."""
        self.shard.load(folder)
