"""The loop of a training: the same seed ends at the same bits, stopped or not, when it should, and at its best."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from dkge_dist.learn.batches import Batch, BatchMaker
from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.loop import DivergedError, Progress, StoppedError
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.measure.validation import Validation
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import Array, DkgeError, Field
from tests.graphs import Labelled, dense, movies
from tests.learn.trainings import (
    BATCHES,
    PAPER,
    TRAIN,
    VALID,
    Clock,
    ScriptedMonitor,
    ScriptedValidation,
    State,
    Training,
    run,
    same,
    state,
    trainer,
    untimed,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("words", [[], PAPER, ["train.loss=self_adversarial", "train.margin=2"]])
def test_the_same_seed_gives_the_same_bits(tmp_path: Path, words: list[str]) -> None:
    one, other = (trainer(tmp_path / name, words) for name in ("one", "other"))
    start = state(one)
    assert untimed(run(one)) == untimed(run(other))
    assert same(state(one), state(other))
    assert not same(state(one), start)
    another = trainer(tmp_path / "another", [*words, "seed=8"])
    run(another)
    assert not same(state(one), state(another))


@pytest.mark.parametrize("words", [[], PAPER], ids=["default", "paper"])
@pytest.mark.parametrize(
    "stops",
    [[1], [BATCHES], [BATCHES * 3], [2, 1, 4, 1], [BATCHES, BATCHES], [3, 5, 3], [1] * 11],
    ids=lambda stops: "-".join(map(str, stops)),
)
def test_a_training_that_was_stopped_ends_where_an_undisturbed_one_does(
    tmp_path: Path, words: list[str], stops: list[int]
) -> None:
    """Also right at the end of an epoch, of the last one, and after every batch."""
    words = [*words, "train.checkpoint_seconds=1000"]
    undisturbed = trainer(tmp_path / "undisturbed", words)
    expected = run(undisturbed)
    folder = tmp_path / "stopped"
    for batches in stops:
        with pytest.raises(StoppedError, match=r"stopped in epoch \d; the same command goes on"):
            run(trainer(folder, words, monitor=ScriptedMonitor(batches)))
    resumed = trainer(folder, words)
    assert untimed(run(resumed)) == untimed(expected)
    assert same(state(resumed), state(undisturbed))


def test_a_training_with_evidence_that_was_stopped_ends_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    """Evidence is read off the graph anew, and gives the same offsets. Vectors alone are validated."""
    triples = dense(count=120, entities=25)
    copies = [(head, "also", tail) for head, _, tail in triples[:60]]
    graph = ([*triples, *copies[20:]], copies[:20])
    undisturbed = trainer(tmp_path / "undisturbed", ["evidence=true"], graph=graph)
    offsets, validation = undisturbed.maker.offsets, undisturbed.course.validation
    assert offsets is not None and offsets.tail.any() and offsets.head.any()
    assert isinstance(validation, Validation) and validation.evidence is None
    expected = run(undisturbed)
    for batches in (2, 7):
        with pytest.raises(StoppedError):
            run(trainer(tmp_path / "stopped", ["evidence=true"], graph=graph, monitor=ScriptedMonitor(batches)))
    resumed = trainer(tmp_path / "stopped", ["evidence=true"], graph=graph)
    assert untimed(run(resumed)) == untimed(expected)
    assert same(state(resumed), state(undisturbed))
    without = trainer(tmp_path / "without", graph=graph)
    run(without)
    assert not same(state(without), state(undisturbed))


def test_offsets_fade_out_over_a_training(tmp_path: Path) -> None:
    """From the whole of them to nothing, also where a training goes on."""
    shares: list[float] = []

    def watched(monitor: ScriptedMonitor | None = None) -> Training:
        made = trainer(tmp_path / "one", ["train.checkpoint_seconds=1000"], monitor=monitor)
        learn = made.step.learn

        def heard(prepared: PreparedBatch[ObjectBatch], optimizer: Optimizer, offset_share: float = 0.0) -> float:
            shares.append(offset_share)
            return learn(prepared, optimizer, offset_share)

        made.step.learn = heard  # type: ignore[method-assign]
        return made

    with pytest.raises(StoppedError):
        run(watched(ScriptedMonitor(5)))
    run(watched())
    steps = 3 * BATCHES
    assert shares == pytest.approx([1 - step / steps for step in range(steps)])


@pytest.mark.parametrize("word", ["true", "false"])
def test_own_entities_compete_where_the_setting_says_so_and_a_relation_has_no_loops(tmp_path: Path, word: str) -> None:
    graph = ([*TRAIN, ("person3", "likes", "person3"), ("person3", "likes", "person4")], VALID)
    made = trainer(tmp_path / "one", [f"train.own_negative={word}"], graph=graph)
    every = np.arange(made.maker.triples.count)
    batch = made.maker.make(every, np.random.default_rng(0))
    loop = made.maker.triples.head == made.maker.triples.tail
    assert loop.sum() == 1
    likes = made.maker.triples.relation == made.maker.triples.relation[loop]
    assert batch.own_is_negative.tolist() == (~likes if word == "true" else np.zeros_like(likes)).tolist()


def test_a_training_that_was_stopped_at_random_with_checkpoints_all_the_time(tmp_path: Path) -> None:
    words = ["train.checkpoint_seconds=0", "train.eval_every=2"]
    undisturbed = trainer(tmp_path / "undisturbed", words)
    expected = run(undisturbed)
    chance = np.random.default_rng(3)
    left = BATCHES * 3
    while left > 0:
        batches = int(chance.integers(1, 6))
        one = trainer(tmp_path / "stopped", words, monitor=ScriptedMonitor(batches))
        left -= batches
        if left >= 0:
            with pytest.raises(StoppedError):
                run(one)
    one = trainer(tmp_path / "stopped", words)
    assert untimed(run(one)) == untimed(expected)
    assert same(state(one), state(undisturbed))


def test_every_triple_is_learnt_once_an_epoch_in_another_order(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    seen: list[list[tuple[int, int, int]]] = []

    class Recording(BatchMaker[ObjectBatch]):
        def make(self, positions: Array, rng: np.random.Generator) -> Batch[ObjectBatch]:
            seen.append([(int(h), int(r), int(t)) for h, r, t in zip(*self.triples.take(positions), strict=True)])
            return super().make(positions, rng)

    one.maker.__class__ = Recording
    run(one)
    assert [len(batch) for batch in seen] == [30, 30, 30, 10] * 3
    epochs = [list(chain(*seen[first : first + BATCHES])) for first in range(0, len(seen), BATCHES)]
    every = sorted(zip(*(column.tolist() for column in one.maker.triples), strict=True))
    assert [sorted(epoch) for epoch in epochs] == [every] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_training_learns(tmp_path: Path) -> None:
    one = trainer(tmp_path, ["train.max_epochs=20", "model.dim=16", "train.negatives=32", "train.batch_size=25"])
    progress = run(one)
    losses = [line["loss"] for line in progress.history]
    assert losses[-1] < 0.7 * losses[0]


def test_it_stops_when_patience_is_at_an_end(tmp_path: Path) -> None:
    words = ["train.max_epochs=20", "train.patience=3"]
    validation = ScriptedValidation([0.1, 0.3, 0.2, 0.3, 0.25, 0.9])
    progress = run(trainer(tmp_path, words, validation=validation))
    assert (progress.epoch, validation.asked) == (5, 5)
    assert progress.best == {"hits@10": 0.3, "mrr": 2.0}
    assert [line["hits@10"] for line in progress.history] == [0.1, 0.3, 0.2, 0.3, 0.25]


def test_patience_is_counted_in_validations_and_over_a_stop(tmp_path: Path) -> None:
    words = ["train.max_epochs=20", "train.patience=2", "train.eval_every=2"]
    hits = [0.1, 0.3, 0.2, 0.1, 0.9]
    with pytest.raises(StoppedError):
        run(trainer(tmp_path, words, validation=ScriptedValidation(hits), monitor=ScriptedMonitor(6 * BATCHES + 1)))
    later = ScriptedValidation(hits, asked=3)
    progress = run(trainer(tmp_path, words, validation=later))
    assert (progress.epoch, later.asked) == (8, 4)
    assert progress.best["hits@10"] == 0.3
    assert ["hits@10" in line for line in progress.history] == [False, True] * 4


def test_without_patience_it_goes_to_the_end(tmp_path: Path) -> None:
    progress = run(trainer(tmp_path, ["train.max_epochs=6"], validation=ScriptedValidation([0.5, *[0.1] * 5])))
    assert progress.epoch == 6


def test_it_ends_with_the_best_and_not_the_last(tmp_path: Path) -> None:
    words = ["train.schedule=constant", "train.max_epochs=5"]
    one = trainer(tmp_path / "one", words, validation=ScriptedValidation([0.1, 0.5, 0.2, 0.5, 0.3]))
    progress = run(one)
    assert progress.epoch == 5
    assert progress.best == {"hits@10": 0.5, "mrr": 2.0}
    short = trainer(tmp_path / "short", ["train.schedule=constant", "train.max_epochs=2"])
    run_without_best(short)
    assert same(state(one), state(short))


def test_a_last_epoch_that_is_the_best_is_not_written_and_read_back(tmp_path: Path) -> None:
    one = trainer(tmp_path, ["train.max_epochs=3"], validation=ScriptedValidation([0.5, 0.2, 0.6]))
    with patch.object(one.keeper, "load", side_effect=AssertionError):
        progress = run(one)
    assert progress.best == {"hits@10": 0.6, "mrr": 3.0}
    best = one.keeper.checkpoints.load("best")
    assert best is not None and best[1]["epoch"] == 1, "what was written before it"


def run_without_best(one: Training) -> None:
    """To the end, whatever validation says."""
    one.course.validation = ScriptedValidation([float(epoch) for epoch in range(100)])
    run(one)


def test_an_end_between_validations_is_validated_too(tmp_path: Path) -> None:
    validation = ScriptedValidation([0.2, 0.4])
    progress = run(trainer(tmp_path, ["train.max_epochs=3", "train.eval_every=2"], validation=validation))
    assert [line.get("hits@10") for line in progress.history] == [None, 0.2, 0.4]
    assert progress.best["hits@10"] == 0.4


def test_what_validation_sees_is_what_the_model_says_now(tmp_path: Path) -> None:
    monitor = ScriptedMonitor()
    one = trainer(tmp_path, monitor=monitor)
    seen: list[dict[str, float]] = []

    def again() -> None:
        entities = one.step.entities.joint(one.course.validation.rows)
        relations = one.step.relations.joint(np.arange(2, dtype=np.int32))
        seen.append(one.course.validation.measure(entities, relations))

    monitor.on_epoch = again
    progress = run(one)
    assert len(seen) == 3
    assert all(found.items() <= line.items() for found, line in zip(seen, progress.history, strict=True))


def rates_of(one: Training) -> list[float]:
    """The learning rates of all batches to come, as they come."""
    seen: list[float] = []
    learn = one.step.learn

    def noting(prepared: PreparedBatch[ObjectBatch], optimizer: Optimizer, lead: float) -> float:
        seen.append(optimizer.rate)
        return learn(prepared, optimizer, lead)

    one.step.learn = noting  # type: ignore[method-assign]
    return seen


def test_a_limit_in_seconds_brings_the_schedule_to_its_end(tmp_path: Path) -> None:
    clock = Clock()
    words = ["train.max_epochs=50", "train.max_seconds=18", "train.learning_rate=1"]
    one = trainer(tmp_path, words, monitor=ScriptedMonitor(clock=clock), clock=clock)
    rates = rates_of(one)
    progress = run(one)
    # Four seconds an epoch, a second a batch, which is known with the next one.
    assert [line["seconds"] for line in progress.history] == [4, 8, 12, 16, 19]
    assert rates[::4] == pytest.approx([1, 1 - 4 / 18, 1 - 8 / 18, 1 - 12 / 18, 1 - 16 / 18])
    assert rates == sorted(rates, reverse=True)


def test_a_slow_first_batch_does_not_shorten_a_training(tmp_path: Path) -> None:
    """Kernels are compiled in it: what is planned by it would leave most of the time unused."""
    clock = Clock()
    words = ["train.max_epochs=5", "train.max_seconds=60"]
    one = trainer(tmp_path, words, monitor=ScriptedMonitor(clock=clock), clock=clock)
    learn, slow = one.step.learn, iter([20.0])

    def compiling(*given: Any) -> float:
        clock.now += next(slow, 0.0)
        return learn(*given)

    one.step.learn = compiling  # type: ignore[method-assign]
    rates = rates_of(one)
    progress = run(one)
    assert (progress.epoch, progress.seconds) == (5, 20 + 5 * 4)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.1 * rates[0], "the schedule came to its end by epochs"


def test_a_limit_that_ends_within_the_first_epoch(tmp_path: Path) -> None:
    clock = Clock()
    monitor, validation = ScriptedMonitor(clock=clock), ScriptedValidation([0.5])
    words = ["train.max_epochs=50", "train.max_seconds=2"]
    progress = run(trainer(tmp_path, words, validation=validation, monitor=monitor, clock=clock))
    # What a batch took is known with the next one: three batches, and what was learnt is validated.
    shares = [share for share, _ in monitor.heard]
    assert len(shares) == 3
    assert (progress.epoch, validation.asked) == (1, 1)
    assert progress.best["hits@10"] == 0.5
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_limit_holds_over_stops(tmp_path: Path) -> None:
    words = ["train.max_epochs=50", "train.max_seconds=10"]
    clock = Clock(1000.0)
    with pytest.raises(StoppedError):
        run(trainer(tmp_path, words, monitor=ScriptedMonitor(6, clock), clock=clock))
    # The machine was off for a long time; another clock starts anywhere.
    clock = Clock(5.0)
    progress = run(trainer(tmp_path, words, monitor=ScriptedMonitor(clock=clock), clock=clock))
    assert progress.epoch == 3
    assert 10 <= progress.seconds <= 11


def test_time_that_validation_takes_counts(tmp_path: Path) -> None:
    clock = Clock()

    class Slow(ScriptedValidation):
        def measure(self, entities: Array, relations: Array) -> dict[str, float]:
            clock.now += 30
            return super().measure(entities, relations)

    words = ["train.max_epochs=50", "train.max_seconds=100"]
    progress = run(
        trainer(tmp_path, words, validation=Slow([0.1] * 50), monitor=ScriptedMonitor(clock=clock), clock=clock)
    )
    assert progress.epoch == 3
    assert progress.seconds >= 100


def test_time_that_runs_out_after_an_epoch_still_gets_its_last_epoch_validated(tmp_path: Path) -> None:
    """A clock that goes on whenever it is read: no moment in between may be missed."""
    for limit in range(5, 17):
        clock = Clock()

        def read(clock: Clock = clock) -> float:
            clock.now += 1
            return clock.now

        validation = ScriptedValidation([0.1] * 50)
        words = ["train.max_epochs=9", f"train.max_seconds={limit}", "train.eval_every=3", "train.batch_size=100"]
        progress = run(trainer(tmp_path / str(limit), words, validation=validation, clock=read))
        assert "hits@10" in progress.history[-1], limit
        assert progress.best, limit


@pytest.mark.parametrize("limit", ["10", "1e300", ".inf"])
def test_a_clock_that_stands_still_and_limits_without_end(tmp_path: Path, limit: str) -> None:
    progress = run(trainer(tmp_path, [f"train.max_seconds={limit}"], clock=Clock()))
    assert progress.epoch == 3


def test_no_batch_is_being_made_while_validation_uses_the_contexts(tmp_path: Path) -> None:
    """Time runs out in the middle of an epoch, when the next batch is on its way already."""
    busy = threading.Event()

    class Slow(BatchMaker[ObjectBatch]):
        def make(self, positions: Array, rng: np.random.Generator) -> Batch[ObjectBatch]:
            busy.set()
            time.sleep(0.05)
            batch = super().make(positions, rng)
            busy.clear()
            return batch

    class Watching(ScriptedValidation):
        def measure(self, entities: Array, relations: Array) -> dict[str, float]:
            assert not busy.is_set()
            return super().measure(entities, relations)

    clock, validation = Clock(), Watching([0.5])
    monitor = ScriptedMonitor(clock=clock)
    one = trainer(tmp_path, ["train.max_seconds=1"], validation=validation, monitor=monitor, clock=clock)
    one.maker.__class__ = Slow
    run(one)
    assert validation.asked == 1


HUGE = ["train.learning_rate=1e6", "train.dense_learning_rate=1e6", *PAPER[:4], "train.schedule=constant"]


def test_numbers_that_are_none_end_the_training_with_the_last_checkpoint_kept(tmp_path: Path) -> None:
    words = [*HUGE, "train.batch_size=3", "train.checkpoint_seconds=0"]
    monitor = ScriptedMonitor()
    one = trainer(tmp_path, words, monitor=monitor)
    good: list[State] = []
    monitor.on_batch = lambda: good.append(state(one))
    with pytest.raises(DivergedError, match=r"epoch 1, batch \d+: training diverged.*train\.learning_rate") as caught:
        run(one)
    assert same(state(one), good[-1])
    kept = Checkpoints(tmp_path).load("last")
    assert kept is not None
    assert str(kept[0]) in str(caught.value)
    assert kept[1]["batch"] == len(good)
    fresh = trainer(tmp_path / "fresh", words)
    fresh.load(kept[0])
    assert same(state(fresh), good[-1])


def test_divergence_before_there_was_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match="there was no checkpoint yet"):
        run(trainer(tmp_path, [*HUGE, "train.batch_size=3"]))


def test_a_loss_that_only_grows_ends_the_training(tmp_path: Path) -> None:
    words = [*PAPER, "train.learning_rate=30", "train.dense_learning_rate=1"]
    with pytest.raises(DivergedError, match=r"epoch 2: training diverged: a loss of .* in the first epoch"):
        run(trainer(tmp_path, words))


def test_a_first_epoch_without_any_loss_is_no_yardstick(tmp_path: Path) -> None:
    """With a margin of 0 all positives may be closer than their negatives at first, by chance."""
    words = [*PAPER, "train.margin=0"]
    one = trainer(tmp_path, words)
    before = Progress(epoch=1, history=[{"epoch": 1, "loss": 0.0, "triples_per_second": 1}])
    one.keeper.checkpoints.folder.mkdir(parents=True, exist_ok=True)
    one.keeper.checkpoints.save("last", one.save, asdict(before))
    progress = run(one)
    assert progress.epoch == 3
    assert progress.history[1]["loss"] > 0


def test_a_graph_without_validation_triples(tmp_path: Path) -> None:
    words = ["train.patience=1", "train.max_epochs=4", "train.schedule=constant"]
    one = trainer(tmp_path / "one", words, graph=(TRAIN, []))
    assert one.course.validation.rows.shape == (0,)
    progress = run(one)
    assert (progress.epoch, progress.best) == (4, {})
    assert Checkpoints(tmp_path / "one").load("best") is None
    scripted = trainer(tmp_path / "two", words, graph=(TRAIN, []))
    run_without_best(scripted)
    assert same(state(one), state(scripted))


@pytest.mark.parametrize("words", [[], PAPER], ids=["default", "paper"])
@pytest.mark.parametrize("triple", [("a", "r", "b"), ("a", "r", "a")], ids=["edge", "loop"])
def test_a_single_train_triple(tmp_path: Path, words: list[str], triple: Labelled) -> None:
    one = trainer(tmp_path, words, graph=([triple], []))
    start = state(one)
    progress = run(one)
    assert progress.epoch == 3
    assert all(np.isfinite(value).all() for value in state(one).values())
    if triple[0] != triple[2]:
        assert not same(state(one), start)


def test_a_relation_that_only_validation_knows(tmp_path: Path) -> None:
    valid = [("title1", "unheard", "person3"), ("newcomer", "actor", "person3")]
    one = trainer(tmp_path, graph=(movies(60), valid))
    progress = run(one)
    assert progress.best.keys() == {"mr", "mrr", "hits@1", "hits@3", "hits@10"}
    assert one.tables.relations.rows == 3
    for table in one.tables:
        assert isinstance(table, LocalTable)
        joint = table.shard.values[Field.JOINT]
        assert np.isfinite(joint).all()
        assert np.abs(joint).sum(1).min() > 0


def test_no_train_triples_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DkgeError, match="no train triples"):
        trainer(tmp_path, graph=([], VALID))


def test_the_monitor_hears_of_batches_and_epochs(tmp_path: Path) -> None:
    monitor = ScriptedMonitor()
    progress = run(trainer(tmp_path, monitor=monitor))
    shares = [share for share, _ in monitor.heard]
    assert len(shares) == 3 * BATCHES
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1.0
    assert monitor.heard[0][1].startswith("epoch 1/3, loss ")
    assert monitor.epochs == progress.history
    assert [line["epoch"] for line in monitor.epochs] == [1, 2, 3]
    json.dumps(monitor.epochs)


def test_the_metric_of_early_stopping_is_a_setting(tmp_path: Path) -> None:
    """By MRR the scripted validation gets better every time; by Hits@10 it never does again."""
    words = ["train.max_epochs=6", "train.patience=2"]
    by_hits = run(trainer(tmp_path / "hits", words, validation=ScriptedValidation([0.5, *[0.1] * 5])))
    words.append("train.early_stopping_metric=mrr")
    by_mrr = run(trainer(tmp_path / "mrr", words, validation=ScriptedValidation([0.5, *[0.1] * 5])))
    assert (by_hits.epoch, by_mrr.epoch) == (3, 6)
    assert (by_hits.best["mrr"], by_mrr.best["mrr"]) == (1.0, 6.0)
