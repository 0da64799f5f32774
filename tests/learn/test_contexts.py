"""Objects with their contexts: the padded and the ragged form give the same vectors, gradients and steps."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.learn.contexts import Form, HiddenPairs, ObjectBatch, unpack_paths
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.step import Loss
from dkge_dist.model.dkge import Dkge, Encoder
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, TRAINED, Array, Field
from tests import reference
from tests.learn.graphs import (
    NOTHING,
    Sampler,
    contexts_of,
    maker_of,
    negatives_of,
    shown_contexts,
    step_of,
    table_of,
    tables_of,
    values_of,
)
from tests.strategies import RandomGraph, digests, graphs
from tests.training_graphs import graph_of_rows

pytestmark = pytest.mark.usefixtures("one_thread")

DIM = 8
FORMS: tuple[Form, Form] = ("ragged", "padded")


def vectors_and_gradients(encoder: Encoder, table: LocalTable, batch: ObjectBatch) -> dict[str, Array]:
    """o* of a batch, and what a weighted sum of them brings to rows (by row) and dense parameters."""
    objects = TrainedObjects(encoder, table, NOTHING)
    out, leaves = objects.encode(batch)
    encoder.zero_grad()
    weights = torch.from_numpy(np.random.default_rng(9).normal(size=tuple(out.shape)).astype(np.float32))
    (out * weights).sum().backward()
    found = {"o*": out.detach().numpy()}
    for field, (where, gradient) in objects.gradients(batch, leaves).items():
        found[field] = np.zeros((table.rows, table.dim), np.float32)
        np.add.at(found[field], where, gradient)
    for name, value in encoder.named_parameters():
        assert value.grad is not None, name
        found[name] = value.grad.numpy().copy()
    return found


def assert_same(one: dict[str, Array], other: dict[str, Array]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_allclose(other[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@settings(max_examples=25)
@given(graphs(max_rows=18), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_padded_equals_ragged(graph: RandomGraph, cap: int, hops: int, layers: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = Dkge(DIM, layers, layers, seed)
    sampling = Sampling(seed, cap, hops)
    made = [contexts_of(graph.triples, graph.rows, graph.relations, sampling, form) for form in FORMS]
    for kind, (encoder, count) in enumerate(((model.entity, graph.rows), (model.relation, graph.relations))):
        some = rng.permutation(count)[: rng.integers(1, count + 1)].astype(ROW)
        ragged, padded = (vectors_and_gradients(encoder, table_of(count, DIM), both[kind].batch(some)) for both in made)
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
    made = [contexts_of(triples, rows, relations, Sampling(1, cap, 1), form) for form in FORMS]
    shuffled = rng.permutation(rows).astype(ROW)
    batches = [entities.batch(shuffled, hidden) for entities, _ in made]
    assert {block.rows_Bn.shape[1] for block in batches[1].contexts} >= {8, 16, 24, 32, 40}
    assert_same(*(vectors_and_gradients(model.entity, table_of(rows, DIM), batch) for batch in batches))
    kinds = [relation.batch(np.arange(relations, dtype=ROW)) for _, relation in made]
    assert_same(*(vectors_and_gradients(model.relation, table_of(relations, DIM), batch) for batch in kinds))


@pytest.mark.parametrize(
    ("sampler", "loss"),
    [("bernoulli", Loss("margin", 4.0)), ("shared", Loss("softmax", 0.5)), ("shared", Loss("self_adversarial", 3.0))],
)
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_a_step_with_padded_contexts_equals_one_with_ragged_ones(sampler: Sampler, loss: Loss, optimizer: str) -> None:
    rng = np.random.default_rng(1)
    rows, relations = 50, 5
    triples = [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [rows, relations, rows], (260, 3))]
    graph = graph_of_rows(triples, rows, relations, Sampling(2, 9, 1))
    results = []
    for form in FORMS:
        batches = maker_of(graph, negatives_of(graph, sampler, count=12), True, form)
        model, tables = Dkge(DIM, 2, 1, seed=4), tables_of(graph, DIM)
        kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adagrad
        step = step_of(model, tables, loss, kind(model.parameters(), lr=0.01))
        losses = []
        for number in range(2):
            positions = np.random.default_rng(number).permutation(graph.train.count)[:70]
            batch = batches.make(positions, np.random.default_rng([7, number]))
            losses.append(step.learn(PreparedBatch(batch, 70), Optimizer(optimizer, 0.01)))  # type: ignore[arg-type]
        result = {"losses": np.array(losses) / 70}
        for field in TRAINED:
            entities, kinds = values_of(tables, field)
            result |= {f"entities {field}": entities, f"relations {field}": kinds}
        results.append(result | {name: value.detach().numpy() for name, value in model.named_parameters()})
    assert_same(*results)


def test_a_batch_of_one_object_that_stands_alone() -> None:
    """No train triple: a context of itself only, so that o* follows from its own two vectors."""
    model = Dkge(DIM, 1, 1, 0)
    for form in FORMS:
        entities, relations = contexts_of([(0, 0, 1)], 3, 2, Sampling(1, 5, 2), form)
        for encoder, around, count, row in ((model.entity, entities, 3, 2), (model.relation, relations, 2, 1)):
            batch = around.batch(np.array([row], ROW))
            assert batch.vertex_rows.tolist() == [row]
            rows, wanted = table_of(count, DIM), {field: np.array([row], ROW) for field in TRAINED}
            own = {field: torch.from_numpy(values) for field, values in rows.pull(wanted).items()}
            shown = torch.relu(own[Field.CONTEXT] @ encoder.gcn.weights[0])
            expected = (own[Field.KNOWLEDGE] + shown) / 2
            out, _ = TrainedObjects(encoder, rows, NOTHING).encode(batch)
            np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)


@given(st.integers(1, 9), st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=12))
def test_paths_are_unpacked_into_their_relations(spare: int, paths: list[list[int]]) -> None:
    """Up to the length and the number of relations that fit into 63 bits."""
    bits = 2 + spare
    codes = np.array([sum((r + 1) << (bits * k) for k, r in enumerate(path)) for path in paths], np.int64)
    relations, lengths = unpack_paths(codes, bits)
    ends = np.cumsum(lengths)
    found = [sorted(relations[end - length : end].tolist()) for end, length in zip(ends, lengths, strict=True)]
    assert found == [sorted(path) for path in paths]


@settings(max_examples=25)
@given(graphs(max_rows=14), st.integers(1, 8), st.integers(1, 2), st.booleans(), st.data())
def test_hidden_pairs_are_left_out_of_each_others_contexts(
    graph: RandomGraph, cap: int, hops: int, are_kept: bool, data: st.DataObject
) -> None:
    """Either end may stand outside of the batch. What is kept is not touched: the next batch hides others."""
    row = st.integers(0, graph.rows - 1)
    pairs = data.draw(st.lists(st.tuples(row, row).filter(lambda pair: pair[0] < pair[1]), unique=True, max_size=6))
    some = np.array(data.draw(st.lists(row, unique=True, min_size=1)), ROW)
    one, other = np.array(pairs, ROW).reshape(-1, 2).T
    sampling = Sampling(3, cap, hops)
    entities, _ = contexts_of(graph.triples, graph.rows, graph.relations, sampling)
    if are_kept:
        entities.keep(np.arange(graph.rows, dtype=ROW))
        entities.batch(some[::-1].copy(), HiddenPairs(other, one))
    found = shown_contexts(entities.batch(some, HiddenPairs(one, other)))
    simple = reference.neighbours(graph.triples)
    assert list(found) == some.tolist()
    for entity, context in found.items():
        expected = reference.entity_context(simple, digests(graph.rows), *sampling, entity)
        for pair in pairs:
            if entity in pair:
                expected = reference.without_vertex(expected, *({*pair} - {entity}))
        assert context == expected


def test_vertex_rows_are_distinct_and_named_by_the_contexts() -> None:
    """A row that several contexts show is pulled once."""
    entities, relations = contexts_of([(0, 0, n) for n in range(1, 9)] + [(1, 1, 2)], 9, 2, Sampling(1, 35, 1))
    batch = entities.batch(np.array([3, 0, 2], ROW))
    assert sorted(batch.vertex_rows.tolist()) == list(range(9))
    assert batch.bag is None
    kinds = relations.batch(np.array([1, 0], ROW))
    assert kinds.bag is not None and kinds.bag_offsets is not None
    assert sorted(kinds.vertex_rows.tolist()) == [0, 1]
    assert kinds.bag_offsets[0] == 0
    assert (np.diff(kinds.bag_offsets) > 0).all()


def test_contexts_of_rows_that_are_not_kept_are_built() -> None:
    triples = [(0, 0, n) for n in range(1, 9)] + [(1, 1, 2)]
    (entities, _), (others, _) = (contexts_of(triples, 9, 2, Sampling(1, 35, 1)) for _ in range(2))
    entities.keep(np.array([0, 3], ROW))
    for rows in ([3, 0], [3, 5], []):
        some = np.array(rows, ROW)
        assert shown_contexts(entities.batch(some)) == shown_contexts(others.batch(some))


def test_contexts_that_memory_does_not_allow_are_not_kept() -> None:
    entities, _ = contexts_of([(0, 0, n) for n in range(1, 9)], 9, 1, Sampling(1, 35, 1))
    with patch("dkge_dist.learn.contexts.KEPT_BYTES", 25 * 12 - 1):
        entities.keep(np.arange(9, dtype=ROW))
    assert entities._kept is None
    with patch("dkge_dist.learn.contexts.KEPT_BYTES", 25 * 12):
        entities.keep(np.arange(9, dtype=ROW))
    assert entities._kept is not None
