"""Workers in real processes: they add up, hear the same, and have one clock."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.cluster.two_workers import Arrays, alone

pytestmark = pytest.mark.usefixtures("one_thread")


def test_all_reduce_sums_every_tensor(two_workers: list[Arrays]) -> None:
    for found in two_workers:
        assert found["first"].tolist() == [[3, 3, 3], [3, 3, 3]]
        assert found["second"].tolist() == [30] * 4


def test_clock_is_shared_and_moves_with_every_step(two_workers: list[Arrays]) -> None:
    one, other = two_workers
    assert one["clocks"].tobytes() == other["clocks"].tobytes()
    assert (np.diff(one["clocks"]) > 0).all()


def test_broadcast_gives_what_rank_0_computes(two_workers: list[Arrays]) -> None:
    assert [int(found["told"]) for found in two_workers] == [0, 0]


def test_all_workers_stop_at_the_same_step(two_workers: list[Arrays]) -> None:
    assert [found["stops"].tolist() for found in two_workers] == [[False, True]] * 2


def test_one_worker_needs_no_others() -> None:
    communicator = alone()
    tensor = torch.ones(3)
    before = communicator.clock()
    communicator.all_reduce([tensor])
    communicator.barrier()
    assert tensor.tolist() == [1, 1, 1]
    assert communicator.clock() > before
    assert communicator.broadcast(lambda: 7) == 7
    assert not communicator.should_stop()
    assert (communicator.rank, communicator.world, communicator.device) == (0, 1, "cpu")
