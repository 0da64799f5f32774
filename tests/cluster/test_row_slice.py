"""Rows of a request by shard: every one of them is asked of the shard that holds it, and put where it was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.cluster.row_slice import PendingPull, RowSlice
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import TRAINED, Field
from tests.cluster.twins import rows_of_shard
from tests.tables.rows import BLOCK, DIM, ROWS, START, random_batch, rows_of

SHARDS = [1, 2, 3, 25]


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("partly", [False, True])
def test_rows_go_to_their_shard_and_come_back_in_order(shards: int, partly: bool) -> None:
    rng = np.random.default_rng(shards)
    plan, whole = ShardPlan(ROWS, BLOCK, shards), START.whole()
    for _ in range(10):
        wanted = random_batch(rng)
        positions = {f: np.flatnonzero(rng.random(r.shape[0]) < 0.5) for f, r in wanted.items()} if partly else None
        asked = RowSlice(plan, wanted, positions)
        out = {field: np.full((rows.shape[0], DIM), np.nan, np.float32) for field, rows in wanted.items()}
        for shard in asked.shards():
            held = plan.held(shard)
            answer = {field: whole[field][held[local]] for field, local in asked.local(shard).items()}
            asked.spread(answer, shard, out)
        for field, rows in wanted.items():
            mine = np.arange(rows.shape[0]) if positions is None else positions[field]
            others = np.setdiff1d(np.arange(rows.shape[0]), mine)
            assert np.array_equal(out[field][mine], whole[field][rows[mine]])
            assert np.isnan(out[field][others]).all(), "rows that are not in the slice are left alone"


@pytest.mark.parametrize("shards", SHARDS)
def test_only_shards_that_hold_rows_are_asked(shards: int) -> None:
    plan = ShardPlan(ROWS, BLOCK, shards)
    rng = np.random.default_rng(0)
    for _ in range(10):
        wanted = random_batch(rng)
        asked = RowSlice(plan, wanted)
        expected = [s for s in range(shards) if any(rows_of_shard(plan, s, rows)[0].size for rows in wanted.values())]
        assert asked.shards() == expected
        for shard in expected:
            for field, rows in wanted.items():
                positions, local = rows_of_shard(plan, shard, rows)
                assert asked.order(shard, field).tolist() == positions.tolist()
                assert asked.local(shard)[field].tolist() == local.tolist()


def test_slice_of_nothing_asks_no_shard() -> None:
    plan = ShardPlan(ROWS, BLOCK, 3)
    nothing = RowSlice(plan, {field: rows_of() for field in TRAINED})
    assert nothing.shards() == []
    out = {Field.CONTEXT: np.ones((2, DIM), np.float32)}
    RowSlice(plan, {Field.CONTEXT: rows_of(1, 2)}, {Field.CONTEXT: rows_of()}).spread({}, 0, out)
    assert (out[Field.CONTEXT] == 1).all()


class Answered:
    """A call whose answer is there."""

    def result(self) -> None:
        return None


def test_pending_pull_knows_all_calls_under_way() -> None:
    """They are waited for when the pull is given up: none may come in between later ones."""
    plan = ShardPlan(ROWS, BLOCK, 3)
    wanted = {Field.CONTEXT: rows_of(0, 8, 16)}
    pending = PendingPull(4, wanted, RowSlice(plan, wanted), None)
    assert pending.calls() == []
    early, late, pushed = Answered(), Answered(), Answered()
    pending.early_calls[2], pending.late_calls[0], pending.pushed[1] = early, late, pushed
    assert pending.calls() == [early, late, pushed]
    assert (pending.ticket, pending.wanted) == (4, wanted)
