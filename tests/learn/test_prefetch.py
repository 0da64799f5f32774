"""The prefetcher: the batches that one would make one by one, one of them ahead, and none left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
import torch

from dkge_dist.learn.batches import Batch, BatchMaker
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.order import ShuffledOrder
from dkge_dist.learn.prefetch import Prefetcher, PreparedBatch
from dkge_dist.learn.step import Loss
from dkge_dist.model.dkge import Dkge
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.tables.table import LocalTable, Pulled, RowsByField, Tables
from dkge_dist.types import Array, Field, Triples
from tests.learn.graphs import (
    DIM,
    NOTHING,
    assert_same_batch,
    maker_of,
    negatives_of,
    positives,
    small_graph,
    step_of,
    tables_of,
)
from tests.strategies import to_list

pytestmark = pytest.mark.usefixtures("one_thread")

SIZE, SEED = 30, 5


class TicketTable(LocalTable):
    """Remembers what was announced and with which ticket it was pulled."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        self.announced: list[RowsByField] = []
        self.pulled_with: list[int | None] = []

    def prefetch(self, wanted: RowsByField) -> int:
        self.announced.append(wanted)
        return len(self.announced)

    def pull(self, wanted: RowsByField, ticket: int | None = None) -> Pulled:
        self.pulled_with.append(ticket)
        return super().pull(wanted, ticket)


def maker() -> BatchMaker[ObjectBatch]:
    graph = small_graph()
    return maker_of(graph, negatives_of(graph, "shared"), hide_targets=True)


def order_of(made: BatchMaker[ObjectBatch]) -> ShuffledOrder:
    return ShuffledOrder(made.triples.count, SIZE)


ORDER = order_of(maker())


def prefetcher(
    made: BatchMaker[ObjectBatch], tables: Tables | None = None, seed: int = SEED
) -> Prefetcher[ObjectBatch]:
    tables = tables or tables_of(small_graph())
    model = Dkge(DIM, 1, 1)
    entities, relations = (
        TrainedObjects(model.entity, tables.entities, NOTHING),
        TrainedObjects(model.relation, tables.relations, NOTHING),
    )
    return Prefetcher(made, entities, relations, seed)


def one_by_one(made: BatchMaker[ObjectBatch], epoch: int) -> Iterator[Batch[ObjectBatch]]:
    order = np.random.default_rng([SEED, epoch]).permutation(made.triples.count)
    for number, first in enumerate(range(0, order.shape[0], SIZE)):
        yield made.make(order[first : first + SIZE], np.random.default_rng([SEED, epoch, number]))


@pytest.mark.parametrize("first", [0, 1, 4])
def test_batches_equal_those_made_one_by_one(first: int) -> None:
    """Also when an epoch goes on from a batch in the middle."""
    made = maker()
    with prefetcher(made) as ahead:
        for epoch in (0, 3):
            found = list(ahead.epoch(ORDER, epoch, first))
            expected = list(one_by_one(maker(), epoch))[first:]
            assert [prepared.size for prepared in found] == [batch.head.shape[0] for batch in expected]
            for prepared, batch in zip(found, expected, strict=True):
                assert_same_batch(prepared.batch, batch)


def test_every_triple_is_in_one_batch_of_an_epoch_and_the_last_batch_is_smaller() -> None:
    made = maker()
    with prefetcher(made) as ahead:
        found = list(ahead.epoch(ORDER, 0))
        assert order_of(made).batches == len(found) == -(-made.triples.count // SIZE)
    assert [prepared.size for prepared in found] == [SIZE] * (len(found) - 1) + [made.triples.count % SIZE]
    every = [triple for prepared in found for triple in positives(prepared.batch)]
    assert sorted(every) == sorted(to_list(made.triples))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = []
    for seed, epoch in ((5, 0), (5, 1), (6, 0), (5, 0)):
        with prefetcher(maker(), seed=seed) as ahead:
            orders.append([triple for prepared in ahead.epoch(ORDER, epoch) for triple in positives(prepared.batch)])
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_an_epoch_that_is_over_has_no_batches() -> None:
    made = maker()
    with prefetcher(made) as ahead:
        assert list(ahead.epoch(ORDER, 0, ORDER.batches)) == []


def test_a_size_counts_the_positives_of_all_workers() -> None:
    graph = small_graph()
    made = maker_of(graph, negatives_of(graph, "shared"), rank=1, world=2)
    with prefetcher(made) as ahead:
        found = list(ahead.epoch(ORDER, 0))
    assert [prepared.size for prepared in found[:-1]] == [SIZE] * (len(found) - 1)
    assert [len(positives(prepared.batch)) for prepared in found[:-1]] == [SIZE // 2] * (len(found) - 1)


def test_rows_are_announced_when_a_batch_is_made_and_pulled_with_its_ticket() -> None:
    graph = small_graph()
    tables = Tables(*(TicketTable(table.shard) for table in tables_of(graph)))  # type: ignore[attr-defined]
    model = Dkge(DIM, 1, 1)
    step = step_of(model, tables, Loss("softmax", 0.0), torch.optim.SGD(model.parameters(), lr=0.01))
    made = maker()
    batches: list[PreparedBatch[ObjectBatch]] = []
    with Prefetcher(made, step.entities, step.relations, SEED) as ahead:
        for prepared in ahead.epoch(ORDER, 0):
            batches.append(prepared)
            step.learn(prepared, Optimizer("sgd", 0.01))
    tickets = list(range(1, order_of(made).batches + 1))
    assert [prepared.tickets for prepared in batches] == [(ticket, ticket) for ticket in tickets]
    for kind, table in zip(("entities", "relations"), tables, strict=True):
        assert isinstance(table, TicketTable)
        assert table.pulled_with == tickets
        for prepared, wanted in zip(batches, table.announced, strict=True):
            objects: ObjectBatch = getattr(prepared.batch, kind)
            assert np.array_equal(wanted[Field.KNOWLEDGE], objects.rows)
            assert np.array_equal(wanted[Field.CONTEXT], objects.vertex_rows)


class SlowMaker(BatchMaker[ObjectBatch]):
    """Takes its time, and tells when it is at work and what it has made."""

    busy = threading.Event()
    made: list[int]
    threads: set[str]

    def make(self, positions: Array, rng: np.random.Generator) -> Batch[ObjectBatch]:
        self.busy.set()
        self.threads.add(threading.current_thread().name)
        time.sleep(0.02)
        batch = super().make(positions, rng)
        self.made.append(positions.shape[0])
        self.busy.clear()
        return batch


@pytest.fixture
def slow() -> SlowMaker:
    made = maker()
    made.__class__ = SlowMaker
    assert isinstance(made, SlowMaker)
    made.made, made.threads = [], set()
    return made


def test_the_next_batch_is_made_while_this_one_is_learnt_and_no_other(slow: SlowMaker) -> None:
    with prefetcher(slow) as ahead:
        batches = ahead.epoch(ORDER, 0)
        next(batches)
        deadline = time.monotonic() + 60
        while len(slow.made) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        assert len(slow.made) == 2
        batches.close()
    assert slow.threads == {"next-batch_0"}


def test_no_batch_is_being_made_once_an_epoch_is_closed(slow: SlowMaker) -> None:
    with prefetcher(slow) as ahead:
        with closing(ahead.epoch(ORDER, 0)) as batches:
            next(batches)
        assert not slow.busy.is_set()
        assert len(slow.made) == 2
        assert len(list(ahead.epoch(ORDER, 1))) == order_of(slow).batches


def test_its_thread_ends_with_it(slow: SlowMaker) -> None:
    with prefetcher(slow) as ahead:
        next(ahead.epoch(ORDER, 0))
        assert any(thread.name.startswith("next-batch") for thread in threading.enumerate())
    assert not any(thread.name.startswith("next-batch") for thread in threading.enumerate())


class FailingMaker(BatchMaker[ObjectBatch]):
    def make(self, positions: Array, rng: np.random.Generator) -> Batch[ObjectBatch]:
        raise ValueError("no batch today")


def test_what_goes_wrong_while_a_batch_is_made_is_told_to_the_step() -> None:
    made = maker()
    made.__class__ = FailingMaker
    with prefetcher(made) as ahead, pytest.raises(ValueError, match="no batch today"):
        next(ahead.epoch(ORDER, 0))


def test_no_triples_make_no_batches() -> None:
    made = maker()
    made.triples = Triples.empty()
    with prefetcher(made) as ahead:
        assert (order_of(made).batches, list(ahead.epoch(order_of(made), 0))) == (0, [])
