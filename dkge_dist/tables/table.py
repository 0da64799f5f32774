"""The `TrainingTable` protocol: all that learning knows of where rows live. And the table in this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.storage import Staging, Storage
from dkge_dist.store.tables import load_table, save_delta, save_table
from dkge_dist.tables.checkpoint import CheckpointFolder, Span, create_files, read_rows, write_rows
from dkge_dist.tables.index import ExactIndex, VectorIndex
from dkge_dist.tables.initializer import TableStart
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.types import Array, Field

RowsByField = Mapping[Field, Array]
Pulled = dict[Field, Array]
Gradients = Mapping[Field, tuple[Array, Array]]

COUNTED = (
    "pull_calls",
    "push_calls",
    "write_calls",
    "rows_pulled",
    "rows_pushed",
    "bytes_pulled",
    "bytes_pushed",
    "bytes_written",
)
"""What the statistics of a shard count since it was opened. Bytes are those that moved between processes."""


class TrainingTable(Protocol):
    """Rows by their permanent number, wherever they are held."""

    @property
    def rows(self) -> int:
        """How many rows there are."""

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""

    def prefetch(self, wanted: RowsByField) -> int:
        """Announce a pull that follows the next push at the latest; the ticket to pull with.

        A remote table begins to fetch the rows. What is then pulled is the same as without a ticket. May be called from
        another thread.
        """

    def pull(self, wanted: RowsByField, ticket: int | None = None) -> Pulled:
        """Copies of the distinct rows asked for, by field."""

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on (distinct rows, gradients) of each field."""

    def write(self, field: Field, rows: Array, values: Array, is_reset: bool = False) -> None:
        """Set rows to given values; with `is_reset` (of a trained field) their optimizer state is forgotten too."""

    @property
    def index(self) -> VectorIndex:
        """The joint vectors as they are now, to be asked."""

    def save_checkpoint(self, folder: CheckpointFolder) -> None:
        """Write the trained fields and their optimizer state into an empty folder."""

    def load_checkpoint(self, folder: CheckpointFolder) -> None:
        """Load what `save_checkpoint` wrote."""

    def save(self, staging: Staging, block_rows: int) -> dict[Field, TableEntry]:
        """Write all rows as tables of a store, by field."""

    def save_deltas(self, staging: Staging, rows: RowsByField) -> dict[Field, list[PartEntry]]:
        """Write some rows (ascending) as deltas of a store, by field."""

    def stats(self) -> list[dict[str, int]]:
        """Calls, rows and bytes by shard (`COUNTED`), and how many rows and bytes it holds."""

    def close(self) -> None:
        """Release connections. The table is not used afterwards."""


class Tables(NamedTuple):
    """The two tables of a model."""

    entities: TrainingTable
    relations: TrainingTable


class LocalTable:
    """All rows in this process."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self._counts = dict.fromkeys(COUNTED, 0)

    @classmethod
    def initialized(cls, start: TableStart) -> LocalTable:
        """A table at its start values."""
        return cls(Shard(start.whole()))

    @classmethod
    def stored(
        cls, storage: Storage, entries: Mapping[Field, TableEntry], rows: int = 0, fields: Iterable[Field] = Field
    ) -> LocalTable:
        """Some fields of a stored model, with room for `rows` rows."""
        # Ranks and answers go over all joint vectors; of the others an update needs those of its change.
        return cls(Shard({f: load_table(storage, entries[f], rows, will_scan=f is Field.JOINT) for f in fields}))

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(next(iter(self.shard.values.values())).shape[0])

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return int(next(iter(self.shard.values.values())).shape[1])

    def prefetch(self, wanted: RowsByField) -> int:
        """Nothing to do: the rows are here."""
        return 0

    def pull(self, wanted: RowsByField, ticket: int | None = None) -> Pulled:
        """Copies of the distinct rows asked for, by field."""
        self._counts["pull_calls"] += 1
        self._counts["rows_pulled"] += sum(rows.shape[0] for rows in wanted.values())
        return {field: self.shard.gather(field, rows) for field, rows in wanted.items()}

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on (distinct rows, gradients) of each field."""
        self._count_written("push_calls", *(rows for rows, _ in gradients.values()))
        for field, (rows, values) in gradients.items():
            self.shard.step(field, rows, values, optimizer)

    def write(self, field: Field, rows: Array, values: Array, is_reset: bool = False) -> None:
        """Set rows to given values."""
        self._count_written("write_calls", rows)
        self.shard.write(field, rows, values, is_reset)

    def _count_written(self, call: str, *rows: Array) -> None:
        count = sum(some.shape[0] for some in rows)
        self._counts[call] += count > 0
        self._counts["rows_pushed"] += count

    @property
    def index(self) -> VectorIndex:
        """The joint vectors, which are not copied."""
        return ExactIndex(self.shard.values[Field.JOINT])

    def save_checkpoint(self, folder: CheckpointFolder) -> None:
        """Write the trained fields and their optimizer state into an empty folder."""
        create_files(folder, self.rows, self.dim)
        write_rows(folder, self.shard, [Span(0, 0, self.rows)])

    def load_checkpoint(self, folder: CheckpointFolder) -> None:
        """Load what `save_checkpoint` wrote."""
        read_rows(folder, self.shard, [Span(0, 0, self.rows)], self.rows)

    def save(self, staging: Staging, block_rows: int) -> dict[Field, TableEntry]:
        """Write all rows as tables of a store, by field."""
        return {
            field: save_table(staging, values, block_rows, coded=field is Field.JOINT)
            for field, values in self.shard.values.items()
        }

    def save_deltas(self, staging: Staging, rows: RowsByField) -> dict[Field, list[PartEntry]]:
        """Write some rows (ascending) as one delta a field."""
        return {
            field: [save_delta(staging, some, self.shard.gather(field, some))]
            for field, some in rows.items()
            if some.shape[0]
        }

    def stats(self) -> list[dict[str, int]]:
        """Of the one shard that this table is."""
        held = sum(array.nbytes for array in (*self.shard.values.values(), *self.shard.state.values()))
        return [{**self._counts, "rows": self.rows, "bytes_held": held}]

    def close(self) -> None:
        """Nothing to release."""
