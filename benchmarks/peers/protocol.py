"""What a system is given and what it can be asked. Rows are those of the store: an entity has one for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from dkge_dist.store.store import Store
from dkge_dist.types import Array, Split, Triples

VALIDATIONS = 20
"""Of a training that uses its whole budget. They do not count as learning."""


class Graph(NamedTuple):
    """A snapshot: canonical triples, and the rows of the entities alive, ascending, which are all the candidates."""

    train: Triples
    valid: Triples
    test: Triples
    candidates: Array
    entity_rows: int
    relation_rows: int

    @property
    def splits(self) -> tuple[Triples, Triples, Triples]:
        """Indexed by `Split`."""
        return self.train, self.valid, self.test


def graph_of(store: Store, snapshot: str) -> Graph:
    """A snapshot of a store."""
    found = store.snapshot(store.find_snapshot(snapshot))
    splits = (found.triples(Split.TRAIN), found.triples(Split.VALID), found.triples(Split.TEST))
    return Graph(*splits, found.alive_entities, found.entity_rows, found.relation_rows)


@dataclass
class FitReport:
    """What a training took. `seconds` are those of learning; validation is `valid_seconds`.

    `best_seconds` is when the model that was kept was reached, `stopped_by` one of budget and end.
    """

    seconds: float = 0.0
    best_seconds: float = 0.0
    valid_seconds: float = 0.0
    epochs: float = 0.0
    stopped_by: str = "end"
    valid_hits_at_10: float | None = None
    curve: list[tuple[float, float]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Peer(Protocol):
    """A system. After `fit` or `update` it scores every candidate of the graph that it was given last."""

    def fit(self, graph: Graph, budget: float) -> FitReport:
        """Learn from scratch in at most so many seconds."""
        ...

    def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
        """Scores of all candidates, one row a question, higher is better: (entity, relation, ?), or (?, relation,
        entity). −inf is for what the system knows nothing of.
        """
        ...


class OnlinePeer(Peer, Protocol):
    """A system that can learn a change."""

    def update(self, before: Graph, after: Graph, budget: float) -> FitReport:
        """Bring what was learnt of `before` to `after`."""
        ...


class OutOfBudgetError(Exception):
    """The training is over; raised out of training loops that are not ours."""


class Watch:
    """The clock of a training: validates now and then, keeps the best, and says when to stop. Not before the budget is
    used up: some learn nothing for long, and a falling learning rate helps late.
    """

    def __init__(
        self,
        budget: float,
        validate: Callable[[], float],
        keep: Callable[[], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._budget, self._validate, self._keep, self._clock = budget, validate, keep, clock
        self._began, self._away = clock(), 0.0
        self._next = budget / VALIDATIONS
        self.report = FitReport()

    def after_batch(self, epochs: float) -> bool:
        """Called after every batch with the epochs so far; True when the training is over."""
        self.report.epochs = epochs
        self.report.seconds = self._clock() - self._began - self._away
        over = self.report.seconds >= self._budget
        if over or self.report.seconds >= self._next:
            self._next = self.report.seconds + self._budget / VALIDATIONS
            self._look()
        if over:
            self.report.stopped_by = "budget"
        return over

    @property
    def share(self) -> float:
        """Of the budget that is used up."""
        return min(1.0, self.report.seconds / self._budget)

    def end(self) -> FitReport:
        """The last look, if there was none since the last batch."""
        if not self.report.curve or self.report.curve[-1][0] < self.report.seconds:
            self._look()
        return self.report

    def _look(self) -> None:
        before = self._clock()
        found = self._validate()
        self.report.curve.append((self.report.seconds, found))
        if self.report.valid_hits_at_10 is None or found > self.report.valid_hits_at_10:
            self.report.valid_hits_at_10, self.report.best_seconds = found, self.report.seconds
            self._keep()
        self._away += self._clock() - before
        self.report.valid_seconds = self._away
