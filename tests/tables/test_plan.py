"""Every row is in exactly one shard, at a place of its own; the plan agrees with itself, for any number of shards."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import ROW

plans = st.builds(
    ShardPlan, st.integers(0, 400), st.integers(0, 6).map(lambda power: 2**power), st.integers(1, 20)
)  # fmt: skip


def held_slowly(plan: ShardPlan) -> list[list[int]]:
    """Block after block to one shard after the other, like cards."""
    hands: list[list[int]] = [[] for _ in range(plan.shards)]
    for block, first in enumerate(range(0, plan.rows, plan.block_rows)):
        hands[block % plan.shards] += range(first, min(first + plan.block_rows, plan.rows))
    return hands


@given(plans)
def test_rows_are_dealt_block_by_block(plan: ShardPlan) -> None:
    hands = held_slowly(plan)
    assert [plan.held(shard).tolist() for shard in range(plan.shards)] == hands
    assert [plan.size(shard) for shard in range(plan.shards)] == [len(hand) for hand in hands]
    assert sorted(row for hand in hands for row in hand) == list(range(plan.rows))
    for shard, hand in enumerate(hands):
        assert plan.blocks(shard).tolist() == sorted({row // plan.block_rows for row in hand})
        assert sum(plan.block_size(int(block)) for block in plan.blocks(shard)) == len(hand)
        assert plan.held(shard).dtype == ROW


@given(plans)
def test_places_are_dense_and_rise_with_rows(plan: ShardPlan) -> None:
    dealt = plan.partition(np.arange(plan.rows, dtype=ROW))
    for shard in range(plan.shards):
        mine = dealt.of(shard)
        assert dealt.places[mine].tolist() == list(range(plan.size(shard)))
        assert dealt.order[mine].tolist() == plan.held(shard).tolist()


@given(plans.filter(lambda plan: plan.rows > 0), st.data())
def test_a_row_is_found_where_it_is_held(plan: ShardPlan, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, plan.rows - 1), max_size=50))
    dealt = plan.partition(np.array(rows, ROW))
    seen = {}
    for shard in range(plan.shards):
        mine = dealt.of(shard)
        held = plan.held(shard)
        for number, place in zip(dealt.order[mine].tolist(), dealt.places[mine].tolist(), strict=True):
            assert number not in seen
            seen[number] = int(held[place])
    assert [seen[number] for number in range(len(rows))] == rows
    assert dealt.shards() == sorted({row // plan.block_rows % plan.shards for row in rows})


@given(plans, st.integers(0, 200))
def test_new_rows_never_move_old_ones(plan: ShardPlan, more: int) -> None:
    grown = plan._replace(rows=plan.rows + more)
    for shard in range(plan.shards):
        before = plan.held(shard)
        assert np.array_equal(grown.held(shard)[: before.shape[0]], before)
