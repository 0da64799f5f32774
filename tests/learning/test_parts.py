"""Batches in parts: what several workers make of a batch adds up to what one makes of it, gradients included."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.learning.batches import Batch, BatchMaker
from dkge_dist.learning.contexts import EntityContexts, RelationContexts
from dkge_dist.learning.step import Loss, train_step
from dkge_dist.model.dkge import Dkge
from dkge_dist.tables.shard import TRAINED, Optimizer, Shard, initial_rows
from dkge_dist.tables.table import Gradients, LocalTable
from dkge_dist.types import Field, Triples
from tests.strategies import digests, to_triples

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS, RELATIONS, DIM = 40, 4, 12
SAMPLING = Sampling(5, 6, 1)
LOSSES = {"shared": [Loss("softmax", 0.0), Loss("self_adversarial", 3.0)], "bernoulli": [Loss("margin", 10.0)]}
CASES = [(sampler, loss, hide) for sampler, losses in LOSSES.items() for loss in losses for hide in (False, True)]
WORLDS = [1, 2, 3, 4]
SGD = Optimizer("sgd", 0.1)


def graph() -> Triples:
    columns = np.random.default_rng(0).integers(0, [[ROWS], [RELATIONS], [ROWS]], (3, 160))
    return canonical(to_triples([(int(h), int(r), int(t)) for h, r, t in columns.T]))


def maker(sampler: str, hide: bool, part: tuple[int, int]) -> BatchMaker:
    train = graph()
    topology = Topology.of(train, ROWS)
    return BatchMaker(
        train,
        EntityContexts(topology, digests(ROWS), SAMPLING),
        RelationContexts(PathCounts.of(topology, train, RELATIONS), digests(RELATIONS, 1), SAMPLING),
        np.arange(ROWS, dtype=np.int32),
        bernoulli_head_chance(*train, RELATIONS),
        sampler,  # type: ignore[arg-type]
        16,
        hide,
        logq_correction=True,
        part=part,
    )


def made(sampler: str, hide: bool, world: int, count: int = 30, seed: int = 1) -> list[Batch]:
    """The parts of one batch, each made by a worker that knows nothing of the others."""
    positions = np.random.default_rng(seed).permutation(graph().count)[:count]
    return [
        maker(sampler, hide, (rank, world)).make(positions, np.random.default_rng(seed + 1)) for rank in range(world)
    ]


def positives(batch: Batch) -> list[tuple[int, int, int]]:
    rows, kinds = batch.entities.rows, batch.relations.rows
    columns = rows[batch.head], kinds[batch.relation], rows[batch.tail]
    return [(int(h), int(r), int(t)) for h, r, t in zip(*columns, strict=True)]


def contexts(batch: Batch) -> dict[int, tuple[int, ...]]:
    """Who stands in the context of whom."""
    places = batch.entities.places
    return {
        int(row): tuple(batch.entities.vertex_rows[places.slot_row[places.indptr[n] : places.indptr[n + 1]]].tolist())
        for n, row in enumerate(batch.entities.rows)
    }


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("sampler", list(LOSSES))
@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_parts_put_together_are_the_batch(sampler: str, hide: bool, world: int, count: int) -> None:
    (whole,) = made(sampler, hide, 1, count)
    parts = made(sampler, hide, world, count)
    assert [len(positives(part)) for part in parts] == [
        count * (rank + 1) // world - count * rank // world for rank in range(world)
    ]
    assert [triple for part in parts for triple in positives(part)] == positives(whole)
    everyone = contexts(whole)
    for part in parts:
        assert contexts(part).items() <= everyone.items(), "what is hidden is what the whole batch hides"
        assert np.unique(part.entities.rows).shape == part.entities.rows.shape
    if sampler == "bernoulli":
        drawn = [int(part.entities.rows[number]) for part in parts for number in part.negative]
        assert drawn == whole.entities.rows[whole.negative].tolist()
        assert np.array_equal(np.concatenate([part.corrupts_head for part in parts]), whole.corrupts_head)
        return
    for part in parts:
        shared = dict(zip(part.entities.rows[part.shared].tolist(), part.weight.tolist(), strict=True))
        assert shared == dict(zip(whole.entities.rows[whole.shared].tolist(), whole.weight.tolist(), strict=True))
    for side in ("known_tail_mask", "known_head_mask"):
        found = [blocked for part in parts for blocked in blocked_rows(part, getattr(part, side))]
        assert found == blocked_rows(whole, getattr(whole, side))


def blocked_rows(batch: Batch, blocked: np.ndarray) -> list[set[int]]:
    """For each positive: the negatives that take no part."""
    rows = batch.entities.rows[batch.shared]
    return [set(rows[line].tolist()) for line in blocked]


@dataclass
class Recording(LocalTable):
    """Keeps its rows as they are, and what was pushed."""

    shard: Shard
    pushed: dict[Field, np.ndarray] = field(default_factory=dict)

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        for name, (rows, values) in gradients.items():
            assert np.unique(rows).shape == rows.shape
            whole = self.pushed.setdefault(name, np.zeros(self.shard.values[name].shape, np.float64))
            whole[rows] += values


def gradients(batches: list[Batch], loss: Loss) -> dict[str, np.ndarray]:
    """All gradients of some batches at the same start values, added up: by row for tables, dense ones by name."""
    rng = np.random.default_rng(0)
    tables = [
        Recording(Shard({name: initial_rows(count, DIM, rng) for name in TRAINED})) for count in (ROWS, RELATIONS)
    ]
    model = Dkge(DIM, 2, 1, seed=3)
    nothing = torch.optim.SGD(model.parameters(), lr=0.0)
    total: dict[str, np.ndarray] = {"loss": np.zeros(())}
    for batch in batches:
        total["loss"] += train_step(model, nothing, (tables[0], tables[1]), batch, loss, SGD)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            total[name] = total.get(name, np.zeros(())) + parameter.grad.double().numpy()
    for kind, table in zip(("entities", "relations"), tables, strict=True):
        total |= {f"{kind} {name}": values for name, values in table.pushed.items()}
    return total


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("sampler", "loss", "hide"), CASES)
def test_gradients_of_the_parts_add_up_to_those_of_the_batch(sampler: str, loss: Loss, hide: bool, world: int) -> None:
    expected = gradients(made(sampler, hide, 1), loss)
    found = gradients(made(sampler, hide, world), loss)
    assert len(expected) > 8
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        scale = np.abs(values).max()
        assert scale > 0, name
        assert np.abs(found[name] - values).max() <= 1e-5 * scale, name


@pytest.mark.parametrize(("sampler", "loss", "hide"), CASES)
def test_a_batch_of_fewer_triples_than_workers(sampler: str, loss: Loss, hide: bool) -> None:
    """Somebody gets nothing, and says so: zeros for the dense parameters, nothing that is not a number."""
    expected = gradients(made(sampler, hide, 1, count=2), loss)
    parts = made(sampler, hide, 4, count=2)
    assert sorted(len(positives(part)) for part in parts) == [0, 0, 1, 1]
    for part in parts:
        if not part.head.shape[0]:
            assert all(not values.any() for values in gradients([part], loss).values())
    found = gradients(parts, loss)
    for name, values in expected.items():
        assert np.abs(found[name] - values).max() <= 1e-5 * max(np.abs(values).max(), 1e-6), name
