"""The next batch is made, and its rows are announced to the tables, while this one is learnt."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np

from dkge_dist.kernels.jit import set_threads
from dkge_dist.learn.batches import Batch, BatchMaker
from dkge_dist.learn.encode import ObjectEncoder
from dkge_dist.learn.order import BatchOrder

Objects = TypeVar("Objects")


@dataclass(frozen=True)
class PreparedBatch(Generic[Objects]):
    """A batch of `size` positives (over all workers), and the tickets of its prefetched entity and relation rows."""

    batch: Batch[Objects]
    size: int
    tickets: tuple[int | None, int | None] = (None, None)


class Prefetcher(Generic[Objects]):
    """Makes batches one ahead, in a thread of its own. Randomness follows from (seed, epoch, batch number) alone."""

    def __init__(
        self,
        maker: BatchMaker[Objects],
        entities: ObjectEncoder[Objects],
        relations: ObjectEncoder[Objects],
        seed: int,
    ) -> None:
        self._maker, self._entities, self._relations, self._seed = maker, entities, relations, seed
        # One thread of the kernels: the others belong to the step.
        self._pool = ThreadPoolExecutor(1, "next-batch", lambda: set_threads(1))

    def epoch(self, order: BatchOrder, epoch: int, first: int = 0) -> Generator[PreparedBatch[Objects], None, None]:
        """The batches of an epoch from number `first` on.

        Once it is closed no batch is being made any more: validation uses the same contexts.
        """
        batches = order.epoch(np.random.default_rng([self._seed, epoch]))

        def submit(number: int) -> Future[PreparedBatch[Objects]]:
            rng = np.random.default_rng([self._seed, epoch, number])
            return self._pool.submit(self.prepare, batches[number], rng)

        if first >= len(batches):
            return
        coming = submit(first)
        try:
            for number in range(first, len(batches)):
                prepared = coming.result()
                if number + 1 < len(batches):
                    coming = submit(number + 1)
                yield prepared
        finally:
            wait([coming])

    def prepare(self, positions: np.ndarray, rng: np.random.Generator) -> PreparedBatch[Objects]:
        """The batch of some positions, its rows asked for."""
        batch = self._maker.make(positions, rng)
        tickets = (
            self._entities.table.prefetch(self._entities.rows(batch.entities)),
            self._relations.table.prefetch(self._relations.rows(batch.relations)),
        )
        return PreparedBatch(batch, positions.shape[0], tickets)

    def __enter__(self) -> Prefetcher[Objects]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()
