"""Start values: any run of rows is the same whether it is made alone or with all the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.surfaces import api
from dkge_dist.tables import initializer as memory
from dkge_dist.tables.initializer import RowInitializer, available_memory, initial_rows, refuse_too_large
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import TRAINED, Array, DkgeError, Field
from tests.graphs import movies, write_tsv

initializers = st.builds(
    RowInitializer,
    st.tuples(st.integers(0, 2**63), st.integers(0, 1)),
    st.integers(1, 70),
    st.integers(1, 9),
    st.sampled_from([1.0, 0.3]),
)


def drawn_at_once(start: RowInitializer) -> dict[Field, Array]:
    """One generator, all rows of one field after the other."""
    rng = np.random.default_rng(list(start.seed))
    return {field: initial_rows(start.rows, start.dim, rng, start.scale) for field in TRAINED}


@given(initializers, st.data())
def test_a_block_equals_its_rows_of_the_whole_table(start: RowInitializer, data: st.DataObject) -> None:
    whole = drawn_at_once(start)
    first = data.draw(st.integers(0, start.rows))
    count = data.draw(st.integers(0, start.rows - first))
    for field in TRAINED:
        assert np.array_equal(start.block(field, first, count), whole[field][first : first + count])


@given(initializers)
def test_the_whole_table_has_zeros_for_joint_vectors(start: RowInitializer) -> None:
    expected = {**drawn_at_once(start), Field.JOINT: np.zeros((start.rows, start.dim), np.float32)}
    found = start.whole()
    assert found.keys() == set(Field)
    for field, values in found.items():
        assert values.dtype == np.float32
        assert np.array_equal(values, expected[field])


@given(initializers, st.integers(0, 4).map(lambda power: 2**power), st.integers(1, 5))
def test_shards_initialize_their_rows_of_the_whole_table(start: RowInitializer, block: int, shards: int) -> None:
    plan = ShardPlan(start.rows, block, shards)
    for field, whole in drawn_at_once(start).items():
        for shard in range(shards):
            blocks = [start.block(field, span.first, span.size) for span in plan.spans(shard)]
            made = np.concatenate([*blocks, np.empty((0, start.dim), np.float32)])
            assert np.array_equal(made, whole[plan.held(shard)])


def test_values_lie_within_their_bounds_and_differ_by_seed_and_field() -> None:
    start = RowInitializer((7, 0), 500, 16, 1.0)
    values = [start.block(field, 0, 500) for field in TRAINED]
    for some in values:
        assert some.dtype == np.float32
        assert np.abs(some).max() <= 6 / 4
        assert np.abs(some).max() > 0.99 * 6 / 4
        assert abs(float(some.mean())) < 0.05
    assert not (values[0] == values[1]).any(1).any()
    assert not (values[0] == start._replace(seed=(7, 1)).block(Field.KNOWLEDGE, 0, 500)).any(1).any()


def test_the_scale_is_a_factor() -> None:
    one, tenth = (RowInitializer((7, 0), 50, 16, scale).block(Field.CONTEXT, 0, 50) for scale in (1.0, 0.1))
    np.testing.assert_allclose(tenth, 0.1 * one, rtol=1e-6)


def test_what_fits_is_decided_by_vectors_and_state() -> None:
    table = RowInitializer((1,), 1000, 10, 1.0)
    needed = 1000 * 4 * (3 * 10 + 2)
    refuse_too_large([table], needed)
    with pytest.raises(DkgeError, match=r"1,000 vectors of dimension 10 do not fit: .* take a smaller model\.dim"):
        refuse_too_large([table], needed - 1)


def test_it_says_how_much_is_needed_and_how_much_there_is() -> None:
    with pytest.raises(DkgeError, match=r"tables need 159\.5 GB, this machine has 16\.0 GB to give"):
        refuse_too_large([RowInitializer((1,), 3_244_455, 4096, 1.0)], 16 * 10**9)


def test_a_container_may_give_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = available_memory()
    assert whole > 1 << 20
    for told, expected in (("1048576\n", 1 << 20), ("max\n", None)):
        (tmp_path / "limit").write_text(told)
        monkeypatch.setattr(memory, "CGROUP", tmp_path / "limit")
        assert expected is None or available_memory() == expected


def test_a_training_that_cannot_fit_allocates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(200)), valid=4, test=4)
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 20)
    with pytest.raises(DkgeError, match="vectors of dimension 4096 do not fit"):
        api.train(tmp_path / "store", settings=["model.dim=4096", "train.max_epochs=1"])
