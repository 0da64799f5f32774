"""Rows of a request by shard, and the state of a pull that is under way."""

from __future__ import annotations

from dkge_dist.cluster.calls import Call
from dkge_dist.kernels.rows import scatter_rows
from dkge_dist.tables.plan import Partitioned, ShardPlan
from dkge_dist.tables.table import Pulled, RowsByField
from dkge_dist.types import Array, Field


class RowSlice:
    """Some of the rows of a request, by shard: `positions` says which of the request's rows they are (None: all)."""

    def __init__(self, plan: ShardPlan, wanted: RowsByField, positions: dict[Field, Array] | None = None) -> None:
        self.positions = positions
        rows = {f: r if positions is None else r[positions[f]] for f, r in wanted.items()}
        self.partitioned: dict[Field, Partitioned] = {field: plan.partition(some) for field, some in rows.items()}

    def shards(self) -> list[int]:
        """The shards that hold any of them."""
        return sorted({shard for part in self.partitioned.values() for shard in part.shards()})

    def local(self, shard: int) -> dict[Field, Array]:
        """The local rows to ask of a shard, by field."""
        return {field: part.local[part.of(shard)] for field, part in self.partitioned.items()}

    def order(self, shard: int, field: Field) -> Array:
        """Where the rows of a shard stand in the request."""
        part = self.partitioned[field]
        order = part.order[part.of(shard)]
        return order if self.positions is None else self.positions[field][order]

    def spread(self, values: Pulled, shard: int, out: Pulled) -> None:
        """Put what a shard answered where the request has it."""
        for field, some in values.items():
            scatter_rows(some, self.order(shard, field), out[field])


class PendingPull:
    """A pull that was announced: `early` rows are fetched at once, `late` ones come back with the push before it."""

    def __init__(self, ticket: int, wanted: RowsByField, early: RowSlice, late: RowSlice | None) -> None:
        self.ticket, self.wanted, self.early, self.late = ticket, wanted, early, late
        self.early_calls: dict[int, Call] = {}
        self.late_calls: dict[int, Call] = {}
        self.pushed: dict[int, Call] = {}

    def calls(self) -> list[Call]:
        """All calls that are under way for it."""
        return [*self.early_calls.values(), *self.late_calls.values(), *self.pushed.values()]
