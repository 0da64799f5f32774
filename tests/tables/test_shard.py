"""A shard: rows of the three fields and optimizer state; a step reads and writes the rows that it is given."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.tables.shard import EPSILON, Optimizer, Shard
from dkge_dist.types import ROW, TRAINED, Field
from tests.tables.rows import ADAGRAD, DIM, ROWS, SGD, START, random_gradients, random_vectors, rows_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def shard() -> Shard:
    return Shard(START.whole())


def test_only_trained_fields_have_a_state(shard: Shard) -> None:
    assert shard.state.keys() == set(TRAINED)
    assert all(state.shape == (ROWS,) and not state.any() for state in shard.state.values())
    assert Shard({Field.JOINT: np.zeros((3, DIM), np.float32)}).state == {}


def test_gathered_rows_are_copies_in_the_order_asked_for(shard: Shard) -> None:
    rows = rows_of(9, 2, 100)
    found = shard.gather(Field.CONTEXT, rows)
    assert np.array_equal(found, START.whole()[Field.CONTEXT][rows])
    found[:] = 7
    out = np.empty((3, DIM), np.float32)
    shard.gather_into(Field.CONTEXT, rows, out)
    assert np.array_equal(out, START.whole()[Field.CONTEXT][rows])


@pytest.mark.parametrize("optimizer", [ADAGRAD, SGD], ids=lambda optimizer: optimizer.kind)
def test_a_step_moves_the_rows_it_is_given_and_no_others(shard: Shard, optimizer: Optimizer) -> None:
    rows = rows_of(9, 2, 149)
    (_, gradients) = random_gradients(np.random.default_rng(0), {Field.KNOWLEDGE: rows})[Field.KNOWLEDGE]
    shard.step(Field.KNOWLEDGE, rows, gradients, optimizer)
    before = START.whole()
    others = np.setdiff1d(np.arange(ROWS), rows)
    assert np.array_equal(shard.values[Field.KNOWLEDGE][others], before[Field.KNOWLEDGE][others])
    for field in (Field.CONTEXT, Field.JOINT):
        assert np.array_equal(shard.values[field], before[field])
    squares = (gradients.astype(np.float64) ** 2).mean(1)
    factor = optimizer.rate / (np.sqrt(squares) + EPSILON) if optimizer.kind == "adagrad" else np.full(3, SGD.rate)
    expected = before[Field.KNOWLEDGE][rows] - factor[:, None] * gradients
    np.testing.assert_allclose(shard.values[Field.KNOWLEDGE][rows], expected, rtol=1e-5, atol=1e-6)
    state = np.zeros(ROWS)
    if optimizer.kind == "adagrad":
        state[rows] = squares
    np.testing.assert_allclose(shard.state[Field.KNOWLEDGE], state, rtol=1e-5)
    assert not shard.state[Field.CONTEXT].any()


def test_a_write_keeps_the_optimizer_state_and_a_reset_forgets_it(shard: Shard) -> None:
    rows = rows_of(9, 2, 149)
    rng = np.random.default_rng(0)
    shard.step(Field.CONTEXT, rows, random_vectors(rng, 3), ADAGRAD)
    state = shard.state[Field.CONTEXT].copy()
    values = random_vectors(rng, 3)
    shard.write(Field.CONTEXT, rows, values)
    assert np.array_equal(shard.values[Field.CONTEXT][rows], values)
    assert np.array_equal(shard.state[Field.CONTEXT], state)
    shard.write(Field.CONTEXT, rows[:2], -values[:2], is_reset=True)
    assert np.array_equal(shard.values[Field.CONTEXT][rows], [*-values[:2], values[2]])
    assert shard.state[Field.CONTEXT][rows].tolist() == [0, 0, state[149]]


def test_no_rows(shard: Shard) -> None:
    no_rows = np.empty(0, ROW)
    shard.step(Field.KNOWLEDGE, no_rows, np.empty((0, DIM), np.float32), ADAGRAD)
    assert shard.gather(Field.KNOWLEDGE, no_rows).shape == (0, DIM)
    assert all(np.array_equal(shard.values[field], START.whole()[field]) for field in Field)
