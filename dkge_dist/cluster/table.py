"""A table whose rows lie in shard actors. Agrees with a table in this process to the bit.

A batch makes one pull and one push a shard. The pull of the next batch is under way while this one computes: rows that
this batch does not change are fetched early; the others come back with the push that changes them. What another worker
changed in rows fetched early comes back corrected too, so that nobody ever computes with old rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from dkge_dist.cluster.calls import Call, RayCall, results
from dkge_dist.cluster.calls import ShardConnection as Connection
from dkge_dist.cluster.calls import TransportCall as WireCall
from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.requests import (
    pull_request,
    push_request,
    read_nothing,
    read_pulled,
    read_reply,
    write_request,
)
from dkge_dist.cluster.server import LocalRows, Reply, Stored
from dkge_dist.cluster.transport import Message, Received
from dkge_dist.cluster.transport import Payload as Sent
from dkge_dist.cluster.transport import RowSelection as Rows
from dkge_dist.kernels.partition import Recurrence, spread_rows
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Staging
from dkge_dist.store.tables import save_index
from dkge_dist.tables.plan import Partitioned, ShardPlan
from dkge_dist.tables.shard import Optimizer, RowInitializer, checkpoint_files
from dkge_dist.tables.table import Gradients, Pulled
from dkge_dist.types import ROW, Array, Field

Wanted = Mapping[Field, Array]
NO_ROWS = np.empty(0, ROW)


class RowSlice:
    """Some of the rows of a request, taken apart by shard: `numbers` says which of the request's rows they are."""

    def __init__(self, plan: ShardPlan, wanted: Wanted, numbers: dict[Field, Array] | None = None) -> None:
        self.numbers = numbers
        rows = {f: r if numbers is None else r[numbers[f]] for f, r in wanted.items()}
        self.dealt: dict[Field, Partitioned] = {field: plan.partition(some) for field, some in rows.items()}

    def shards(self) -> list[int]:
        """Who holds any of them."""
        return sorted({shard for dealt in self.dealt.values() for shard in dealt.shards()})

    def places(self, shard: int) -> LocalRows:
        """What to ask of a shard."""
        return {field: dealt.places[dealt.of(shard)] for field, dealt in self.dealt.items()}

    def order(self, shard: int, field: Field) -> Array:
        """Where the rows of a shard stand in the request."""
        dealt = self.dealt[field]
        order = dealt.order[dealt.of(shard)]
        return order if self.numbers is None else self.numbers[field][order]


class Expected:
    """A request that was announced: what is fetched early, and what comes back with the push before it."""

    def __init__(self, wanted: Wanted, early: RowSlice, late: RowSlice | None) -> None:
        self.wanted, self.early, self.late = wanted, early, late
        self.early_calls: dict[int, Call] = {}
        self.late_calls: dict[int, Call] = {}
        self.pushed: dict[int, Call] = {}

    def is_for(self, wanted: Wanted) -> bool:
        """The very same arrays?"""
        return wanted.keys() == self.wanted.keys() and all(wanted[f] is self.wanted[f] for f in wanted)


class RayTable:
    """Rows in the shards of one attempt, as one rank of `world` sees them."""

    def __init__(
        self,
        plan: ShardPlan,
        actors: list[Any],
        attempt: str,
        dim: int,
        rank: int = 0,
        world: int = 1,
        barrier: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan, self.actors, self.attempt, self.dim = plan, actors, attempt, dim
        self.rank, self.world, self.barrier = rank, world, barrier
        self._lock, self._connecting = Lock(), Lock()
        self._connections: list[Connection] = []
        self._steps = 0
        self._after = [0] * plan.shards
        self._recurrence = Recurrence(plan.rows)
        self._expected: deque[Expected] = deque()
        self._current: Wanted = {}
        self._is_pushed = True
        self._unanswered: list[Call] = []

    def call(self, shard: int, method: str, *arguments: Any) -> Call:
        """Ask a shard something, as part of the attempt, by way of Ray."""
        return RayCall(shard, self.actors[shard], "ask", (method, self.attempt, *arguments))

    def _ask(self, shard: int, request: Message, read: Callable[[Received], Any]) -> Call:
        """Ask a shard something of every batch, by a connection of its own."""
        if not self._connections:
            self._connect()
        return WireCall(shard, self._connections[shard], request, read)

    def _connect(self) -> None:
        with self._connecting:
            if self._connections:
                return
            shards = range(self.plan.shards)
            addresses = results([RayCall(shard, self.actors[shard], "address", ()) for shard in shards])
            try:
                self._connections = [Connection(shard, addresses[shard], self.attempt) for shard in shards]
            except (OSError, EOFError) as error:
                raise ShardLostError(f"a shard cannot be reached: {error}") from None

    def close(self) -> None:
        """Hang up on all shards."""
        for connection in self._connections:
            connection.close()

    def _pull(self, shard: int, wanted: LocalRows, after: int, corrected_by: tuple[int, int] | None = None) -> Call:
        return self._ask(shard, pull_request(wanted, after, corrected_by), read_pulled)

    def open(self, fill: RowInitializer | Stored) -> None:
        """Begin the attempt on all shards; they fill their rows themselves."""
        results(self.call(shard, "open", self.world, fill) for shard in range(self.plan.shards))

    def expect(self, wanted: Wanted) -> None:
        """Begin to fetch what the next batch needs, if only one push is still to come before it."""
        with self._lock:
            to_come = len(self._expected) + (not self._is_pushed)
            if to_come > 1:
                return
            early, late, corrected_by = RowSlice(self.plan, wanted), None, None
            if to_come:
                before = self._expected[0].wanted if self._expected else self._current
                again = {f: self._recurrence.among(rows, before.get(f, NO_ROWS)) for f, rows in wanted.items()}
                early = RowSlice(self.plan, wanted, {field: np.flatnonzero(~there) for field, there in again.items()})
                late = RowSlice(self.plan, wanted, {field: np.flatnonzero(there) for field, there in again.items()})
                corrected_by = (self._steps, self.rank)
            coming = Expected(wanted, early, late)
            for shard in early.shards():
                after = self._after[shard]
                coming.early_calls[shard] = self._pull(shard, early.places(shard), after, corrected_by)
            self._expected.append(coming)

    def pull(self, wanted: Wanted) -> Pulled:
        """Copies of the distinct rows asked for, by field."""
        with self._lock:
            while self._expected and not self._expected[0].is_for(wanted):
                self._drop()
            coming = self._expected.popleft() if self._expected else None
            self._current, self._is_pushed = wanted, False
        out = {field: np.empty((rows.shape[0], self.dim), np.float32) for field, rows in wanted.items()}
        if coming is None:
            self._fetch(RowSlice(self.plan, wanted), out)
            return out
        for shard, call in coming.early_calls.items():
            _place(call.result(), coming.early, shard, out)
        if coming.late is not None:
            if not coming.pushed:
                self._fetch(coming.late, out)
            for shard, call in coming.late_calls.items():
                _place(call.result(), coming.late, shard, out)
            for shard, call in coming.pushed.items():
                reply: Reply = call.result()
                _place(reply.late, coming.late, shard, out)
                # Where nothing was fetched early, corrections are of a request before this one.
                for field, patch in reply.patches.items() if shard in coming.early_calls else ():
                    out[field][coming.early.order(shard, field)[patch.numbers]] = patch.values
        self._settle()
        return out

    def _fetch(self, part: RowSlice, out: Pulled) -> None:
        self._settle()
        calls = {s: self._pull(s, part.places(s), self._after[s]) for s in part.shards()}
        for shard, call in calls.items():
            _place(call.result(), part, shard, out)

    def _settle(self) -> None:
        """Hear what became of pushes that nobody has waited for: shards may do what comes later first."""
        with self._lock:
            calls = [*self._unanswered, *(call for coming in self._expected for call in coming.pushed.values())]
            self._unanswered = []
        results(calls)

    def _drop(self) -> None:
        """Give up a request that was announced. Its calls are waited for: they may not come in between later ones."""
        coming = self._expected.popleft()
        self._unanswered += [*coming.early_calls.values(), *coming.late_calls.values(), *coming.pushed.values()]

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on (distinct rows, gradients) of each field; only shards that hold any of them hear of it.

        With several workers all shards do: a step is taken once every rank has said what it has for it.
        """
        part = RowSlice(self.plan, {field: rows for field, (rows, _) in gradients.items()})
        with self._lock:
            while self._is_pushed and self._expected:
                self._drop()  # Nobody said that a push would come before it.
        self._settle()
        with self._lock:
            step, self._steps, self._is_pushed = self._steps, self._steps + 1, True
            coming = self._expected[0] if self._expected else None
            late = coming.late if coming is not None else None
            late_shards = set(late.shards()) if late is not None else set()
            mine = set(part.shards()) if self.world == 1 else set(range(self.plan.shards))
            for shard in sorted(mine):
                pushed = {f: (p, _rows(gradients[f][1], part.order(shard, f))) for f, p in part.places(shard).items()}
                asked = late.places(shard) if late is not None and shard in late_shards else {}
                call = self._ask(shard, push_request(step, self.rank, pushed, optimizer, asked), read_reply)
                self._after[shard] = step + 1
                if coming is not None:
                    coming.pushed[shard] = call
                else:
                    self._unanswered.append(call)
            if coming is not None and late is not None:
                for shard in late_shards - mine:
                    coming.late_calls[shard] = self._pull(shard, late.places(shard), self._after[shard])

    def write(self, field: Field, rows: Array, values: Array) -> None:
        """Set rows to given values."""
        with self._lock:
            while any(field in coming.wanted for coming in self._expected):
                self._drop()  # It may have been fetched early.
        self._settle()
        part = RowSlice(self.plan, {field: rows})
        results(
            self._ask(
                shard,
                write_request(field, part.places(shard)[field], _rows(values, part.order(shard, field))),
                read_nothing,
            )
            for shard in part.shards()
        )

    def save(self, folder: Path) -> None:
        """Write the trained fields and their optimizer state into an empty folder, each shard its rows."""
        self._settle()
        for name, width in checkpoint_files(self.dim):
            np.lib.format.open_memmap(folder / name, "w+", np.float32, (self.plan.rows, *width)).flush()
        self._everywhere("save_checkpoint", folder)

    def load(self, folder: Path) -> None:
        """Go back to what `save` wrote. The first rank asks for it; the others wait until it is done."""
        self._settle()
        if self.rank == 0:
            self._everywhere("load_checkpoint", folder)
        self.barrier()

    def _everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """Ask every shard the same."""
        return results([self.call(shard, method, *arguments) for shard in range(self.plan.shards)])

    def save_tables(self, staging: Staging) -> dict[str, TableEntry]:
        """Write all rows as tables of a store, each shard its blocks."""
        self._settle()
        saved = self._everywhere("save_blocks", staging.storage.root, staging.folder)
        staging.written += sum(written for _, written in saved)
        tables = {}
        for field in Field:
            parts = sorted(part for parts, _ in saved for part in parts[field])
            tables[field.value] = save_index(
                staging, [part for _, part in parts], self.plan.rows, self.dim, self.plan.block_rows
            )
        return tables

    def save_deltas(self, staging: Staging, rows: Mapping[Field, Array]) -> dict[str, list[Any]]:
        """Write some rows (ascending) as deltas of a store: each shard that holds any of them a part of its own."""
        self._settle()
        part = RowSlice(self.plan, {field: some.astype(ROW) for field, some in rows.items()})
        calls = [
            self.call(s, "save_deltas", staging.storage.root, staging.folder, part.places(s)) for s in part.shards()
        ]
        deltas: dict[str, list[Any]] = {}
        for parts, written in results(calls):
            staging.written += written
            for field, entry in parts.items():
                deltas.setdefault(field.value, []).append(entry)
        return deltas

    def stats(self) -> list[dict[str, int]]:
        """Rows, bytes and calls by shard, counted where they happened."""
        self._settle()
        return results([RayCall(shard, self.actors[shard], "ask", ("stats",)) for shard in range(self.plan.shards)])


def _rows(values: Array, order: Array) -> Sent:
    """Rows of values, by number; the array itself where that is all of it in order, as with one shard."""
    if order.shape[0] == values.shape[0] and (order[:1] == 0).all() and (np.diff(order) == 1).all():
        return values
    return Rows(values, order)


def _place(values: Pulled, part: RowSlice, shard: int, out: Pulled) -> None:
    for field, some in values.items():
        spread_rows(some, part.order(shard, field), out[field])
