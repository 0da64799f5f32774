"""Every row is in exactly one shard, at a local row of its own; the plan agrees with itself, whatever the shards."""

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
    """Block after block to one shard after the other, round robin."""
    held: list[list[int]] = [[] for _ in range(plan.shards)]
    for block, first in enumerate(range(0, plan.rows, plan.block_rows)):
        held[block % plan.shards] += range(first, min(first + plan.block_rows, plan.rows))
    return held


@given(plans)
def test_blocks_go_to_the_shards_round_robin(plan: ShardPlan) -> None:
    expected = held_slowly(plan)
    assert [plan.held(shard).tolist() for shard in range(plan.shards)] == expected
    assert [plan.size(shard) for shard in range(plan.shards)] == [len(rows) for rows in expected]
    assert sorted(row for rows in expected for row in rows) == list(range(plan.rows))
    for shard, rows in enumerate(expected):
        assert plan.blocks(shard).tolist() == sorted({row // plan.block_rows for row in rows})
        assert sum(plan.block_size(int(block)) for block in plan.blocks(shard)) == len(rows)
        assert plan.held(shard).dtype == ROW


@given(plans)
def test_spans_are_the_blocks_of_a_shard_one_after_the_other(plan: ShardPlan) -> None:
    for shard, rows in enumerate(held_slowly(plan)):
        found = [(local + n, first + n) for local, first, size in plan.spans(shard) for n in range(size)]
        assert found == list(enumerate(rows))


@given(plans)
def test_local_rows_are_dense_and_rise_with_rows(plan: ShardPlan) -> None:
    partitioned = plan.partition(np.arange(plan.rows, dtype=ROW))
    for shard in range(plan.shards):
        mine = partitioned.of(shard)
        assert partitioned.local[mine].tolist() == list(range(plan.size(shard)))
        assert partitioned.order[mine].tolist() == plan.held(shard).tolist()


@given(plans.filter(lambda plan: plan.rows > 0), st.data())
def test_a_row_is_found_where_it_is_held(plan: ShardPlan, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, plan.rows - 1), max_size=50))
    partitioned = plan.partition(np.array(rows, ROW))
    seen = {}
    for shard in range(plan.shards):
        mine = partitioned.of(shard)
        held = plan.held(shard)
        for number, local in zip(partitioned.order[mine].tolist(), partitioned.local[mine].tolist(), strict=True):
            assert number not in seen
            seen[number] = int(held[local])
    assert [seen[number] for number in range(len(rows))] == rows
    assert partitioned.shards() == sorted({row // plan.block_rows % plan.shards for row in rows})


@given(plans, st.integers(0, 200))
def test_new_rows_never_move_old_ones(plan: ShardPlan, more: int) -> None:
    grown = plan._replace(rows=plan.rows + more)
    for shard in range(plan.shards):
        before = plan.held(shard)
        assert np.array_equal(grown.held(shard)[: before.shape[0]], before)
