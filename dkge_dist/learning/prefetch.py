"""The next batch is made, and its rows are announced to the tables, while this one is learnt."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np

from dkge_dist.kernels.jit import set_threads
from dkge_dist.learning.batches import Batch, BatchMaker
from dkge_dist.learning.encode import ObjectEncoder

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
        batch_size: int,
        seed: int,
    ) -> None:
        self._maker, self._entities, self._relations = maker, entities, relations
        self._batch_size, self._seed = batch_size, seed
        # One thread of the kernels: the others belong to the step.
        self._pool = ThreadPoolExecutor(1, "next-batch", lambda: set_threads(1))

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-self._maker.triples.count // self._batch_size)

    def epoch(self, epoch: int, first: int = 0) -> Generator[PreparedBatch[Objects], None, None]:
        """The batches of an epoch from number `first` on.

        Once it is closed no batch is being made any more: validation uses the same contexts.
        """
        order = np.random.default_rng([self._seed, epoch]).permutation(self._maker.triples.count)

        def submit(number: int) -> Future[PreparedBatch[Objects]]:
            positions = order[number * self._batch_size : (number + 1) * self._batch_size]
            return self._pool.submit(self._prepare, positions, np.random.default_rng([self._seed, epoch, number]))

        if first >= self.batches:
            return
        coming = submit(first)
        try:
            for number in range(first, self.batches):
                prepared = coming.result()
                if number + 1 < self.batches:
                    coming = submit(number + 1)
                yield prepared
        finally:
            wait([coming])

    def _prepare(self, positions: np.ndarray, rng: np.random.Generator) -> PreparedBatch[Objects]:
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
