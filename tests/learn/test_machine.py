"""What a worker uses of its machine; and that on a CPU the number of threads does not change a bit."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.jit import set_threads, threads
from dkge_dist.learn.machine import use_machine
from dkge_dist.learn.order import ShuffledOrder
from dkge_dist.learn.prefetch import Prefetcher
from dkge_dist.learn.step import Loss
from dkge_dist.model.dkge import Dkge
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import TRAINED, Array, UsageError
from tests.learn.graphs import LOSSES, Sampler, maker_of, negatives_of, step_of, tables_of, values_of
from tests.training_graphs import graph_of_rows


@pytest.fixture(autouse=True)
def _machine_as_before() -> Iterator[None]:
    before = (threads(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())
    yield
    set_threads(before[0])
    torch.set_num_threads(before[1])
    torch.use_deterministic_algorithms(before[2])


def test_threads_are_those_of_kernels_and_of_torch() -> None:
    assert use_machine(1, "cpu") == torch.device("cpu")
    assert (threads(), torch.get_num_threads()) == (1, 1)


def test_no_number_of_threads_leaves_them_as_they_are() -> None:
    before = (threads(), torch.get_num_threads())
    use_machine(0, "cpu")
    assert (threads(), torch.get_num_threads()) == before


def test_auto_is_a_gpu_where_there_is_one() -> None:
    assert use_machine(0, "auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_gpu_that_is_not_there_is_refused() -> None:
    count = torch.cuda.device_count()
    with pytest.raises(UsageError, match=f"device=cuda:{count}: this machine has {count} GPUs"):
        use_machine(0, f"cuda:{count}")


def test_a_cpu_sums_in_a_fixed_order() -> None:
    torch.use_deterministic_algorithms(False)
    use_machine(0, "cpu")
    assert torch.are_deterministic_algorithms_enabled()


def learnt(sampler: Sampler, loss: Loss, workers: int) -> list[Array]:
    """All that some steps move, on so many threads; batches so large that torch shares them between its threads."""
    use_machine(workers, "cpu")
    rng = np.random.default_rng(0)
    triples = [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [400, 5, 400], (4000, 3))]
    graph = graph_of_rows(triples, 400, 5, Sampling(2, 12, 1))
    model, tables = Dkge(32, 1, 1, seed=4), tables_of(graph, 32)
    step = step_of(model, tables, loss, torch.optim.Adagrad(model.parameters(), lr=0.01))
    maker = maker_of(graph, negatives_of(graph, sampler, count=128), hide_targets=True)
    losses = []
    order = ShuffledOrder(graph.train.count, 2000)
    with Prefetcher(maker, step.entities, step.relations, 1) as prefetcher:
        for epoch in range(2):
            losses += [step.learn(prepared, Optimizer("adagrad", 0.05)) for prepared in prefetcher.epoch(order, epoch)]
    rows = [values for field in TRAINED for values in values_of(tables, field)]
    return [np.array(losses), *rows, *(parameter.detach().numpy() for parameter in model.parameters())]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="this machine has one core")
@pytest.mark.parametrize(("sampler", "loss"), LOSSES)
def test_any_number_of_threads_learns_the_same_bits(sampler: Sampler, loss: Loss) -> None:
    expected = learnt(sampler, loss, 1)
    for _ in range(2):
        found = learnt(sampler, loss, 2)
        assert [values.tobytes() for values in found] == [values.tobytes() for values in expected]
