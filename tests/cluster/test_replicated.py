"""Tables that every worker has a copy of stay equal, and end where those of one worker end."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.types import Field
from tests.cluster.two_workers import SGD, Arrays, alone, learn

pytestmark = pytest.mark.usefixtures("one_thread")


def test_rows_that_only_another_worker_has_move_too(two_workers: list[Arrays]) -> None:
    """And no row that none of them has a gradient of, also not by its optimizer state."""
    moved = np.float32(SGD.rate) * np.array([[0, 0], [-7, -7], [-5, -5], [0, 0], [-2, -2]], np.float32)
    for found in two_workers:
        np.testing.assert_allclose(found[f"replicated {Field.CONTEXT}"], moved, rtol=1e-6)
        assert not found[f"replicated {Field.KNOWLEDGE}"].any()


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_copies_stay_equal_to_the_bit(two_workers: list[Arrays], form: str) -> None:
    one, other = two_workers
    names = [name for name in one if name.startswith(form)]
    assert len(names) > 10
    for name in names:
        assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_two_workers_learn_as_one(two_workers: list[Arrays], form: str) -> None:
    """They add up in another order, so this is equal up to rounding. Padded blocks learn what ragged contexts do."""
    for name, values in learn(alone(), "ragged").items():
        found = two_workers[0][name.replace("ragged", form)]
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5 * np.abs(values).max(), err_msg=name)


def test_no_worker_goes_on_before_a_checkpoint_is_written(two_workers: list[Arrays]) -> None:
    assert [found["checkpoint"].tolist() for found in two_workers] == [[3, 0]] * 2, "rank 0 wrote it, both see it"
