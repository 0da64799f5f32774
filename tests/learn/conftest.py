"""Settings of the tests that train: batches are so small here that threads would only wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dkge_dist.kernels.jit import set_threads, threads


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = (threads(), torch.get_num_threads())
    set_threads(1)
    torch.set_num_threads(1)
    yield
    set_threads(before[0])
    torch.set_num_threads(before[1])
