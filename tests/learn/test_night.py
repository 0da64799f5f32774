"""The loop of a night: what is written, when it ends, and, over affected objects, that the best epoch is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from dkge_dist.ask.ranks import Ranks
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.loop import DivergedError, StoppedError
from dkge_dist.learn.prefetch import Prefetcher
from dkge_dist.runtime import Monitor
from dkge_dist.tables.initializer import initial_rows
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import ROW, TRAINED, Array, Field, Triples
from tests.learn.nights import DIM, SEED, Night, NightLearning, contexts_of, plan_of, small_night, updater, values_of
from tests.reference import sequential_l1
from tests.strategies import to_list

pytestmark = pytest.mark.usefixtures("one_thread")

FORMS = ["changed", "affected"]
AFFECTED = "online.epochs_over=affected"
EPOCHS = [AFFECTED, "online.max_epochs=4", "online.schedule=constant"]


@pytest.fixture(scope="module")
def night() -> Night:
    return small_night()


@dataclass
class ScriptedValidation:
    """Finds what it was told to."""

    mrr: list[float]
    rows: Array = field(default_factory=lambda: np.arange(3, dtype=ROW))
    asked: int = 0

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        assert entities.shape == (3, DIM)
        self.asked += 1
        return {"mrr": self.mrr[self.asked - 1], "hits@10": float(self.asked)}


def same(one: Tables, other: Tables) -> bool:
    mine, theirs = values_of(one), values_of(other)
    return all(mine[kind][field].tobytes() == theirs[kind][field].tobytes() for kind in mine for field in Field)


@pytest.mark.parametrize("form", FORMS)
def test_only_the_write_set_is_written(night: Night, form: str) -> None:
    """All other rows keep their bits."""
    assert night.plan.deleted.count and night.plan.added.shape[0]
    update, tables = updater(night, ["online.max_epochs=2", "online.global_replay=2", f"online.epochs_over={form}"])
    before = values_of(tables)
    done = update.run()
    assert done.epoch == 2
    after = values_of(tables)
    for kind, plan in (("entities", night.plan.entities), ("relations", night.plan.relations)):
        for name, rows in plan.write_set.items():
            changed = (before[kind][name] != after[kind][name]).any(1)
            assert set(np.flatnonzero(changed).tolist()) <= set(rows.tolist())
        assert (before[kind][Field.KNOWLEDGE] != after[kind][Field.KNOWLEDGE]).any()
        assert (before[kind][Field.CONTEXT][plan.emerging] != after[kind][Field.CONTEXT][plan.emerging]).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("epochs", [0, 1, 3])
def test_joint_vectors_are_fresh_afterwards(night: Night, epochs: int, form: str) -> None:
    """Also of objects that are affected and not trained at all."""
    update, tables = updater(night, [f"online.max_epochs={epochs}", f"online.epochs_over={form}"])
    assert update.run().epoch == epochs
    for objects, table, contexts, alive in zip(
        (update.entities, update.relations),
        tables,
        contexts_of(night.graph),
        (night.graph.entities, night.graph.relations),
        strict=True,
    ):
        fresh = TrainedObjects(objects.encoder, table, contexts).joint(alive)
        np.testing.assert_allclose(table.pull({Field.JOINT: alive})[Field.JOINT], fresh, rtol=1e-4, atol=1e-5)


def test_emerging_objects_begin_at_random_without_an_optimizer_state(night: Night) -> None:
    update, tables = updater(night, ["online.max_epochs=0", AFFECTED, "train.init_scale=0.5"])
    for table in tables:
        assert isinstance(table, LocalTable)
        for name in TRAINED:
            table.shard.state[name][:] = 7
    update.run()
    for number, (table, plan) in enumerate(zip(tables, (night.plan.entities, night.plan.relations), strict=True)):
        assert isinstance(table, LocalTable)
        rng = np.random.default_rng([SEED, 5, number])
        others = np.setdiff1d(np.arange(table.rows), plan.emerging)
        for name in TRAINED:
            expected = initial_rows(plan.emerging.shape[0], DIM, rng, 0.5)
            assert np.array_equal(table.shard.values[name][plan.emerging], expected)
            assert not table.shard.state[name][plan.emerging].any()
            assert (table.shard.state[name][others] == 7).all()


@pytest.mark.parametrize("size", [0.3, 5.0])
def test_emerging_entities_begin_as_large_as_affected_ones(night: Night, size: float) -> None:
    """Relations are no answers to a question: they begin as in learning from scratch."""
    update, tables = updater(night, ["online.max_epochs=0", "train.init_scale=0.5"])
    affected, emerging = night.plan.entities.affected.astype(ROW), night.plan.entities.emerging.astype(ROW)
    for name in TRAINED:
        signs = np.where(np.random.default_rng(1).random((affected.shape[0], DIM)) < 0.5, -size, size)
        tables.entities.write(name, affected, signs.astype(np.float32))
    update.run()
    for name in TRAINED:
        found = tables.entities.pull({name: emerging})[name]
        assert np.abs(found).max() <= 2 * size
        assert np.abs(found).mean() == pytest.approx(size, rel=0.3)
        relations = tables.relations.pull({name: night.plan.relations.emerging.astype(ROW)})[name]
        assert np.abs(relations).max() <= 0.5 * 6 / np.sqrt(DIM)


@pytest.mark.parametrize("form", FORMS)
def test_the_same_night_gives_the_same_bits(night: Night, form: str) -> None:
    learnt = []
    for _ in range(2):
        update, tables = updater(night, ["online.max_epochs=3", f"online.epochs_over={form}"])
        done = update.run()
        learnt.append((tables, [line["loss"] for line in done.history]))
    assert learnt[0][1] == learnt[1][1]
    assert same(learnt[0][0], learnt[1][0])


def test_the_best_epoch_is_kept(night: Night) -> None:
    update, tables = updater(night, [*EPOCHS, "online.patience=2"], validation=ScriptedValidation([0.1, 0.5, 0.4, 0.3]))
    done = update.run()
    assert [line["mrr"] for line in done.history] == [0.1, 0.5, 0.4, 0.3]
    short, expected = updater(night, [*EPOCHS, "online.max_epochs=2"], validation=ScriptedValidation([0.1, 0.5]))
    short.run()
    assert same(tables, expected)


def test_validation_never_undoes_the_first_epoch(night: Night) -> None:
    """It may know nothing of tonight's triples."""
    validation = ScriptedValidation([0.5, 0.4, 0.3, 0.2])
    update, tables = updater(night, [*EPOCHS, "online.patience=2"], validation=validation)
    start = values_of(tables)
    assert update.run().epoch == 3
    short, expected = updater(night, [*EPOCHS, "online.max_epochs=1"])
    short.run()
    assert same(tables, expected)
    assert (values_of(tables)["entities"][Field.KNOWLEDGE] != start["entities"][Field.KNOWLEDGE]).any()


def test_a_single_epoch_is_not_validated(night: Night) -> None:
    update, _ = updater(night, [AFFECTED, "online.max_epochs=1"])
    assert [set(line) for line in update.run().history] == [{"epoch", "loss", "triples_per_second", "seconds"}]


def test_epochs_over_what_changed_are_not_validated_and_all_of_them_are_learnt(night: Night) -> None:
    """Validation hardly knows of what changed."""
    validation = ScriptedValidation([])
    update, _ = updater(night, ["online.max_epochs=5", "online.patience=1"], validation=validation)
    done = update.run()
    assert [set(line) for line in done.history] == [{"epoch", "loss", "triples_per_second", "seconds"}] * 5
    assert validation.asked == 0


def test_losses_of_added_and_deleted_triples_fall(night: Night) -> None:
    update, tables = updater(night, ["online.max_epochs=30", "online.replay=0"])
    before = changed_distances(night, tables)
    history = update.run().history
    assert history[-1]["loss"] < 0.7 * history[0]["loss"]
    after = changed_distances(night, tables)
    assert after[0] < before[0] and after[1] > before[1]


def changed_distances(night: Night, tables: Tables) -> tuple[float, float]:
    """Mean distances of the added triples of known objects and of the deleted ones."""
    plan, added = night.plan, night.diff.added
    emerging = plan.entities.emerging
    is_new = np.isin(added.head, emerging) | np.isin(added.tail, emerging)
    old = np.flatnonzero(~is_new & ~np.isin(added.relation, plan.relations.emerging))
    assert old.shape[0]
    entities, relations = (values_of(tables)[kind][Field.JOINT] for kind in ("entities", "relations"))
    found = []
    for head, relation, tail in (added.take(old), plan.deleted):
        found.append(float(np.abs(entities[head] + relations[relation] - entities[tail]).sum(1).mean()))
    return found[0], found[1]


class Watching(Monitor):
    """Lets a clock go on with every batch, and asks to stop after so many of them."""

    def __init__(self, batches: int = 10**9) -> None:
        self.batches, self.now = batches, 0.0
        self.heard: list[tuple[float, str]] = []

    def progress(self, share: float, message: str) -> None:
        self.heard.append((share, message))
        self.now += 1

    def should_stop(self) -> bool:
        return len(self.heard) >= self.batches


@pytest.mark.parametrize("form", FORMS)
def test_the_monitor_hears_of_every_batch(night: Night, form: str) -> None:
    """A batch of 4 has 2 changed triples and 2 others."""
    monitor = Watching()
    words = ["online.max_epochs=2", f"online.epochs_over={form}", "online.batch_size=4", "online.replay=1"]
    update, _ = updater(night, words, monitor=monitor)
    update.run()
    shares = [share for share, _ in monitor.heard]
    changed = night.plan.added.shape[0] + night.plan.deleted.count
    batches = -(-changed // 2) if form == "changed" else -(-night.plan.triples.count // 4)
    assert len(shares) == 2 * batches > 4
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1.0
    assert monitor.heard[0][1].startswith("epoch 1/2, loss ")


def test_it_stops_when_it_is_asked_to(night: Night) -> None:
    monitor = Watching(2)
    update, _ = updater(night, ["online.batch_size=4"], monitor=monitor)
    with pytest.raises(StoppedError, match="the update was stopped; the store is as before"):
        update.run()
    assert len(monitor.heard) == 2


def test_what_is_not_finite_ends_it_with_advice(night: Night) -> None:
    update, tables = updater(night)
    affected = night.plan.entities.affected[:1].astype(ROW)
    tables.entities.write(Field.KNOWLEDGE, affected, np.full((1, DIM), np.nan, np.float32))
    with pytest.raises(DivergedError, match=r"the update diverged: .*\. Try a smaller online\.learning_rate"):
        update.run()


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_without_triples_only_refreshes(night: Night, form: str) -> None:
    """Objects whose last train triple is gone may still be affected."""
    plan = replace(night.plan, triples=Triples.empty(), added=np.empty(0, np.int64), deleted=Triples.empty())
    words = ["online.max_epochs=4", f"online.epochs_over={form}"]
    update, tables = updater(Night(night.diff, night.graph, plan), words)
    before = values_of(tables)
    done = update.run()
    assert (done.epoch, done.history) == (0, [])
    after = values_of(tables)
    affected = night.plan.entities.affected
    assert np.array_equal(before["entities"][Field.KNOWLEDGE][affected], after["entities"][Field.KNOWLEDGE][affected])


def test_a_night_that_only_deletes_is_learnt() -> None:
    before = [(h, r, (h * 3 + r) % 12) for h in range(12) for r in range(3)]
    gone = before[5]
    night = plan_of(before, [triple for triple in before if triple != gone], 12, 3)
    assert (night.plan.added.shape, night.plan.deleted.count) == ((0,), 1)
    # Without surroundings, which at start values pull their objects about.
    update, tables = updater(night, ["online.max_epochs=10", "online.replay=0"])

    def distance() -> float:
        entities, relations = (values_of(tables)[kind][Field.JOINT] for kind in ("entities", "relations"))
        return float(np.abs(entities[gone[0]] + relations[gone[1]] - entities[gone[2]]).sum())

    start = distance()
    assert update.run().epoch == 10
    assert distance() > start


def narrowing(night: Night, epochs: int) -> list[str]:
    """So many epochs, the first two of them over all that changed."""
    return [f"online.max_epochs={epochs}", f"online.narrow_after={2 * updater(night)[0].course.changed.batches}"]


def with_surroundings(update: NightLearning, mrr: Iterable[float]) -> NightLearning:
    """As if its surroundings were measured so before the night and at each look."""
    found = iter(mrr)
    update.course.surroundings = SimpleNamespace(  # type: ignore[assignment]
        rows=np.arange(3, dtype=ROW), triples=SimpleNamespace(count=1), measure=lambda *_: {"mrr": next(found)}
    )
    return update


def test_what_is_left_is_told_by_distances(night: Night) -> None:
    """Added triples that something else is nearer to than an end of theirs, and deleted ones that are believed."""
    update, tables = updater(night, ["online.max_epochs=3"])
    update.run()
    joint = [table.pull({Field.JOINT: np.arange(table.rows, dtype=ROW)})[Field.JOINT] for table in tables]
    train, every = set(to_list(night.graph.train)), night.graph.entities.tolist()
    expected = []
    for number, (h, r, t) in enumerate(to_list(night.plan.changed)):
        own = (
            sequential_l1(joint[0][h] + joint[1][r], joint[0][t]),
            sequential_l1(joint[0][t] - joint[1][r], joint[0][h]),
        )
        tails = [
            sequential_l1(joint[0][h] + joint[1][r], joint[0][e]) for e in every if (h, r, e) not in train and e != t
        ]
        heads = [
            sequential_l1(joint[0][t] - joint[1][r], joint[0][e]) for e in every if (e, r, t) not in train and e != h
        ]
        nearer = [sum(other < mine for other in side) for mine, side in zip(own, (tails, heads), strict=True)]
        as_near = [sum(other == mine for other in side) for mine, side in zip(own, (tails, heads), strict=True)]
        ranks = [1 + less + same / 2 for less, same in zip(nearer, as_near, strict=True)]
        is_added = number < night.plan.added.shape[0]
        expected.append(max(ranks) > 1 if is_added else sum(1 / rank for rank in ranks) / 2 > 0.7)
    assert any(expected) and not all(expected)
    assert update.course.is_left().tolist() == expected


def test_later_epochs_pass_over_what_is_left(night: Night) -> None:
    """Over other batches than before, into the same rows; o* is fresh afterwards."""
    update, tables = updater(night, narrowing(night, 8))
    with_surroundings(update, [0.5, 0.6, 0.5])
    before, done, after = values_of(tables), update.run(), values_of(tables)
    assert [line["epoch"] for line in done.history] == list(range(1, 9))
    assert update.course.order.changed.shape[0] < update.course.changed.changed.shape[0]
    for kind, plan in (("entities", night.plan.entities), ("relations", night.plan.relations)):
        for name, rows in plan.write_set.items():
            changed = (before[kind][name] != after[kind][name]).any(1)
            assert set(np.flatnonzero(changed).tolist()) <= set(rows.tolist())
    whole, _ = updater(night, ["online.max_epochs=8"])
    losses = [line["loss"] for line in whole.run().history]
    assert [line["loss"] for line in done.history[:2]] == losses[:2]
    assert [line["loss"] for line in done.history[2:]] != losses[2:]
    for objects in (update.entities, update.relations):
        objects.materialise()
    assert values_of(tables)["entities"][Field.JOINT].tobytes() == after["entities"][Field.JOINT].tobytes()


@pytest.mark.parametrize(("first", "looks"), [(0, []), (1, [1, 5]), (2, [2, 6]), (3, [3, 7]), (8, []), (9, [])])
def test_what_is_left_is_looked_for_every_four_epochs(night: Night, first: int, looks: list[int]) -> None:
    batches = updater(night)[0].course.changed.batches
    assert batches > 1
    update, _ = updater(night, ["online.max_epochs=8", f"online.narrow_after={first * batches}"])
    with_surroundings(update, [0.5] * 9)
    asked, ranks = [], np.full(night.plan.changed.count, 2.0)
    epoch = update._epoch
    count = iter(range(1, 99))
    update._epoch = lambda *given: (asked.append(next(count)), epoch(*given))[1]  # type: ignore[method-assign]
    seen: list[int] = []
    rank = lambda *_: (seen.append(asked[-1]), Ranks(ranks, ranks))[1]  # noqa: E731
    update.course.check = SimpleNamespace(rows=np.arange(3, dtype=ROW), rank=rank)  # type: ignore[assignment]
    assert update.run().epoch == 8
    assert seen == looks


def test_as_long_as_the_surroundings_are_hurt_epochs_pass_over_all_that_changed(night: Night) -> None:
    update, _ = updater(night, narrowing(night, 14))
    with_surroundings(update, [0.5, 0.49, 0.5, 0.49])
    passed = []
    epoch = update._epoch
    update._epoch = lambda *given: (passed.append(update.course.order.changed.shape[0]), epoch(*given))[1]  # type: ignore[method-assign]
    update.run()
    all_of_it = night.plan.changed.count
    assert passed[:6] == [all_of_it] * 6 and passed[10:] == [all_of_it] * 4
    assert max(passed[6:10]) < all_of_it


def test_a_large_night_replays_less_until_its_surroundings_are_hurt(night: Night) -> None:
    update, _ = updater(night, ["online.max_epochs=9", "online.narrow_after=1", "online.replay=5"])
    assert update.course.changed.batches > 1
    with_surroundings(update, [0.5, 0.5, 0.49])
    replayed = []
    epoch = update._epoch
    update._epoch = lambda *given: (replayed.append(update.course.order.replay), epoch(*given))[1]  # type: ignore[method-assign]
    update.run()
    assert replayed == [3.0] * 5 + [5.0] * 4


def test_deleted_triples_are_unlearnt_beside_what_stayed(night: Night) -> None:
    """As far as they are more likely than that is in the mean. Measuring it writes nothing."""
    update, tables = updater(night)
    with Prefetcher(update.maker, update.entities, update.relations, SEED) as prefetcher:
        update.course._begins()
        before = values_of(tables)
        assert update.course.loss_of_stayed(prefetcher) > 0
    for kind, fields in values_of(tables).items():
        assert all(values.tobytes() == before[kind][name].tobytes() for name, values in fields.items())
    for words, is_needed in ([], True), ([AFFECTED], False):
        learning, _ = updater(night, ["online.max_epochs=1", *words])
        learning.run()
        assert (learning.step.loss.unlearn_offset > 0) == is_needed, "no deleted triple is learnt over affected objects"


def test_the_surroundings_are_measured_before_the_night_and_after_epochs(night: Night) -> None:
    """By o* of before at first, then by o* as learnt."""
    update, tables = updater(night, ["online.max_epochs=4"])
    asked = update.course.surroundings
    before = update.course.mrr_of_surroundings()
    assert asked.triples.count == night.plan.stayed.shape[0]
    assert not np.isin(night.plan.entities.emerging, asked.rows[asked.candidates]).any()
    joint = [table.pull({Field.JOINT: np.arange(table.rows, dtype=ROW)})[Field.JOINT] for table in tables]
    assert before == asked.measure(joint[0][asked.rows], joint[1])["mrr"]
    update.run()
    assert update.course.mrr_of_surroundings() > before


def test_epochs_end_where_everything_is_learnt_or_time_is_over(night: Night) -> None:
    update, _ = updater(night, narrowing(night, 8))
    with_surroundings(update, [0.5] * 9)
    ranks = np.ones(night.plan.changed.count)
    ranks[night.plan.added.shape[0] :] = 9
    update.course.check = SimpleNamespace(rows=np.arange(3, dtype=ROW), rank=lambda *_: Ranks(ranks, ranks))  # type: ignore[assignment]
    assert update.run().epoch == 2
    clock = iter(range(1000))
    update, _ = updater(night, [*narrowing(night, 8), "online.max_seconds=3"], clock=lambda: float(next(clock)))
    assert update.run().epoch < 3
