"""One shard as others see it: a plain class that an actor runs, in several threads at once.

Every call carries the *attempt* that it belongs to. A restarted actor has lost its rows and knows no attempt; a writer
of an attempt that was given up is a stranger: both are refused, and the whole attempt starts again from what is saved.

Gradients are staged by (step, rank). The last rank's push adds them up in the order of ranks and takes one optimizer
step, so that results do not depend on who came first, and a push that is repeated does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Condition
from typing import NamedTuple

import numpy as np

from dkge_dist.cluster.channel import Room, Shape
from dkge_dist.cluster.wire import is_same
from dkge_dist.evaluation.answers import Answers, nearest
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.ranks import FilteredCandidates, count_closer
from dkge_dist.store import durable
from dkge_dist.store.manifest import PartEntry, TableEntry
from dkge_dist.store.storage import Blob, open_storage
from dkge_dist.store.tables import BlockIndex, blocks, save_block, save_delta
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, Optimizer, RowInitializer, Shard
from dkge_dist.types import Array, DkgeError, Field

LocalRows = dict[Field, Array]
Values = dict[Field, Array]
Pushed = dict[Field, tuple[Array, Array]]


def here(shapes: Sequence[Shape]) -> list[Array]:
    """Room in this process."""
    return [np.empty(shape, np.float32) for shape in shapes]


class StaleAttemptError(DkgeError):
    """The shard is not (or no longer) part of the attempt that calls it."""


class Stored(NamedTuple):
    """Tables of a version in a store, to be read by whoever needs their rows."""

    location: str
    tables: dict[Field, TableEntry]


class Patch(NamedTuple):
    """Rows that were fetched early and have changed since: their numbers in what was fetched, and the new values."""

    numbers: Array
    values: Array


class Reply(NamedTuple):
    """What a push brings back: rows that were to be read after it, and corrections of rows that were read before."""

    late: Values
    patches: dict[Field, Patch]


class ShardServer:
    """Rows of one shard, their optimizer state, and counts of all that was moved."""

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

    def open(self, attempt: str, world: int, fill: RowInitializer | Stored) -> None:
        """Begin an attempt: fill all rows, forget what was staged, refuse whoever belongs to another one."""
        with self._changed:
            self._attempt = ""
            self._forget(world)
            self._shard = Shard({})  # The old rows go first: a shard has room for one set of them.
            self._shard = Shard(self._filled(fill))
            self._counts = dict.fromkeys(COUNTED, 0)
            self._attempt = attempt
            self._changed.notify_all()

    def _filled(self, fill: RowInitializer | Stored) -> Values:
        size = self.plan.size(self.number)
        if isinstance(fill, RowInitializer):
            values = {field: np.zeros((size, fill.dim), np.float32) for field in Field}
            for field in TRAINED:
                for place, block in self._spans():
                    first, count = block * self.plan.block_rows, self.plan.block_size(block)
                    values[field][place : place + count] = fill.run(field, first, count)
            return values
        storage = open_storage(fill.location)
        values = {}
        for field, entry in fill.tables.items():
            assert BlockIndex(storage, entry).block == self.plan.block_rows, "one block size a store"
            values[field] = np.zeros((size, entry.dim), np.float32)
            place_of = {block: place for place, block in self._spans()}
            there = [block for block in place_of if block * self.plan.block_rows < entry.rows]
            for first, rows in blocks(storage, entry, there):
                place = place_of[first // self.plan.block_rows]
                values[field][place : place + rows.shape[0]] = rows
        return values

    def _spans(self) -> list[tuple[int, int]]:
        """(first place, block) of every block of this shard."""
        return [(i * self.plan.block_rows, int(block)) for i, block in enumerate(self.plan.blocks(self.number))]

    def knows(self, attempt: str) -> bool:
        """Is it the attempt that this shard works for?"""
        return is_same(attempt, self._attempt)

    def _check(self, attempt: str) -> None:
        if attempt != self._attempt:
            told = "has been restarted" if not self._attempt else "belongs to another attempt by now"
            raise StaleAttemptError(f"shard {self.number} {told}")

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
        room: Room = here,
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
                self._early[corrected_by[1]] = {field: places.copy() for field, places in wanted.items()}
            self._counts["pull_calls"] += 1
            return self._read(wanted, room)

    def _read(self, wanted: LocalRows, room: Room) -> Values:
        shard = self._shard
        out = room([(places.shape[0], shard.values[field].shape[1]) for field, places in wanted.items()])
        for (field, places), into in zip(wanted.items(), out, strict=True):
            shard.gather_into(field, places, into)
            self._count("pulled", places.shape[0], places.nbytes + into.nbytes)
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
        room: Room = here,
    ) -> Reply:
        """Give this rank's gradients to a step; answers once the step is taken."""
        with self._changed:
            self._check(attempt)
            if step >= self._next and rank not in self._staged.setdefault(step, {}):
                self._staged[step][rank] = gradients
                self._counts["push_calls"] += 1
                for places, values in gradients.values():
                    self._count("pushed", places.shape[0], places.nbytes + values.nbytes)
                if len(self._staged[step]) == self._world:
                    self._take(step, optimizer)
            self._wait(attempt, step + 1)
            patches = self._patches.get(rank, {})
            # Answers that hold corrections too are put together as a whole when they are sent.
            return Reply(self._read(late or {}, here if patches else room), patches)

    def _take(self, step: int, optimizer: Optimizer) -> None:
        staged = self._staged.pop(step)
        ranks = [staged[rank] for rank in sorted(staged)]
        self._patches = {}
        for field in TRAINED:
            parts = [gradients[field] for gradients in ranks if field in gradients]
            if not parts:
                continue
            places, values = parts[0] if len(ranks) == 1 else summed(parts)
            self._shard.step(field, places, values, optimizer)
            for rank, early in self._early.items():
                self._patch(rank, field, early[field], places)
        self._early = {}
        self._next = step + 1
        self._changed.notify_all()

    def _patch(self, rank: int, field: Field, early: Array, changed: Array) -> None:
        numbers = np.flatnonzero(np.isin(early, changed))
        if numbers.shape[0]:
            values = self._shard.gather(field, early[numbers])
            self._count("pulled", 0, values.nbytes)
            self._patches.setdefault(rank, {})[field] = Patch(numbers, values)

    def write(self, attempt: str, field: Field, places: Array, values: Array) -> None:
        """Set rows to given values."""
        with self._changed:
            self._check(attempt)
            self._counts["write_calls"] += 1
            self._count("pushed", places.shape[0], places.nbytes + values.nbytes)
            self._shard.write(field, places, values)

    def count_closer(
        self, attempt: str, query_QD: Array, bound_Q: Array, candidates: Array, filtered: FilteredCandidates
    ) -> tuple[Array, Array]:
        """How many candidates (places) are closer to each query than its bound, and how many just as close."""
        with self._changed:
            self._check(attempt)
            return count_closer(query_QD, bound_Q, self._shard.values[Field.JOINT], candidates, filtered)

    def nearest(self, attempt: str, query_QD: Array, alive: Array, top: int) -> Answers:
        """The rows (numbered as in the whole table) nearest to each query."""
        with self._changed:
            self._check(attempt)
            found = nearest(query_QD, [(0, self._shard.values[Field.JOINT])], alive, top)
            return Answers(self.plan.held(self.number)[found.rows].astype(found.rows.dtype), found.distances)

    def save_blocks(self, attempt: str, location: str) -> tuple[dict[Field, list[tuple[int, Blob]]], int]:
        """Write all rows as parts of a store: (block, part) by field, and how many bytes were new."""
        with self._changed:
            self._check(attempt)
            with open_storage(location).staging() as staging:
                parts = {
                    field: [
                        (
                            block,
                            save_block(
                                staging, values[place : place + self.plan.block_size(block)], self.plan.block_rows
                            ),
                        )
                        for place, block in self._spans()
                    ]
                    for field, values in self._shard.values.items()
                }
                self._counts["bytes_written"] += staging.written
                return parts, staging.written

    def save_deltas(self, attempt: str, location: str, rows: LocalRows) -> tuple[dict[Field, PartEntry], int]:
        """Write some rows (by place, ascending) as parts of a store."""
        with self._changed:
            self._check(attempt)
            with open_storage(location).staging() as staging:
                held = self.plan.held(self.number)
                parts = {
                    field: save_delta(staging, held[places], self._shard.gather(field, places))
                    for field, places in rows.items()
                    if places.shape[0]
                }
                self._counts["bytes_written"] += staging.written
                return parts, staging.written

    def save_checkpoint(self, attempt: str, folder: Path) -> None:
        """Write rows and optimizer state into the files that the whole table shares."""
        with self._changed:
            self._check(attempt)
            for name, values in self._shard.files():
                into = np.load(folder / name, mmap_mode="r+", allow_pickle=False)
                for place, block in self._spans():
                    first, count = block * self.plan.block_rows, self.plan.block_size(block)
                    into[first : first + count] = values[place : place + count]
                into.flush()
                durable.sync(folder / name)

    def load_checkpoint(self, attempt: str, folder: Path) -> None:
        """Go back to what `save_checkpoint` wrote, by however many shards."""
        with self._changed:
            self._check(attempt)
            for name, values in self._shard.files():
                stored = np.load(folder / name, mmap_mode="r", allow_pickle=False)
                if stored.shape != (self.plan.rows, *values.shape[1:]):
                    raise DkgeError(f"{folder / name}: holds {stored.shape} of a table of {self.plan.rows} rows")
                for place, block in self._spans():
                    first, count = block * self.plan.block_rows, self.plan.block_size(block)
                    values[place : place + count] = stored[first : first + count]

    def stats(self) -> dict[str, int]:
        """Rows, bytes and calls since the attempt began, and what is held."""
        held = sum(values.nbytes for values in (*self._shard.values.values(), *self._shard.state.values()))
        return {**self._counts, "rows": self.plan.size(self.number), "bytes_held": held, "pid": os.getpid()}


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


def summed(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Gradients of several ranks, added up in their order."""
    places = np.unique(np.concatenate([some for some, _ in parts]))
    total = np.zeros((places.shape[0], parts[0][1].shape[1]), np.float32)
    for some, values in parts:
        total[np.searchsorted(places, some)] += values
    return places, total
