"""Row-sparse optimizer steps against the reference, and nothing but their rows is touched."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.optimizers import adagrad_rows, sgd_rows
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.types import ROW, Field
from tests import reference

steps = st.lists(st.sets(st.integers(0, 11), min_size=1, max_size=12).map(sorted), min_size=1, max_size=4)


@given(steps, st.integers(1, 20), st.sampled_from([0.0, 3.0]), st.integers(0, 2**32 - 1))
def test_adagrad_equals_the_reference_step_after_step(
    batches: list[list[int]], dim: int, damping: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table, state = rng.normal(size=(12, dim)).astype(np.float32), np.zeros(12, np.float32)
    expected, sums = table.astype(np.float64), [0.0] * 12
    for rows in batches:
        gradients = rng.normal(size=(len(rows), dim)).astype(np.float32)
        adagrad_rows(
            table,
            state,
            as_readonly(np.array(rows), ROW),
            as_readonly(gradients),
            np.float32(0.1),
            np.float32(damping),
            np.float32(0),
        )
        for row, gradient in zip(rows, gradients, strict=True):
            expected[row], sums[row] = reference.adagrad(expected[row], sums[row], gradient, 0.1, damping)
    np.testing.assert_allclose(table, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, sums, rtol=1e-4)


@given(st.sets(st.integers(0, 11), max_size=12).map(sorted), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_sgd_moves_its_rows_against_the_gradient(rows: list[int], dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(12, dim)).astype(np.float32)
    gradients = rng.normal(size=(len(rows), dim)).astype(np.float32)
    expected = table.copy()
    for row, gradient in zip(rows, gradients, strict=True):
        expected[row] = expected[row] - np.float32(0.5) * gradient
    sgd_rows(table, as_readonly(np.array(rows), ROW), as_readonly(gradients), np.float32(0.5))
    np.testing.assert_allclose(table, expected, rtol=1e-6, atol=1e-7)


def test_optimizers_of_a_shard_touch_only_their_rows() -> None:
    rng = np.random.default_rng(0)
    values = {field: rng.normal(size=(9, 5)).astype(np.float32) for field in Field}
    before = {field: table.copy() for field, table in values.items()}
    shard = Shard(values)
    rows, gradients = np.array([7, 2], ROW), rng.normal(size=(2, 5)).astype(np.float32)
    state = np.zeros(2, np.float32)
    expected = before[Field.CONTEXT][rows]
    for _ in range(3):
        shard.step(Field.CONTEXT, rows, gradients, Optimizer("adagrad", 0.1))
        state += (gradients**2).mean(1)
        expected = expected - 0.1 * gradients / np.sqrt(state)[:, None]
    np.testing.assert_allclose(shard.values[Field.CONTEXT][rows], expected, rtol=1e-5)
    shard.step(Field.KNOWLEDGE, rows, gradients, Optimizer("sgd", 0.5))
    np.testing.assert_allclose(
        shard.values[Field.KNOWLEDGE][rows], before[Field.KNOWLEDGE][rows] - 0.5 * gradients, rtol=1e-6
    )
    others = np.setdiff1d(np.arange(9), rows)
    for field in Field:
        assert np.array_equal(shard.values[field][others], before[field][others])
