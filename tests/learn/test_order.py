"""Batches of an update: all that changed once an epoch, and beside it some of what surrounds it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.learn.order import ReplayOrder
from tests.learn.nights import small_night


@given(
    changed=st.integers(0, 40),
    others=st.integers(0, 40),
    batch_size=st.integers(1, 30),
    anywhere=st.integers(0, 40),
    replay=st.sampled_from([0.0, 0.4, 1.0, 3.0, 1000.0]),
    far=st.sampled_from([0.0, 0.6, 2.0]),
    seed=st.integers(0, 99),
)
def test_an_epoch_holds_all_that_changed_once_and_so_many_others(
    changed: int, others: int, batch_size: int, anywhere: int, replay: float, far: float, seed: int
) -> None:
    around = np.arange(50, 50 + anywhere)
    order = ReplayOrder(
        np.arange(100, 100 + changed), np.arange(others), batch_size, replay, whole_graph=around, global_replay=far
    )
    batches = order.epoch(np.random.default_rng(seed))
    assert len(batches) == order.batches
    every = np.concatenate([np.empty(0, int), *batches])
    assert sorted(every[every >= 100].tolist()) == list(range(100, 100 + changed))
    for batch in batches:
        some = int((batch >= 100).sum())
        beside = batch[batch < 100].tolist()
        assert some >= 1
        assert sum(position < 50 for position in beside) == min(round(replay * some), others)
        assert sum(position >= 50 for position in beside) == min(round(far * some), anywhere)
        assert len(set(beside)) == len(beside)
        if replay + far <= batch_size - 1:
            assert batch.shape[0] <= batch_size + 2, "at most one of each rounding"
    for batch in batches[:-1]:
        assert (batch >= 100).sum() == (batches[0] >= 100).sum(), "all but the last are full"


def test_others_are_drawn_anew_and_the_generator_decides() -> None:
    order = ReplayOrder(np.arange(1000, 1010), np.arange(500), 10, 1.0)
    one, two, again = (order.epoch(np.random.default_rng(seed)) for seed in (1, 2, 1))
    assert [batch.tolist() for batch in one] == [batch.tolist() for batch in again]
    assert [batch.tolist() for batch in one] != [batch.tolist() for batch in two]
    beside = [set(batch[batch < 1000].tolist()) for batch in (*one, *two)]
    assert len(set.union(*beside)) > len(beside[0])


def test_positions_are_those_of_a_batch_maker() -> None:
    """Added triples where they stand in the plan, those of the whole graph behind them, and then the deleted ones."""
    plan = small_night().plan
    order = ReplayOrder.of(plan, 20, 1.0, 2.0)
    count, behind = plan.triples.count, plan.triples.count + plan.global_replay.count
    assert order.changed.tolist() == [*plan.added.tolist(), *range(behind, behind + plan.deleted.count)]
    assert sorted([*order.others.tolist(), *plan.added.tolist()]) == list(range(count))
    assert order.whole_graph.tolist() == list(range(count, behind))


def test_narrowed_passes_over_what_is_left_with_some_of_the_learnt_and_of_the_surroundings() -> None:
    order = ReplayOrder(np.array([3, 8, 9, 20, 21]), np.array([0, 1, 2, 4, 5, 6, 7]), 8, 3.0, 1.5, added=3)
    narrowed = order.narrowed(np.array([False, True, False, False, True]))
    assert (narrowed.changed.tolist(), narrowed.learnt.tolist()) == ([8, 21], [3, 9])
    assert narrowed.batches == 1
    for seed in range(20):
        (batch,) = narrowed.epoch(np.random.default_rng(seed))
        assert set(batch[:2].tolist()) == {8, 21}
        assert len(set(batch.tolist())) == 8
        assert sum(position in (3, 9) for position in batch) == 2
        assert 20 not in batch, "a deleted triple that is not believed any more is left alone"
    assert not order.narrowed(np.zeros(5, np.bool_)).batches


def test_a_replay_ratio_replays_less_of_what_stayed_and_as_much_of_the_learnt() -> None:
    order = ReplayOrder(np.arange(100, 110), np.arange(50), 12, 5.0, 2.0, added=8).with_replay_ratio(0.6)
    assert order.batches == 4, "1 + 3 to each changed one in a batch of 12: three"
    for batch in order.epoch(np.random.default_rng(1)):
        some = int((batch >= 100).sum())
        assert (batch < 100).sum() == 3 * some
    narrowed = order.narrowed(np.arange(10) < 2)
    (batch,) = narrowed.epoch(np.random.default_rng(1))
    assert sorted(batch[:2].tolist()) == [100, 101]
    assert ((batch >= 102).sum(), (batch < 100).sum()) == (4, 2)
