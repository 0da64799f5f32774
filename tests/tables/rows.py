"""Random rows, gradients and vectors of one small table, for the tests of tables; and `Shard` to compare with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.types import ROW, TRAINED, Array, Field

ROWS, DIM, BLOCK = 150, 5, 8
"""An odd dimension, and a last block that is not full."""
START = RowInitializer((3, 0), ROWS, DIM, 1.0)
ADAGRAD, SGD = Optimizer("adagrad", 0.1), Optimizer("sgd", 0.03)
EVERY_ROW = np.arange(ROWS, dtype=ROW)
EVERYTHING = {field: EVERY_ROW for field in Field}

Rows = dict[Field, Array]
Pushed = dict[Field, tuple[Array, Array]]


def rows_of(*rows: int) -> Array:
    return np.array(rows, ROW)


def random_rows(rng: np.random.Generator, most: int = 40) -> Array:
    """Distinct rows in any order, perhaps none, sometimes all in one block."""
    if rng.random() < 0.2:
        block = int(rng.integers(0, ROWS // BLOCK)) * BLOCK
        return (block + rng.permutation(BLOCK)[: rng.integers(0, BLOCK + 1)]).astype(ROW)
    return rng.permutation(ROWS)[: rng.integers(0, most + 1)].astype(ROW)


def random_batch(rng: np.random.Generator) -> Rows:
    return {field: random_rows(rng) for field in TRAINED}


def random_gradients(rng: np.random.Generator, wanted: Rows) -> Pushed:
    return {f: (r, rng.standard_normal((r.shape[0], DIM)).astype(np.float32)) for f, r in wanted.items()}


def random_vectors(rng: np.random.Generator, count: int) -> Array:
    return rng.standard_normal((count, DIM)).astype(np.float32)


def whole_numbers(rng: np.random.Generator, count: int) -> Array:
    """Vectors whose distances are exact, with many ties."""
    return rng.integers(-2, 3, (count, DIM)).astype(np.float32)


def assert_same_rows(one: Mapping[Field, Array], other: Mapping[Field, Array]) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    for field, values in one.items():
        assert values.dtype == np.float32
        assert values.tobytes() == other[field].tobytes(), field


def gathered(shard: Shard, wanted: Rows) -> Rows:
    return {field: shard.gather(field, rows) for field, rows in wanted.items()}


def pushed(shard: Shard, gradients: Pushed, optimizer: Optimizer) -> None:
    for field, (rows, values) in gradients.items():
        shard.step(field, rows, values, optimizer)


def overlapping_batches(rng: np.random.Generator, count: int) -> list[Rows]:
    """Half of them have rows of the one before; some are the very same rows again."""
    made = [random_batch(rng)]
    for _ in range(count):
        batch = random_batch(rng)
        for field in TRAINED:
            if rng.random() < 0.5:
                both = np.unique(np.concatenate([batch[field], made[-1][field][::2]]))
                batch[field] = rng.permutation(both).astype(ROW)
            elif rng.random() < 0.2:
                batch[field] = made[-1][field].copy()
        made.append(batch)
    return made


def some_gradients(rng: np.random.Generator, batch: Rows) -> Pushed:
    """For all that was pulled, for some of it, for one field, or for nothing."""
    draw = rng.random()
    if draw < 0.7:
        return random_gradients(rng, batch)
    fields = TRAINED if draw < 0.8 else TRAINED[:1] if draw < 0.95 else ()
    return random_gradients(rng, {field: batch[field][rng.random(batch[field].shape[0]) < 0.5] for field in fields})
