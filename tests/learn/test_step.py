"""A step equals the same computation written densely; gradients of ranks add up; what is not finite is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.learn.batches import Batch
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.step import Loss, NotFiniteError
from dkge_dist.model.dkge import Dkge
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.tables.table import Gradients, LocalTable, Tables
from dkge_dist.types import TRAINED, Array, Field
from tests import reference
from tests.learn.graphs import (
    DIM,
    LOSSES,
    RELATIONS,
    ROWS,
    SAMPLING,
    Sampler,
    deleted_of,
    maker_of,
    negatives_of,
    offsets_of,
    positives,
    small_graph,
    step_of,
    table_of,
    tables_of,
    values_of,
)
from tests.strategies import digests, to_list

pytestmark = pytest.mark.usefixtures("one_thread")


def dense_joints(graph: TrainingGraph, model: Dkge, rows: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """o* of all objects by the reference, from (entity ^k, entity ^c, relation ^k, relation ^c) in 64 bits."""
    triples = to_list(graph.train)
    simple = reference.neighbours(triples)
    contexts = [reference.entity_context(simple, digests(ROWS), *SAMPLING, e) for e in range(ROWS)]
    around = [(np.array(c[0]), reference.normalised_adjacency(c)) for c in contexts]
    counts = reference.together(triples, 2)
    features: list[Tensor] = []
    related = []
    for relation in range(RELATIONS):
        context = reference.relation_context(counts, digests(RELATIONS, 1), SAMPLING.seed, SAMPLING.cap, relation)
        related.append(
            (np.arange(len(features), len(features) + len(context[0])), reference.normalised_adjacency(context))
        )
        features += [sum(rows[3][r] for r in path) for path in context[0]]  # type: ignore[misc]
    joints = []
    for encoder, bag, feature, own in (
        (model.entity, around, rows[1], rows[0]),
        (model.relation, related, torch.stack(features), rows[2]),
    ):
        weights = [w.double() for w in encoder.gcn.weights]
        joints.append(
            reference.encode(bag, feature, own, weights, encoder.gcn.attention.double(), encoder.gate.logits.double())
        )
    return joints[0], joints[1]


@pytest.mark.parametrize("with_more", [False, True])
@pytest.mark.parametrize(("sampler", "loss"), LOSSES)
def test_one_step_of_descent_equals_the_dense_gradient(sampler: Sampler, loss: Loss, with_more: bool) -> None:
    """With offsets, a share of which is subtracted from the distance on each side, own entities and deleted triples."""
    graph = small_graph()
    made = maker_of(graph, negatives_of(graph, sampler))
    positions = np.arange(30)
    if with_more:
        loopless, deleted = np.array([True, False, True, True]), deleted_of(graph)
        sizes = {"offsets": offsets_of(graph), "deleted": deleted, "own_negative": loopless}
        made = maker_of(graph, negatives_of(graph, sampler), **sizes)  # type: ignore[arg-type]
        positions = np.concatenate([positions[:20], graph.train.count + np.arange(10)])
    batch = made.make(positions, np.random.default_rng(1))
    assert with_more == batch.tail_offset.any() == batch.head_offset.any() == batch.own_is_negative.any()
    assert batch.unlearn_mask.sum() == (10 if with_more else 0)
    model = Dkge(DIM, 1, 1, seed=3)
    tables = tables_of(graph)
    before = [values for field in TRAINED for values in values_of(tables, field)]
    leaves = [torch.from_numpy(x).double().requires_grad_() for x in before]
    entity, relation = dense_joints(graph, model, (leaves[0], leaves[2], leaves[1], leaves[3]))

    rows, kinds = torch.from_numpy(batch.entities.rows).long(), torch.from_numpy(batch.relations.rows).long()
    head, tail = (entity[rows[torch.from_numpy(x).long()]] for x in (batch.head, batch.tail))
    kind = relation[kinds[torch.from_numpy(batch.relation).long()]]
    positive = (head + kind - tail).abs().sum(-1)
    if sampler == "bernoulli":
        other = entity[rows[torch.from_numpy(batch.negative).long()]]
        at_head = torch.from_numpy(batch.corrupts_head)
        farther = torch.where(at_head[:, None], other + kind - tail, head + kind - other).abs().sum(-1)
        # A deleted triple has no part in the margin loss.
        total = torch.relu(positive + loss.margin - farther)[torch.from_numpy(~batch.unlearn_mask)].sum()
    else:
        shared = entity[rows[torch.from_numpy(batch.shared).long()]]
        total = torch.zeros((), dtype=torch.float64)
        sides = (
            (head + kind, head, batch.known_tail_mask, batch.tail_offset),
            (tail - kind, tail, batch.known_head_mask, batch.head_offset),
        )
        for query, itself, known, offset in sides:
            far = (query[:, None] - torch.cat([shared[None].expand(len(query), -1, -1), itself[:, None]], 1)).abs()
            far, true = far.sum(-1), positive - 0.25 * torch.from_numpy(offset)
            true = true - loss.unlearn_offset * torch.from_numpy(batch.unlearn_mask)
            masked = torch.from_numpy(np.concatenate([known, ~batch.own_is_negative[:, None]], 1))
            logq = torch.from_numpy(np.append(batch.log_weight, np.float32(0)))
            logits = (logq - far).masked_fill(masked, -torch.inf)
            denied = torch.from_numpy(batch.unlearn_mask)
            if loss.kind == "softmax":
                chance = torch.softmax(torch.cat([-true[:, None], logits], 1), 1)[:, 0]
                total = total - torch.log(torch.where(denied, 1 - chance, chance)).sum()
            else:
                softplus = torch.nn.functional.softplus
                weight = logits.detach().softmax(-1)
                total = (
                    total + softplus((true - loss.margin)[~denied]).sum() + softplus((loss.margin - true)[denied]).sum()
                )
                total = total + (weight * softplus(loss.margin - far))[~denied].sum()
    expected = torch.autograd.grad(total, leaves)

    step = step_of(model, tables, loss, torch.optim.SGD(model.parameters(), lr=0.0))
    value = step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 1e-2), 0.25)
    assert value == pytest.approx(total.item(), rel=1e-5)
    after = [values for field in TRAINED for values in values_of(tables, field)]
    for old, new, gradient in zip(before, after, expected, strict=True):
        np.testing.assert_allclose((old - new) / 1e-2, gradient.numpy(), rtol=2e-3, atol=2e-3)


def test_offsets_count_by_the_share_that_is_asked_for() -> None:
    """None unless asked, as in an update."""
    graph = small_graph()
    losses = {}
    for with_offsets in (False, True):
        made = maker_of(graph, negatives_of(graph, "shared"), offsets=offsets_of(graph) if with_offsets else None)
        batch = made.make(np.arange(30), np.random.default_rng(1))
        for share in (None, 0.0, 0.5, 1.0):
            model = Dkge(DIM, 1, 1, seed=3)
            step = step_of(model, tables_of(graph), Loss("softmax", 0.0), torch.optim.SGD(model.parameters(), lr=0.0))
            words = () if share is None else (share,)
            losses[with_offsets, share] = step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 0.01), *words)
    assert len({losses[False, share] for share in (None, 0.0, 0.5, 1.0)} | {losses[True, None], losses[True, 0.0]}) == 1
    assert losses[True, 1.0] < losses[True, 0.5] < losses[True, 0.0]


def test_the_loss_of_a_batch_can_be_measured_without_learning_it() -> None:
    graph = small_graph()
    batch = maker_of(graph, negatives_of(graph, "shared")).make(np.arange(30), np.random.default_rng(1))
    model, tables = Dkge(DIM, 1, 1, seed=3), tables_of(graph)
    step = step_of(model, tables, Loss("softmax", 0.0), torch.optim.SGD(model.parameters(), lr=0.01))
    before = [values_of(tables, field) for field in TRAINED]
    found = step.measure(PreparedBatch(batch, 30))
    for field, values in zip(TRAINED, before, strict=True):
        assert all(map(np.array_equal, values, values_of(tables, field)))
    assert found == step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 0.01))


def learn(seed: int, steps: int = 200) -> tuple[list[float], Array]:
    graph = small_graph()
    batches = maker_of(graph, negatives_of(graph, "shared"))
    model = Dkge(DIM, 1, 1, seed=seed)
    tables = tables_of(graph, seed=seed)
    step = step_of(model, tables, Loss("softmax", 0.0), torch.optim.Adagrad(model.parameters(), lr=0.01))
    losses = []
    for number in range(steps):
        rng = np.random.default_rng([seed, number])
        batch = batches.make(rng.permutation(graph.train.count)[:64], rng)
        losses.append(step.learn(PreparedBatch(batch, 64), Optimizer("adagrad", 0.1)))
    return losses, values_of(tables, Field.KNOWLEDGE)[0]


def test_steps_learn_and_the_same_seed_gives_the_same_vectors() -> None:
    losses, vectors = learn(0)
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    again, same = learn(0)
    assert losses == again
    assert np.array_equal(vectors, same)
    assert not np.array_equal(vectors, learn(1, steps=1)[1])


CASES = [(sampler, loss, hide) for sampler, loss in LOSSES for hide in (False, True)]


def shares(sampler: Sampler, hide: bool, world: int, count: int = 30) -> list[Batch[ObjectBatch]]:
    """The shares that the ranks have of one batch."""
    graph = small_graph()
    positions = np.random.default_rng(1).permutation(graph.train.count)[:count]
    negatives = negatives_of(graph, sampler, logq_correction=True)
    return [
        maker_of(graph, negatives, hide, rank=rank, world=world).make(positions, np.random.default_rng(2))
        for rank in range(world)
    ]


class RecordingTable(LocalTable):
    """Keeps its rows as they are, and what was pushed."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        self.pushed: dict[Field, Array] = {}

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        for name, (rows, values) in gradients.items():
            assert np.unique(rows).shape == rows.shape
            whole = self.pushed.setdefault(name, np.zeros(self.shard.values[name].shape, np.float64))
            whole[rows] += values


def gradients(batches: list[Batch[ObjectBatch]], loss: Loss) -> dict[str, Array]:
    """All gradients of some batches at the same start values, added up: by row for tables, dense ones by name."""
    tables = [RecordingTable(table_of(count, seed=count).shard) for count in (ROWS, RELATIONS)]
    model = Dkge(DIM, 2, 1, seed=3)
    step = step_of(model, Tables(*tables), loss, torch.optim.SGD(model.parameters(), lr=0.0))
    total: dict[str, Array] = {"loss": np.zeros(())}
    for batch in batches:
        total["loss"] += step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 0.1))
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            total[name] = total.get(name, np.zeros(())) + parameter.grad.double().numpy()
    for kind, table in zip(("entities", "relations"), tables, strict=True):
        total |= {f"{kind} {name}": values for name, values in table.pushed.items()}
    return total


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(("sampler", "loss", "hide"), CASES)
def test_gradients_of_all_ranks_add_up_to_those_of_the_batch(
    sampler: Sampler, loss: Loss, hide: bool, world: int
) -> None:
    expected = gradients(shares(sampler, hide, 1), loss)
    found = gradients(shares(sampler, hide, world), loss)
    assert len(expected) > 8
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        scale = np.abs(values).max()
        assert scale > 0, name
        assert np.abs(found[name] - values).max() <= 1e-5 * scale, name


@pytest.mark.parametrize(("sampler", "loss", "hide"), CASES)
def test_a_batch_of_fewer_triples_than_workers(sampler: Sampler, loss: Loss, hide: bool) -> None:
    """A worker without triples has gradients of zeros, and nothing that is not a number."""
    expected = gradients(shares(sampler, hide, 1, count=2), loss)
    parts = shares(sampler, hide, 4, count=2)
    assert sorted(len(positives(part)) for part in parts) == [0, 0, 1, 1]
    for part in parts:
        if not part.head.shape[0]:
            assert all(not values.any() for values in gradients([part], loss).values())
    found = gradients(parts, loss)
    for name, values in expected.items():
        assert np.abs(found[name] - values).max() <= 1e-5 * max(np.abs(values).max(), 1e-6), name


class Doubling(LocalCommunicator):
    """As if another worker had just the same share of every batch."""

    def __init__(self) -> None:
        super().__init__(Monitor())
        self.calls: list[int] = []

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        self.calls.append(len(tensors))
        for tensor in tensors:
            tensor *= 2


def test_dense_gradients_and_the_loss_are_added_up_by_one_all_reduce() -> None:
    graph = small_graph()
    batch = maker_of(graph, negatives_of(graph, "shared")).make(np.arange(30), np.random.default_rng(1))
    losses, moved = [], []
    communicators = [LocalCommunicator(Monitor()), Doubling()]
    for communicator in communicators:
        model = Dkge(DIM, 1, 1, seed=3)
        start = [parameter.detach().clone() for parameter in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        step = step_of(model, tables_of(graph), Loss("softmax", 0.0), optimizer, communicator)
        losses.append(step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 0.01)))
        moved.append([(p.detach() - s).numpy() for p, s in zip(model.parameters(), start, strict=True)])
    assert losses[1] == pytest.approx(2 * losses[0])
    for one, doubled in zip(*moved, strict=True):
        np.testing.assert_allclose(doubled, 2 * one, rtol=1e-3, atol=1e-7)
    assert isinstance(communicators[1], Doubling)
    assert communicators[1].calls == [len(moved[0]) + 1], "the loss goes with the gradients"


class Broken(LocalCommunicator):
    """Another worker has a loss or a gradient that is no number."""

    def __init__(self, where: int) -> None:
        super().__init__(Monitor())
        self.where = where

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        tensors[self.where].fill_(torch.nan)


@pytest.mark.parametrize("where", [0, 3, -1])
def test_a_loss_or_gradient_that_is_not_finite_is_refused_before_anything_moves(where: int) -> None:
    """By all workers at the same step: they see the same sums."""
    graph = small_graph()
    batch = maker_of(graph, negatives_of(graph, "shared")).make(np.arange(30), np.random.default_rng(1))
    model, tables = Dkge(DIM, 1, 1, seed=3), tables_of(graph)
    start = [parameter.detach().clone() for parameter in model.parameters()]
    before = {field: values_of(tables, field) for field in TRAINED}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = step_of(model, tables, Loss("softmax", 0.0), optimizer, Broken(where))
    with pytest.raises(NotFiniteError, match="not finite"):
        step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 0.01))
    assert all(torch.equal(p, s) for p, s in zip(model.parameters(), start, strict=True))
    for field in TRAINED:
        assert all(np.array_equal(*both) for both in zip(values_of(tables, field), before[field], strict=True))


def test_frozen_dense_parameters_stay() -> None:
    graph = small_graph()
    batch = maker_of(graph, negatives_of(graph, "shared")).make(np.arange(30), np.random.default_rng(1))
    model, tables = Dkge(DIM, 1, 1, seed=3).requires_grad_(False), tables_of(graph)
    step = step_of(model, tables, Loss("softmax", 0.0), torch.optim.SGD(model.parameters(), lr=1.0))
    step.dense = None
    before = values_of(tables, Field.KNOWLEDGE)
    start = [parameter.clone() for parameter in model.parameters()]
    step.learn(PreparedBatch(batch, 30), Optimizer("sgd", 0.01))
    assert all(torch.equal(p, s) for p, s in zip(model.parameters(), start, strict=True))
    assert all((old != new).any() for old, new in zip(before, values_of(tables, Field.KNOWLEDGE), strict=True))
