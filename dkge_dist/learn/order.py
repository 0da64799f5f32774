"""Which triples the batches of an update hold: what changed, again and again, with some of what surrounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dkge_dist.learn.plan import UpdatePlan
from dkge_dist.types import OFFSET, Array


@dataclass(frozen=True)
class ChangedOrder:
    """An epoch passes over all `changed` triples; beside each stand some others, drawn anew for every batch.

    Only what changed needs many passes. `replay` of the `others` that surround it keep in place what they share objects
    with; up to `again` of these are of the `learnt` ones, which changed too, and are few. And `far` of those
    `elsewhere`: whatever learns is a wrong answer to their questions.
    """

    changed: Array
    others: Array
    batch_size: int
    replay: float
    again: float = 0.0
    added: int = 0
    elsewhere: Array = field(default_factory=lambda: np.empty(0, OFFSET))
    far: float = 0.0
    learnt: Array = field(default_factory=lambda: np.empty(0, OFFSET))

    @staticmethod
    def of(plan: UpdatePlan, batch_size: int, replay: float, far: float) -> ChangedOrder:
        """Positions in the plan's triples, those elsewhere, and deleted ones, as a BatchMaker numbers them."""
        elsewhere = plan.triples.count + np.arange(plan.elsewhere.count)
        deleted = plan.triples.count + plan.elsewhere.count + np.arange(plan.deleted.count)
        changed = np.concatenate([plan.added, deleted])
        return ChangedOrder(changed, plan.stayed, batch_size, replay, replay / 2, plan.added.shape[0], elsewhere, far)

    def sparing(self, share: float) -> ChangedOrder:
        """With a share of the replay; what is replayed of the learnt ones stays."""
        return replace(self, replay=share * self.replay)

    def narrowed(self, left: Array) -> ChangedOrder:
        """Over some of the changed triples only (a flag for each); the other added ones are replayed."""
        learnt = self.changed[: self.added][~left[: self.added]]
        return replace(self, changed=self.changed[left], learnt=learnt)

    @property
    def _changed_in_batch(self) -> int:
        return max(1, int(self.batch_size / (1 + self.replay + self.far)))

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
            learnt = _drawn(rng, self.learnt, int(self.again * some.shape[0]))
            near = _drawn(rng, self.others, max(0, round(self.replay * some.shape[0]) - learnt.shape[0]))
            far = _drawn(rng, self.elsewhere, round(self.far * some.shape[0]))
            batches.append(np.concatenate([some, learnt, near, far]))
        return batches


def _drawn(rng: np.random.Generator, some: Array, count: int) -> Array:
    """So many of them, or all."""
    drawn: Array = rng.choice(some, min(count, some.shape[0]), replace=False)
    return drawn
