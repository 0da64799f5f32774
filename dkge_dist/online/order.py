"""Which triples the batches of an update hold: what changed, again and again, with some of what surrounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dkge_dist.online.plan import UpdatePlan
from dkge_dist.types import Array


@dataclass(frozen=True)
class ChangedOrder:
    """An epoch passes over all `changed` triples; beside each stand `replay` others, drawn anew for every batch.

    Only what changed needs many passes. The others keep in place what they share objects with.
    """

    changed: Array
    others: Array
    batch_size: int
    replay: float

    @staticmethod
    def of(plan: UpdatePlan, batch_size: int, replay: float) -> ChangedOrder:
        """Positions of added and then of deleted triples, as a BatchMaker numbers them."""
        count = plan.triples.count
        is_added = np.zeros(count, np.bool_)
        is_added[plan.added] = True
        changed = np.concatenate([plan.added, count + np.arange(plan.deleted.count)])
        return ChangedOrder(changed, np.flatnonzero(~is_added), batch_size, replay)

    @property
    def _changed_in_batch(self) -> int:
        return max(1, int(self.batch_size / (1 + self.replay)))

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-int(self.changed.shape[0]) // self._changed_in_batch)

    def epoch(self, rng: np.random.Generator) -> Sequence[Array]:
        """The positions of each batch of an epoch."""
        order, size = rng.permutation(self.changed), self._changed_in_batch
        batches = []
        for first in range(0, order.shape[0], size):
            some = order[first : first + size]
            wanted = min(round(self.replay * some.shape[0]), self.others.shape[0])
            batches.append(np.concatenate([some, rng.choice(self.others, wanted, replace=False)]))
        return batches
