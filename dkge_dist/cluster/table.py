"""A table whose rows lie in shard actors. Agrees with a table in this process to the bit.

A batch makes one pull and one push a shard. The pull of the next batch is under way while this one computes: rows that
this batch does not change are fetched early; the others come back with the push that changes them. What another worker
changed in rows fetched early comes back corrected too, so that staleness is 0.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import torch

from dkge_dist.cluster.calls import Call, RayCall, ShardConnection, TransportCall, results
from dkge_dist.cluster.communicator import RayCommunicator
from dkge_dist.cluster.requests import (
    pull_request,
    push_request,
    read_nothing,
    read_pulled,
    read_reply,
    write_request,
)
from dkge_dist.cluster.server import LocalRows, Reply
from dkge_dist.cluster.transport import Address, Message, Payload, Received, RowSelection
from dkge_dist.kernels.codes import grid_of, sample_of
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.kernels.rows import RowMembership
from dkge_dist.runtime import Communicator
from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.storage import Staging
from dkge_dist.store.tables import save_code_index, save_index, wants_codes
from dkge_dist.tables.checkpoint import CheckpointFolder, create_files
from dkge_dist.tables.index import Nearest, merged
from dkge_dist.tables.initializer import TableStart
from dkge_dist.tables.plan import Partitioned, ShardPlan
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.tables.table import Gradients, LocalTable, Pulled, RowsByField
from dkge_dist.types import OFFSET, ROW, Array, Field


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
            out[field][self.order(shard, field)] = some


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


NO_ROWS = np.empty(0, ROW)


class RayTable:
    """Rows in the shards of one attempt, as one worker sees them."""

    def __init__(self, plan: ShardPlan, actors: list[Any], attempt: str, dim: int, communicator: Communicator) -> None:
        self.plan, self.actors, self.attempt, self.dim, self.rows = plan, actors, attempt, dim, plan.rows
        self._communicator = communicator
        self._lock, self._connecting = Lock(), Lock()
        self._known_addresses: list[Address] = []
        self._connections: list[ShardConnection] = []
        self._steps = 0
        self._after = [0] * plan.shards
        self._membership = RowMembership(plan.rows)
        self._tickets = 0
        self._pending: deque[PendingPull] = deque()
        self._current: RowsByField = {}
        self._is_pushed = True
        self._unanswered: list[Call] = []

    # Connections and calls

    def _call(self, shard: int, method: str, *arguments: Any) -> Call:
        """Ask a shard something, as part of the attempt, by way of Ray."""
        arguments = (method, self.attempt, *arguments)
        return RayCall(shard, self.actors[shard], "ask", arguments, self._addresses()[shard])

    def _addresses(self) -> list[Address]:
        """Where the shards listen. They are asked once: one that listens elsewhere later is not in the attempt."""
        with self._connecting:
            if not self._known_addresses:
                calls = [RayCall(shard, self.actors[shard], "address", ()) for shard in range(self.plan.shards)]
                self._known_addresses = results(calls)
            return self._known_addresses

    def _everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """Ask every shard the same."""
        return results([self._call(shard, method, *arguments) for shard in range(self.plan.shards)])

    def _ask(self, shard: int, request: Message, read: Callable[[Received], Any]) -> Call:
        """Ask a shard something of every batch, by the transport."""
        if not self._connections:
            self._connect()
        return TransportCall(shard, self._connections[shard], request, read)

    def _connect(self) -> None:
        addresses = self._addresses()
        with self._connecting:
            if not self._connections:
                self._connections = [
                    ShardConnection(shard, address, self.attempt, self.actors[shard])
                    for shard, address in enumerate(addresses)
                ]

    def open(self, content: TableStart) -> None:
        """Begin the attempt on all shards; they fill their rows themselves."""
        self._everywhere("open", self._communicator.world, content)

    def close(self) -> None:
        """Release the connections to all shards."""
        for connection in self._connections:
            connection.close()

    # Rows of a batch

    def _pull(self, shard: int, wanted: LocalRows, after: int, corrected_by: tuple[int, int] | None = None) -> Call:
        return self._ask(shard, pull_request(wanted, after, corrected_by), read_pulled)

    def prefetch(self, wanted: RowsByField) -> int:
        """Begin to fetch what the next batch needs, if at most one push is still to come before it."""
        with self._lock:
            self._tickets += 1
            to_come = len(self._pending) + (not self._is_pushed)
            if to_come > 1:
                return self._tickets
            early, late, corrected_by = RowSlice(self.plan, wanted), None, None
            if to_come:
                before = self._pending[0].wanted if self._pending else self._current
                again = {f: self._membership.isin(rows, before.get(f, NO_ROWS)) for f, rows in wanted.items()}
                early = RowSlice(self.plan, wanted, {field: np.flatnonzero(~there) for field, there in again.items()})
                late = RowSlice(self.plan, wanted, {field: np.flatnonzero(there) for field, there in again.items()})
                corrected_by = (self._steps, self._communicator.rank)
            coming = PendingPull(self._tickets, wanted, early, late)
            for shard in early.shards():
                coming.early_calls[shard] = self._pull(shard, early.local(shard), self._after[shard], corrected_by)
            self._pending.append(coming)
            return self._tickets

    def pull(self, wanted: RowsByField, ticket: int | None = None) -> Pulled:
        """Copies of the distinct rows asked for, by field."""
        with self._lock:
            while self._pending and self._pending[0].ticket != ticket:
                self._drop()
            coming = self._pending.popleft() if self._pending else None
            self._current, self._is_pushed = wanted, False
        out = {field: np.empty((rows.shape[0], self.dim), np.float32) for field, rows in wanted.items()}
        if coming is None:
            self._fetch(RowSlice(self.plan, wanted), out)
            return out
        for shard, call in coming.early_calls.items():
            coming.early.spread(call.result(), shard, out)
        if coming.late is not None:
            if not coming.pushed:
                self._fetch(coming.late, out)
            for shard, call in coming.late_calls.items():
                coming.late.spread(call.result(), shard, out)
            for shard, call in coming.pushed.items():
                reply: Reply = call.result()
                coming.late.spread(reply.late, shard, out)
                # Where nothing was fetched early, corrections are of a request before this one.
                for field, patch in reply.patches.items() if shard in coming.early_calls else ():
                    out[field][coming.early.order(shard, field)[patch.positions]] = patch.values
        self._settle()
        return out

    def _fetch(self, part: RowSlice, out: Pulled) -> None:
        self._settle()
        calls = {shard: self._pull(shard, part.local(shard), self._after[shard]) for shard in part.shards()}
        for shard, call in calls.items():
            part.spread(call.result(), shard, out)

    def _settle(self) -> None:
        """Wait for pushes whose replies were not needed: a shard may serve later requests first."""
        with self._lock:
            calls = [*self._unanswered, *(call for coming in self._pending for call in coming.pushed.values())]
            self._unanswered = []
        results(calls)

    def _drop(self) -> None:
        """Give up a pull that was announced. Its calls are waited for: they may not come in between later ones."""
        self._unanswered += self._pending.popleft().calls()

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on (distinct rows, gradients) of each field; only shards that hold any of them are asked.

        With several workers all shards are: a step is taken once every rank has pushed.
        """
        part = RowSlice(self.plan, {field: rows for field, (rows, _) in gradients.items()})
        with self._lock:
            while self._is_pushed and self._pending:
                self._drop()  # It was announced without this push in mind.
        self._settle()
        with self._lock:
            step, self._steps, self._is_pushed = self._steps, self._steps + 1, True
            coming = self._pending[0] if self._pending else None
            late = coming.late if coming is not None else None
            late_shards = set(late.shards()) if late is not None else set()
            mine = set(part.shards()) if self._communicator.world == 1 else set(range(self.plan.shards))
            for shard in sorted(mine):
                pushed = {
                    field: (local, _ordered(gradients[field][1], part.order(shard, field)))
                    for field, local in part.local(shard).items()
                }
                asked = late.local(shard) if late is not None and shard in late_shards else {}
                request = push_request(step, self._communicator.rank, pushed, optimizer, asked)
                call = self._ask(shard, request, read_reply)
                self._after[shard] = step + 1
                if coming is not None:
                    coming.pushed[shard] = call
                else:
                    self._unanswered.append(call)
            if coming is not None and late is not None:
                for shard in late_shards - mine:
                    coming.late_calls[shard] = self._pull(shard, late.local(shard), self._after[shard])

    def write(self, field: Field, rows: Array, values: Array, is_reset: bool = False) -> None:
        """Set rows to given values; with `is_reset` (of a trained field) their optimizer state is forgotten too."""
        with self._lock:
            while any(field in coming.wanted for coming in self._pending):
                self._drop()  # It may have been fetched early.
        self._settle()
        part = RowSlice(self.plan, {field: rows})
        requests = {
            shard: write_request(field, part.local(shard)[field], _ordered(values, part.order(shard, field)), is_reset)
            for shard in part.shards()
        }
        results([self._ask(shard, request, read_nothing) for shard, request in requests.items()])

    # Ranks and answers: queries go to the shards, counts or the best rows come back

    @property
    def index(self) -> RayTable:
        """The shards answer for their joint vectors themselves."""
        return self

    def vectors(self, rows: Array) -> Array:
        """Copies of the joint vectors of distinct rows."""
        return self.pull({Field.JOINT: rows})[Field.JOINT]

    def distances(self, query_QD: Array, indptr: Array, rows: Array) -> Array:
        """L1 distances of each query to the joint vectors of its own rows."""
        partitioned = self.plan.partition(rows)
        calls = {}
        for shard in partitioned.shards():
            mine = partitioned.of(shard)
            by_query = np.searchsorted(partitioned.order[mine], indptr).astype(OFFSET)
            calls[shard] = self._call(shard, "distances", query_QD, by_query, partitioned.local[mine])
        out = np.empty(rows.shape[0], np.float32)
        for shard, call in calls.items():
            out[partitioned.order[partitioned.of(shard)]] = call.result()
        return out

    def count_closer(
        self, query_QD: Array, bound_Q: Array, candidates: Array, filtered: FilteredCandidates
    ) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""
        asked, removed = self.plan.partition(candidates), self.plan.partition(filtered.rows)
        calls = []
        for shard in range(self.plan.shards):
            mine = removed.of(shard)
            by_query = np.searchsorted(removed.order[mine], filtered.indptr).astype(OFFSET)
            local = FilteredCandidates(by_query, removed.local[mine])
            calls.append(self._call(shard, "count_closer", query_QD, bound_Q, asked.local[asked.of(shard)], local))
        closer, equal = np.array(results(calls), OFFSET).sum(0)
        return closer, equal

    def nearest(self, query_QD: Array, candidates: Array, top: int) -> Nearest:
        """The `top` candidates nearest to each query."""
        asked = self.plan.partition(candidates)
        shards = range(self.plan.shards)
        calls = [self._call(shard, "nearest", query_QD, asked.local[asked.of(shard)], top) for shard in shards]
        found: list[Nearest] = results(calls)
        return functools.reduce(lambda one, other: merged(one, other, top), found)

    # Files: every shard reads and writes its own rows

    def save_checkpoint(self, folder: CheckpointFolder) -> None:
        """Write the trained fields and their optimizer state into an empty folder."""
        self._settle()
        create_files(folder, self.rows, self.dim)
        self._everywhere("save_checkpoint", folder)

    def load_checkpoint(self, folder: CheckpointFolder) -> None:
        """Load what `save_checkpoint` wrote. Rank 0 asks for it; the others wait until it is done."""
        self._settle()
        if self._communicator.rank == 0:
            self._everywhere("load_checkpoint", folder)
        self._communicator.barrier()

    def save(self, staging: Staging, block_rows: int) -> dict[Field, TableEntry]:
        """Write all rows as tables of a store, each shard its blocks."""
        assert block_rows == self.plan.block_rows, "one block size a store"
        self._settle()
        saved = self._everywhere("save_blocks", staging.storage.location)
        staging.written += sum(written for _, written in saved)
        tables: dict[Field, TableEntry] = {}
        for field in Field:
            blocks = sorted(block for blocks, _ in saved for block in blocks[field])
            tables[field] = save_index(staging, [blob for _, blob in blocks], self.rows, self.dim, block_rows)
        if wants_codes(self.rows):
            tables[Field.JOINT] = self._save_codes(staging, tables[Field.JOINT])
        return tables

    def _save_codes(self, staging: Staging, table: TableEntry) -> TableEntry:
        """The joint vectors with codes, each shard its blocks; the grid is that of the whole table."""
        grid = grid_of(self.pull({Field.JOINT: sample_of(self.rows)})[Field.JOINT])
        saved = self._everywhere("save_codes", staging.storage.location, grid)
        staging.written += sum(written for _, written in saved)
        blocks = sorted(block for blocks, _ in saved for block in blocks)
        return save_code_index(staging, table, [blob for _, blob in blocks], self.plan.block_rows, grid)

    def save_deltas(self, staging: Staging, rows: RowsByField) -> dict[Field, list[PartEntry]]:
        """Write some rows (ascending) as deltas of a store: each shard that holds any of them a part of its own."""
        self._settle()
        part = RowSlice(self.plan, {field: some.astype(ROW) for field, some in rows.items()})
        location = staging.storage.location
        calls = [self._call(shard, "save_deltas", location, part.local(shard)) for shard in part.shards()]
        deltas: dict[Field, list[PartEntry]] = {}
        for parts, written in results(calls):
            staging.written += written
            for field, entry in parts.items():
                deltas.setdefault(field, []).append(entry)
        return deltas

    def stats(self) -> list[dict[str, int]]:
        """Calls, rows and bytes by shard, counted where they happened."""
        self._settle()
        return self._everywhere("stats")


def _ordered(values: Array, order: Array) -> Payload:
    """Rows of values, by number; the array itself where that is all of it in order, as with one shard."""
    if order.shape[0] == values.shape[0] and (order[:1] == 0).all() and (np.diff(order) == 1).all():
        return values
    return RowSelection(values, order)


class ReplicatedTable(LocalTable):
    """The relations of a training with several workers."""

    def __init__(self, shard: Shard, communicator: RayCommunicator) -> None:
        super().__init__(shard)
        self._communicator = communicator

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on the rows that any worker has a gradient of."""
        for field, (rows, values) in gradients.items():
            count, dim = self.shard.values[field].shape
            # The last column counts the workers that have a gradient of a row.
            whole = torch.zeros(count, dim + 1)
            whole[torch.from_numpy(rows).long()] = torch.cat(
                [torch.from_numpy(np.asarray(values)), torch.ones(rows.shape[0], 1)], 1
            )
            self._communicator.sum(whole)
            touched = np.flatnonzero(whole[:, dim].numpy())
            self.shard.step(field, touched, whole[:, :dim].numpy()[touched], optimizer)
