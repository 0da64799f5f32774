"""Which triples the batches of an epoch hold: all of them, or what changed with some of what surrounds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from dkge_dist.learn.plan import Plan
from dkge_dist.types import OFFSET, Array


class BatchOrder(Protocol):
    """Which triples the batches of an epoch hold."""

    @property
    def batches(self) -> int:
        """Batches of an epoch."""

    def epoch(self, rng: np.random.Generator) -> Sequence[Array]:
        """The positions of each batch of an epoch."""


@dataclass(frozen=True)
class ShuffledOrder:
    """All of `count` triples once, shuffled."""

    count: int
    batch_size: int

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.count // self.batch_size)

    def epoch(self, rng: np.random.Generator) -> Sequence[Array]:
        """The positions of each batch of an epoch."""
        order = rng.permutation(self.count)
        return [order[first : first + self.batch_size] for first in range(0, self.count, self.batch_size)]


@dataclass(frozen=True)
class ReplayOrder:
    """An epoch passes over all `changed` triples; beside each stand some others, drawn anew for every batch.

    Only what changed needs many passes. `replay` of the `others` that surround it keep in place what they share objects
    with; up to `again` of these are of the `learnt` ones, which changed too, and are few. And `global_replay` of those
    of the `whole_graph`: whatever learns is a wrong answer to their questions.
    """

    changed: Array
    others: Array
    batch_size: int
    replay: float
    again: float = 0.0
    added: int = 0
    whole_graph: Array = field(default_factory=lambda: np.empty(0, OFFSET))
    global_replay: float = 0.0
    learnt: Array = field(default_factory=lambda: np.empty(0, OFFSET))

    @staticmethod
    def of(plan: Plan, batch_size: int, replay: float, global_replay: float) -> ReplayOrder:
        """Positions in the plan's triples, those of the whole graph, and deleted ones, as a BatchMaker numbers them."""
        whole_graph = plan.triples.count + np.arange(plan.global_replay.count)
        deleted = plan.triples.count + plan.global_replay.count + np.arange(plan.deleted.count)
        changed, added = np.concatenate([plan.added, deleted]), plan.added.shape[0]
        return ReplayOrder(changed, plan.stayed, batch_size, replay, replay / 2, added, whole_graph, global_replay)

    def with_replay_ratio(self, ratio: float) -> ReplayOrder:
        """With a share of the replay; what is replayed of the learnt ones stays."""
        return replace(self, replay=ratio * self.replay)

    def narrowed(self, left: Array) -> ReplayOrder:
        """Over some of the changed triples only (a flag for each); the other added ones are replayed."""
        learnt = self.changed[: self.added][~left[: self.added]]
        return replace(self, changed=self.changed[left], learnt=learnt)

    @property
    def _changed_in_batch(self) -> int:
        return max(1, int(self.batch_size / (1 + self.replay + self.global_replay)))

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
            far = _drawn(rng, self.whole_graph, round(self.global_replay * some.shape[0]))
            batches.append(np.concatenate([some, learnt, near, far]))
        return batches


def _drawn(rng: np.random.Generator, some: Array, count: int) -> Array:
    """So many of them, or all."""
    drawn: Array = rng.choice(some, min(count, some.shape[0]), replace=False)
    return drawn
