"""One shard as workers see it: a plain class that an actor runs, in several threads at once.

Every call carries the *attempt* that it belongs to. A restarted actor has lost its rows and knows no attempt; a writer
of an attempt that was given up is stale: both are refused, and the whole attempt starts again from what is saved.

Gradients are staged by (step, rank). The last rank's push adds them up in the order of ranks and takes one optimizer
step, so that results do not depend on who came first, and a push that is repeated does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Condition
from typing import NamedTuple

import numpy as np

from dkge_dist.cluster.errors import StaleAttemptError
from dkge_dist.cluster.transport import AllocateReply, Shape
from dkge_dist.kernels.codes import Grid
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.kernels.sets import distinct
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.storage import Blob, open_storage
from dkge_dist.store.tables import BlockIndex, blocks, save_blocks, save_code_blocks, save_delta
from dkge_dist.tables.checkpoint import CheckpointFolder, read_rows, write_rows
from dkge_dist.tables.index import ExactIndex, Nearest
from dkge_dist.tables.initializer import RowInitializer, TableStart
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.tables.table import COUNTED
from dkge_dist.types import TRAINED, Array, Field

LocalRows = dict[Field, Array]
Values = dict[Field, Array]
Pushed = dict[Field, tuple[Array, Array]]


def allocate(shapes: Sequence[Shape]) -> list[Array]:
    """Arrays of this process, for an answer."""
    return [np.empty(shape, np.float32) for shape in shapes]


class Patch(NamedTuple):
    """Rows that were fetched early and have changed since: their positions in what was fetched, and the new values."""

    positions: Array
    values: Array


class Reply(NamedTuple):
    """What a push brings back: rows that were to be read after it, and corrections of rows that were read before."""

    late: Values
    patches: dict[Field, Patch]


class ShardServer:
    """Rows of one shard, their optimizer state, and counts of all that was moved. Rows are local ones."""

    def __init__(self, number: int, plan: ShardPlan, threads: int = 1) -> None:
        set_threads(threads)
        self.number, self.plan = number, plan
        self._attempt = ""
        self._changed = Condition()
        self._shard = Shard({})
        self._counts: dict[str, int] = {}
        self._forget(1)

    def _forget(self, world: int) -> None:
        self._world = world
        self._next = 0
        self._staged: dict[int, dict[int, Pushed]] = {}
        self._early: dict[int, LocalRows] = {}
        self._patches: dict[int, dict[Field, Patch]] = {}

    def open(self, attempt: str, world: int, content: TableStart) -> None:
        """Begin an attempt: fill all rows, forget what was staged, refuse calls of other attempts."""
        with self._changed:
            self._attempt = ""
            self._forget(world)
            self._shard = Shard({})  # The old rows go first: a shard has room for one set of them.
            self._shard = Shard(self._filled(content))
            self._counts = dict.fromkeys(COUNTED, 0)
            self._attempt = attempt
            self._changed.notify_all()

    def _filled(self, content: TableStart) -> Values:
        size, spans = self.plan.size(self.number), self.plan.spans(self.number)
        if isinstance(content, RowInitializer):
            values = {field: np.zeros((size, content.dim), np.float32) for field in Field}
            for field in TRAINED:
                for span in spans:
                    values[field][span.local : span.local + span.size] = content.block(field, span.first, span.size)
            return values
        storage = open_storage(content.location)
        local_of = {span.first: span.local for span in spans}
        values = {}
        for field, entry in content.tables.items():
            assert BlockIndex(storage, entry).block == self.plan.block_rows, "one block size a store"
            values[field] = np.zeros((size, entry.dim), np.float32)
            stored = [span.first // self.plan.block_rows for span in spans if span.first < entry.rows]
            for first, rows in blocks(storage, entry, stored):
                values[field][local_of[first] : local_of[first] + rows.shape[0]] = rows
        return values

    @property
    def attempt(self) -> str:
        """The attempt that this shard works for; empty before the first one and after a restart."""
        return self._attempt

    def limits(self, attempt: str) -> tuple[dict[Field, Shape], int]:
        """(rows, dimension) of every field, and the number of ranks: what a request is checked against."""
        with self._changed:
            self._check(attempt)
            return {field: values.shape for field, values in self._shard.values.items()}, self._world

    def _check(self, attempt: str) -> None:
        if attempt != self._attempt:
            why = "has been restarted" if not self._attempt else "belongs to another attempt by now"
            raise StaleAttemptError(f"shard {self.number} {why}")

    def _wait(self, attempt: str, step: int) -> None:
        """Until all steps before `step` are taken."""
        while self._attempt == attempt and self._next < step:
            self._changed.wait()
        self._check(attempt)

    def pull(
        self,
        attempt: str,
        wanted: LocalRows,
        after: int,
        corrected_by: tuple[int, int] | None = None,
        allocate_reply: AllocateReply = allocate,
    ) -> Values:
        """Rows as they are once all steps before `after` are taken.

        `corrected_by` names the push, by step and rank, whose reply is to correct what that step changes in them.
        """
        with self._changed:
            self._check(attempt)
            self._wait(attempt, after)
            # With one worker nothing is to be corrected: it fetches early what its push does not change.
            if corrected_by is not None and self._world > 1 and self._next <= corrected_by[0]:
                # Copies: these may lie in memory that the caller wants to use again.
                self._early[corrected_by[1]] = {field: rows.copy() for field, rows in wanted.items()}
            self._counts["pull_calls"] += 1
            return self._read(wanted, allocate_reply)

    def _read(self, wanted: LocalRows, allocate_reply: AllocateReply) -> Values:
        shard = self._shard
        out = allocate_reply([(rows.shape[0], shard.values[field].shape[1]) for field, rows in wanted.items()])
        for (field, rows), into in zip(wanted.items(), out, strict=True):
            shard.gather_into(field, rows, into)
            self._count("pulled", rows.shape[0], rows.nbytes + into.nbytes)
        return dict(zip(wanted, out, strict=True))

    def _count(self, what: str, rows: int, bytes_: int) -> None:
        self._counts[f"rows_{what}"] += rows
        self._counts[f"bytes_{what}"] += bytes_

    def push(
        self,
        attempt: str,
        step: int,
        rank: int,
        gradients: Pushed,
        optimizer: Optimizer,
        late: LocalRows | None = None,
        allocate_reply: AllocateReply = allocate,
    ) -> Reply:
        """Give this rank's gradients to a step; answers once the step is taken."""
        with self._changed:
            self._check(attempt)
            if step >= self._next and rank not in self._staged.setdefault(step, {}):
                self._staged[step][rank] = gradients
                self._counts["push_calls"] += 1
                for rows, values in gradients.values():
                    self._count("pushed", rows.shape[0], rows.nbytes + values.nbytes)
                if len(self._staged[step]) == self._world:
                    self._take(step, optimizer)
            self._wait(attempt, step + 1)
            patches = self._patches.get(rank, {})
            # Answers that hold corrections too are put together as a whole when they are sent.
            return Reply(self._read(late or {}, allocate if patches else allocate_reply), patches)

    def _take(self, step: int, optimizer: Optimizer) -> None:
        staged = self._staged.pop(step)
        ranks = [staged[rank] for rank in sorted(staged)]
        self._patches = {}
        for field in TRAINED:
            parts = [gradients[field] for gradients in ranks if field in gradients]
            if not parts:
                continue
            rows, values = parts[0] if len(ranks) == 1 else summed(parts)
            self._shard.step(field, rows, values, optimizer)
            for rank, early in self._early.items():
                self._patch(rank, field, early[field], rows)
        self._early = {}
        self._next = step + 1
        self._changed.notify_all()

    def _patch(self, rank: int, field: Field, early: Array, changed: Array) -> None:
        positions = np.flatnonzero(np.isin(early, changed))
        if positions.shape[0]:
            values = self._shard.gather(field, early[positions])
            self._count("pulled", 0, values.nbytes)
            self._patches.setdefault(rank, {})[field] = Patch(positions, values)

    def write(self, attempt: str, field: Field, rows: Array, values: Array, is_reset: bool = False) -> None:
        """Set rows to given values; with `is_reset` their optimizer state is forgotten too."""
        with self._changed:
            self._check(attempt)
            self._counts["write_calls"] += 1
            self._count("pushed", rows.shape[0], rows.nbytes + values.nbytes)
            self._shard.write(field, rows, values, is_reset)

    def _index(self) -> ExactIndex:
        return ExactIndex(self._shard.values[Field.JOINT])

    def distances(self, attempt: str, query_QD: Array, indptr: Array, rows: Array) -> Array:
        """L1 distances of each query to the joint vectors of its own rows."""
        with self._changed:
            self._check(attempt)
            return self._index().distances(query_QD, indptr, rows)

    def count_closer(
        self, attempt: str, query_QD: Array, bound_Q: Array, candidates: Array, filtered: FilteredCandidates
    ) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""
        with self._changed:
            self._check(attempt)
            return self._index().count_closer(query_QD, bound_Q, candidates, filtered)

    def nearest(self, attempt: str, query_QD: Array, candidates: Array, top: int) -> Nearest:
        """The candidates nearest to each query, by their rows in the whole table."""
        with self._changed:
            self._check(attempt)
            found = self._index().nearest(query_QD, candidates, top)
            return Nearest(self.plan.held(self.number)[found.rows].astype(found.rows.dtype), found.distances)

    def save_blocks(self, attempt: str, location: str) -> tuple[dict[Field, list[tuple[int, Blob]]], int]:
        """Write all rows as parts of a store: (first row, blob) by field, and how many bytes were new."""
        with self._changed:
            self._check(attempt)
            spans, block_rows = self.plan.spans(self.number), self.plan.block_rows
            with open_storage(location).staging() as staging:
                saved = {}
                for field, values in self._shard.values.items():
                    rows = (values[span.local : span.local + span.size] for span in spans)
                    blobs = save_blocks(staging, rows, block_rows)
                    saved[field] = [(span.first, blob) for span, blob in zip(spans, blobs, strict=True)]
            self._counts["bytes_written"] += staging.written
            return saved, staging.written

    def save_codes(self, attempt: str, location: str, grid: Grid) -> tuple[list[tuple[int, Blob]], int]:
        """Write the codes of all joint vectors as parts of a store: (first row, blob), and how many bytes were new."""
        with self._changed:
            self._check(attempt)
            spans, values = self.plan.spans(self.number), self._shard.values[Field.JOINT]
            with open_storage(location).staging() as staging:
                rows = (values[span.local : span.local + span.size] for span in spans)
                blobs = save_code_blocks(staging, rows, self.plan.block_rows, grid)
            self._counts["bytes_written"] += staging.written
            return [(span.first, blob) for span, blob in zip(spans, blobs, strict=True)], staging.written

    def save_deltas(self, attempt: str, location: str, rows: LocalRows) -> tuple[dict[Field, PartEntry], int]:
        """Write some rows (ascending) as parts of a store."""
        with self._changed:
            self._check(attempt)
            held = self.plan.held(self.number)
            with open_storage(location).staging() as staging:
                parts = {
                    field: save_delta(staging, held[some], self._shard.gather(field, some))
                    for field, some in rows.items()
                    if some.shape[0]
                }
            self._counts["bytes_written"] += staging.written
            return parts, staging.written

    def save_checkpoint(self, attempt: str, folder: CheckpointFolder) -> None:
        """Write rows and optimizer state into the files that the whole table shares."""
        with self._changed:
            self._check(attempt)
            write_rows(folder, self._shard, self.plan.spans(self.number))

    def load_checkpoint(self, attempt: str, folder: CheckpointFolder) -> None:
        """Load what `save_checkpoint` wrote, by however many shards."""
        with self._changed:
            self._check(attempt)
            read_rows(folder, self._shard, self.plan.spans(self.number), self.plan.rows)

    def stats(self, attempt: str) -> dict[str, int]:
        """Calls, rows and bytes since the attempt began, and what is held."""
        with self._changed:
            self._check(attempt)
            held = sum(array.nbytes for array in (*self._shard.values.values(), *self._shard.state.values()))
            return {**self._counts, "rows": self.plan.size(self.number), "bytes_held": held, "pid": os.getpid()}


def summed(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Gradients of several ranks, added up in their order."""
    rows = distinct(np.concatenate([some for some, _ in parts]))
    total = np.zeros((rows.shape[0], parts[0][1].shape[1]), np.float32)
    for some, values in parts:
        total[np.searchsorted(rows, some)] += values
    return rows, total
