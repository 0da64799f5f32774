"""Objects with their contexts: the padded and the ragged form give the same vectors, gradients and steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.learning.batches import BatchMaker
from dkge_dist.learning.contexts import EntityContexts, Form, HiddenPairs, ObjectBatch, RelationContexts, unpack_paths
from dkge_dist.learning.encode import CHUNK, encode, joint_of, pull
from dkge_dist.learning.step import Loss, train_step
from dkge_dist.model.dkge import Dkge, Encoder
from dkge_dist.tables.shard import TRAINED, Optimizer, Shard, initial_rows
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, Field, Triples
from tests.reference import Triple
from tests.strategies import RandomGraph, digests, graphs, to_triples

pytestmark = pytest.mark.usefixtures("one_thread")

DIM = 8
FORMS: tuple[Form, Form] = ("ragged", "padded")


def table(rows: int, seed: int = 0) -> LocalTable:
    rng = np.random.default_rng(seed)
    values = {field: initial_rows(rows, DIM, rng) for field in TRAINED}
    return LocalTable(Shard({**values, Field.JOINT: np.zeros((rows, DIM), np.float32)}))


def contexts(
    triples: list[Triple], rows: int, relations: int, sampling: Sampling, form: Form
) -> tuple[EntityContexts, RelationContexts]:
    train = canonical(to_triples(triples))
    topology = Topology.of(train, rows)
    paths = PathCounts.of(topology, train, relations)
    return (
        EntityContexts(topology, digests(rows), sampling, form),
        RelationContexts(paths, digests(relations, 1), sampling, form),
    )


def vectors_and_gradients(encoder: Encoder, rows: LocalTable, batch: ObjectBatch) -> dict[str, np.ndarray]:
    """o* of a batch, and what a weighted sum of them brings to rows (by row) and dense parameters."""
    leaves = pull(rows, batch)
    out = encode(encoder, leaves, batch)
    encoder.zero_grad()
    weights = torch.from_numpy(np.random.default_rng(9).normal(size=tuple(out.shape)).astype(np.float32))
    (out * weights).sum().backward()
    found = {"o*": out.detach().numpy()}
    for field, (where, gradient) in leaves.gradients(batch).items():
        found[field] = np.zeros_like(rows.shard.values[field])
        np.add.at(found[field], where, gradient)
    for name, value in encoder.named_parameters():
        assert value.grad is not None, name
        found[name] = value.grad.numpy().copy()
    return found


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@settings(max_examples=25)
@given(graphs(max_rows=18), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_padded_equals_ragged(graph: RandomGraph, cap: int, hops: int, layers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = Dkge(DIM, layers, layers, seed)
    sampling = Sampling(seed, cap, hops)
    made = [contexts(graph.triples, graph.rows, graph.relations, sampling, form) for form in FORMS]
    for kind, (encoder, count) in enumerate(((model.entity, graph.rows), (model.relation, graph.relations))):
        some = rng.permutation(count)[: rng.integers(1, count + 1)].astype(ROW)
        ragged, padded = (vectors_and_gradients(encoder, table(count), both[kind].batch(some)) for both in made)
        assert_same(ragged, padded)


@pytest.mark.parametrize("cap", [35, 70])
def test_padded_equals_ragged_in_every_width_class(cap: int) -> None:
    """Hubs of all sizes, some over the cap, with pairs hidden; relations with many paths."""
    rng = np.random.default_rng(cap)
    rows, relations = 160, 9
    triples = [(hub, (hub + leaf) % relations, 80 + leaf) for hub in range(80) for leaf in range(hub)]
    triples += [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [rows, relations, rows], (150, 3))]
    model = Dkge(DIM, 2, 2, 0)
    hidden = HiddenPairs(*(np.array(side, ROW) for side in zip(*((h, t) for h, _, t in triples[::7]), strict=True)))
    made = [contexts(triples, rows, relations, Sampling(1, cap, 1), form) for form in FORMS]
    everybody = rng.permutation(rows).astype(ROW)
    batches = [entities.batch(everybody, hidden) for entities, _ in made]
    assert {block.rows_Bn.shape[1] for block in batches[1].places} >= {8, 16, 24, 32, 40}
    assert_same(*(vectors_and_gradients(model.entity, table(rows), batch) for batch in batches))
    kinds = [relation.batch(np.arange(relations, dtype=ROW)) for _, relation in made]
    assert_same(*(vectors_and_gradients(model.relation, table(relations), batch) for batch in kinds))


def maker(train: Triples, rows: int, relations: int, sampler: str, form: Form) -> BatchMaker:
    topology = Topology.of(train, rows)
    sampling = Sampling(2, 9, 1)
    return BatchMaker(
        train,
        EntityContexts(topology, digests(rows), sampling, form),
        RelationContexts(PathCounts.of(topology, train, relations), digests(relations, 1), sampling, form),
        np.arange(rows, dtype=ROW),
        bernoulli_head_chance(*train, relations),
        sampler,  # type: ignore[arg-type]
        12,
        hide_targets=True,
    )


@pytest.mark.parametrize(
    ("sampler", "loss"),
    [("bernoulli", Loss("margin", 4.0)), ("shared", Loss("softmax", 0.5)), ("shared", Loss("self_adversarial", 3.0))],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_step_with_padded_contexts_equals_one_with_ragged_ones(sampler: str, loss: Loss, optimizer: str) -> None:
    rng = np.random.default_rng(1)
    rows, relations = 50, 5
    columns = rng.integers(0, [[rows], [relations], [rows]], (3, 260))
    train = canonical(Triples(*(column.astype(ROW) for column in columns)))
    results = []
    for form in FORMS:
        batches = maker(train, rows, relations, sampler, form)
        model = Dkge(DIM, 2, 1, seed=4)
        tables = (table(rows, 1), table(relations, 2))
        kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adagrad
        dense = kind(model.parameters(), lr=0.01)
        losses = []
        for step in range(2):
            positions = np.random.default_rng(step).permutation(train.count)[:70]
            batch = batches.make(positions, np.random.default_rng([7, step]))
            losses.append(train_step(model, dense, tables, batch, loss, Optimizer(optimizer, 0.01)))  # type: ignore[arg-type]
        result = {"losses": np.array(losses) / 70}
        result |= {f"{kind}-{f}": t.shard.values[f] for kind, t in zip("er", tables, strict=True) for f in TRAINED}
        results.append(result | {name: value.detach().numpy() for name, value in model.named_parameters()})
    assert_same(*results)


def test_a_batch_of_one_object_that_stands_alone() -> None:
    """No train triple: a context of itself only, so that o* follows from its own two vectors."""
    model = Dkge(DIM, 1, 1, 0)
    for form in FORMS:
        entities, relations = contexts([(0, 0, 1)], 3, 2, Sampling(1, 5, 2), form)
        for encoder, around, count, row in ((model.entity, entities, 3, 2), (model.relation, relations, 2, 1)):
            batch = around.batch(np.array([row], ROW))
            assert batch.vertex_rows.tolist() == [row]
            rows = table(count)
            own = {field: torch.from_numpy(rows.shard.values[field][row]) for field in TRAINED}
            shown = torch.relu(own[Field.CONTEXT] @ encoder.gcn.weights[0])
            expected = (own[Field.KNOWLEDGE] + shown) / 2
            out = encode(encoder, pull(rows, batch), batch)
            np.testing.assert_allclose(out[0].detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_vectors_of_many_objects_are_those_of_each_alone() -> None:
    """More objects than are encoded at once, in any order; and none at all."""
    rng = np.random.default_rng(0)
    rows = CHUNK + 10
    triples = [(int(h), 0, int(t)) for h, t in rng.integers(0, rows, (9000, 2))]
    entities, _ = contexts(triples, rows, 1, Sampling(1, 6, 1), "ragged")
    model, vectors = Dkge(DIM, 1, 1, 0), table(rows)
    order = rng.permutation(rows).astype(ROW)
    found = joint_of(model.entity, vectors, entities, order)
    for place in (0, 1, CHUNK - 1, CHUNK, rows - 1):
        alone = joint_of(model.entity, vectors, entities, order[place : place + 1])
        np.testing.assert_allclose(found[place], alone[0], rtol=1e-6, atol=1e-6)
    assert joint_of(model.entity, vectors, entities, order[:0]).shape == (0, DIM)


@given(st.integers(1, 9), st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=12))
def test_paths_are_unpacked_into_their_relations(spare: int, paths: list[list[int]]) -> None:
    """Up to the length and the number of relations that fit into 63 bits."""
    bits = 2 + spare
    codes = np.array([sum((r + 1) << (bits * k) for k, r in enumerate(path)) for path in paths], np.int64)
    relations, lengths = unpack_paths(codes, bits)
    ends = np.cumsum(lengths)
    found = [sorted(relations[end - length : end].tolist()) for end, length in zip(ends, lengths, strict=True)]
    assert found == [sorted(path) for path in paths]
