"""Start values: any run of rows is the same whether it is made alone or with all the others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, RowInitializer, initial_rows
from dkge_dist.types import Field

starts = st.builds(
    RowInitializer,
    st.tuples(st.integers(0, 2**63), st.integers(0, 1)),
    st.integers(1, 70),
    st.integers(1, 9),
    st.sampled_from([1.0, 0.3]),
)


def drawn_at_once(start: RowInitializer) -> dict[Field, np.ndarray]:
    """One generator, all rows of one field after the other: as they were drawn before there were shards."""
    rng = np.random.default_rng(list(start.seed))
    return {field: initial_rows(start.rows, start.dim, rng, start.scale) for field in TRAINED}


@given(starts, st.data())
def test_a_run_of_rows_equals_those_of_the_whole_table(start: RowInitializer, data: st.DataObject) -> None:
    whole = drawn_at_once(start)
    first = data.draw(st.integers(0, start.rows))
    count = data.draw(st.integers(0, start.rows - first))
    for field in TRAINED:
        assert np.array_equal(start.run(field, first, count), whole[field][first : first + count])


@given(starts, st.integers(0, 4).map(lambda power: 2**power), st.integers(1, 5))
def test_shards_fill_themselves_with_the_whole_table(start: RowInitializer, block: int, shards: int) -> None:
    plan = ShardPlan(start.rows, block, shards)
    for field, whole in drawn_at_once(start).items():
        for shard in range(shards):
            runs = [start.run(field, int(b) * block, plan.block_size(int(b))) for b in plan.blocks(shard)]
            made = np.concatenate([*runs, np.empty((0, start.dim), np.float32)])
            assert np.array_equal(made, whole[plan.held(shard)])


def test_values_lie_within_their_bounds_and_differ_by_seed_and_field() -> None:
    start = RowInitializer((7, 0), 500, 16, 1.0)
    values = [start.run(field, 0, 500) for field in TRAINED]
    for some in values:
        assert some.dtype == np.float32
        assert np.abs(some).max() <= 6 / 4
        assert np.abs(some).max() > 0.99 * 6 / 4
        assert abs(float(some.mean())) < 0.05
    assert not (values[0] == values[1]).any(1).any()
    assert not (values[0] == start._replace(seed=(7, 1)).run(Field.KNOWLEDGE, 0, 500)).any(1).any()
