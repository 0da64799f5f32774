"""Objects as an update encodes them: the same o* and gradients as the full encoder, and none for what is frozen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.learn.contexts import EntityContexts, HiddenPairs, RelationContexts
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.frozen import CHANGING, FrozenObjects
from dkge_dist.learn.plan import ObjectPlan
from dkge_dist.model.dkge import Dkge, Encoder
from dkge_dist.tables.initializer import RowInitializer, initial_rows
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, Array, Field
from tests.strategies import Evolution, RandomGraph, digests, evolutions, to_triples

DIM = 8
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


pytestmark = pytest.mark.usefixtures("one_thread")


class Kind(NamedTuple):
    """One kind of objects: all that is needed to encode them in either way."""

    encoder: Encoder
    table: LocalTable
    contexts: EntityContexts | RelationContexts
    topology: Topology
    rows: int


def kind_of(evolution: Evolution, layers: int, cap: int, relations: bool) -> Kind:
    """On the graph after a night, over patched lists, with o* of all objects fresh."""
    before, after = set(evolution.before.triples), set(evolution.after)
    added, deleted = (canonical(to_triples(sorted(side))) for side in (after - before, before - after))
    old = Topology.of(canonical(to_triples(sorted(before))), evolution.before.rows)
    topology, _ = old.after(Change(added, deleted))
    sampling = Sampling(5, cap, 1)
    model = Dkge(DIM, layers, layers, 3).requires_grad_(False)
    rng = np.random.default_rng(len(after))
    with torch.no_grad():
        for encoder in (model.entity, model.relation):
            encoder.gcn.attention.copy_(torch.from_numpy(rng.normal(size=DIM).astype(np.float32)))
            encoder.gate.logits.copy_(torch.from_numpy(rng.normal(size=DIM).astype(np.float32)))
    contexts: EntityContexts | RelationContexts
    if relations:
        rows, encoder = evolution.before.relations, model.relation
        paths = PathCounts.of(topology, canonical(to_triples(evolution.after)), rows)
        contexts = RelationContexts(paths, digests(rows, 1), sampling)
    else:
        rows, encoder = evolution.before.rows, model.entity
        contexts = EntityContexts(topology, digests(rows), sampling)
    table = LocalTable.initialized(RowInitializer((len(after), 0), rows, DIM, 1.0))
    every = np.arange(rows, dtype=ROW)
    table.write(Field.JOINT, every, TrainedObjects(encoder, table, contexts).joint(every))
    return Kind(encoder, table, contexts, topology, rows)


def online(kind: Kind, emerging: set[int], trained: set[int], holds: bool = False) -> FrozenObjects:
    """Objects of a night that brings some and trains others besides, or only refreshes those."""
    emerges, affected = (np.array(sorted(some), ROW) for some in (emerging, trained - emerging))
    plan = ObjectPlan(emerges, affected, np.empty(0, ROW), holds)
    objects = FrozenObjects(kind.encoder, kind.table, kind.contexts, kind.topology, plan)
    objects.prepare()
    return objects


def showing(kind: Kind, emerging: set[int]) -> set[int]:
    """Objects with an emerging one in their context: affected, by definition."""
    shown = {row: set(kind.contexts.batch(np.array([row], ROW)).vertex_rows.tolist()) for row in range(kind.rows)}
    return {row for row, others in shown.items() if others & emerging}


def full(kind: Kind, rows: np.ndarray, weights: torch.Tensor) -> tuple[np.ndarray, dict[Field, np.ndarray]]:
    """o* by the whole encoder, and gradients of a weighted sum by row of each table."""
    batch, objects = kind.contexts.batch(rows), TrainedObjects(kind.encoder, kind.table, kind.contexts)
    out, leaves = objects.encode(batch)
    (out * weights).sum().backward()
    found = {}
    for field, (where, gradient) in objects.gradients(batch, leaves).items():
        found[field] = np.zeros((kind.rows, DIM), np.float32)
        np.add.at(found[field], where, gradient)
    return out.detach().numpy(), found


@settings(max_examples=60)
@given(
    st.data(),
    evolutions(max_rows=10, max_relations=5, max_triples=30),
    st.integers(1, 3),
    st.sampled_from([2, 35]),
    st.booleans(),
)
def test_the_same_vectors_and_gradients_as_the_full_encoder(
    data: st.DataObject, evolution: Evolution, layers: int, cap: int, relations: bool
) -> None:
    kind = kind_of(evolution, layers, cap, relations)
    row = st.integers(0, kind.rows - 1)
    emerging = data.draw(st.sets(row, max_size=3))
    trained = emerging | showing(kind, emerging) | data.draw(st.sets(row, max_size=4))
    rows = np.array(data.draw(st.permutations(range(kind.rows))), ROW)[: data.draw(st.integers(1, kind.rows))]
    holds = data.draw(st.booleans())
    objects = online(kind, emerging, trained, holds)
    batch = objects.batch(rows)
    weights = torch.from_numpy(np.random.default_rng(9).normal(size=(rows.shape[0], DIM)).astype(np.float32))
    expected, slopes = full(kind, rows, weights)

    out, leaves = objects.encode(batch)
    np.testing.assert_allclose(out.detach().numpy(), expected, **TOLERANCE)
    assert set(batch.read.tolist()) == set(rows.tolist()) - trained
    assert set(batch.changing.rows.tolist()) == set(rows.tolist()) & (emerging | showing(kind, emerging))

    total = (out * weights).sum()
    if total.requires_grad:
        total.backward()
    gradients = objects.gradients(batch, leaves)
    where, values = gradients[Field.KNOWLEDGE]
    assert sorted(where.tolist()) == sorted(set(rows.tolist()) & (emerging if holds else trained))
    np.testing.assert_allclose(values, slopes[Field.KNOWLEDGE][where], **TOLERANCE)
    where, values = gradients.get(Field.CONTEXT, (np.empty(0, ROW), np.empty((0, DIM), np.float32)))
    assert set(where.tolist()) <= emerging
    assert len(set(where.tolist())) == where.shape[0]
    missing = sorted(emerging - set(where.tolist()))
    np.testing.assert_allclose(values, slopes[Field.CONTEXT][where], **TOLERANCE)
    assert not slopes[Field.CONTEXT][missing].any(), "an emerging ^c with a gradient always gets it"


@settings(max_examples=40)
@given(st.data(), evolutions(max_rows=10, max_relations=3, max_triples=30), st.sampled_from([2, 35]))
def test_hidden_pairs_are_out_of_sight_of_trained_objects(data: st.DataObject, evolution: Evolution, cap: int) -> None:
    """As learning from scratch hides them; constant o* is read as it is. Pairs may name entities of no batch."""
    kind = kind_of(evolution, 1, cap, relations=False)
    row = st.integers(0, kind.rows - 1)
    emerging = data.draw(st.sets(row, max_size=2))
    trained = emerging | showing(kind, emerging) | data.draw(st.sets(row, max_size=4))
    rows = np.array(data.draw(st.permutations(range(kind.rows))), ROW)[: data.draw(st.integers(1, kind.rows))]
    pairs = data.draw(st.lists(st.tuples(row, row).filter(lambda pair: pair[0] < pair[1]), unique=True, max_size=6))
    one, other = np.array(pairs, ROW).reshape(-1, 2).T
    objects = online(kind, emerging, trained)
    assert isinstance(kind.contexts, EntityContexts)
    out, _ = objects.encode(objects.batch(rows, HiddenPairs(one, other)))

    every = kind.contexts.batch(np.arange(kind.rows, dtype=ROW), HiddenPairs(one, other))
    without = TrainedObjects(kind.encoder, kind.table, kind.contexts).encode(every)[0].detach().numpy()
    as_it_is = kind.table.shard.values[Field.JOINT]
    expected = np.where(np.isin(rows, sorted(trained))[:, None], without[rows], as_it_is[rows])
    np.testing.assert_allclose(out.detach().numpy(), expected, **TOLERANCE)


@pytest.mark.parametrize("relations", [False, True])
def test_vectors_that_moved_are_seen_and_others_stay(relations: bool) -> None:
    """A trained ^k moves: the next o* shows it, `refresh` writes it, and no other row changes a bit."""
    triples = [(h, (h * t) % 4, t) for h in range(8) for t in range(8) if (h + t) % 3 == 0]
    evolution = Evolution(RandomGraph(8, 4, triples), sorted([*triples, (0, 3, 7), (2, 1, 2)]))
    kind = kind_of(evolution, 2, 35, relations)
    emerging = {1}
    objects = online(kind, emerging, emerging | showing(kind, emerging) | {0})
    trained = objects.plan.trained
    before = {field: values.copy() for field, values in kind.table.shard.values.items()}
    rng = np.random.default_rng(0)
    kind.table.write(Field.KNOWLEDGE, trained, initial_rows(trained.shape[0], DIM, rng))
    kind.table.write(Field.CONTEXT, np.array([1], ROW), initial_rows(1, DIM, rng))
    objects.materialise()
    after = kind.table.shard.values
    others = np.setdiff1d(np.arange(kind.rows), trained)
    every = np.arange(kind.rows, dtype=ROW)
    fresh = TrainedObjects(kind.encoder, kind.table, kind.contexts).joint(every)
    np.testing.assert_allclose(after[Field.JOINT], fresh, **TOLERANCE)
    assert (after[Field.JOINT][trained] != before[Field.JOINT][trained]).any(1).all()
    assert all(np.array_equal(after[field][others], before[field][others]) for field in Field)


def night_of_one() -> Kind:
    triples = [(h, (h * t) % 4, t) for h in range(8) for t in range(8) if (h + t) % 3 == 0]
    return kind_of(Evolution(RandomGraph(8, 4, triples), triples), 1, 35, False)


def test_no_object_is_trained() -> None:
    kind = kind_of(Evolution(RandomGraph(3, 1, [(0, 0, 1)]), [(0, 0, 1)]), 1, 35, False)
    objects = online(kind, set(), set())
    batch = objects.batch(np.array([2, 0], ROW))
    out, leaves = objects.encode(batch)
    assert np.array_equal(out.numpy(), kind.table.shard.values[Field.JOINT][[2, 0]])
    assert not out.requires_grad
    assert [rows.shape for rows, _ in objects.gradients(batch, leaves).values()] == [(0,)]


def test_a_constructor_reads_no_rows_and_preparing_reads_frozen_contexts_once() -> None:
    kind = night_of_one()
    before = kind.table.stats()[0]["pull_calls"]
    plan = ObjectPlan(np.array([1], ROW), np.array([0, 5, 7], ROW), np.empty(0, ROW))
    objects = FrozenObjects(kind.encoder, kind.table, kind.contexts, kind.topology, plan)
    assert kind.table.stats()[0]["pull_calls"] == before
    assert (objects.kind[plan.trained] == CHANGING).all()
    objects.prepare()
    assert kind.table.stats()[0]["pull_calls"] == before + 1
    frozen = set(plan.trained.tolist()) - showing(kind, {1}) - {1}
    assert set(np.flatnonzero(objects.kind > 0).tolist()) == frozen
    assert frozen


def test_a_batch_without_preparation_gives_the_same_vectors() -> None:
    """Preparing is a matter of speed alone."""
    kind = night_of_one()
    prepared = online(kind, {1}, {0, 1, 5, 7})
    plain = FrozenObjects(kind.encoder, kind.table, kind.contexts, kind.topology, prepared.plan)
    rows = np.array([7, 2, 1, 5, 0], ROW)
    one, other = (objects.encode(objects.batch(rows))[0].detach().numpy() for objects in (prepared, plain))
    np.testing.assert_allclose(one, other, **TOLERANCE)


def test_what_a_batch_reads() -> None:
    """o* of those that are not trained, `^k` of those that are, `^c` of emerging ones; without preparation `^c` of all
    that contexts show."""
    kind = night_of_one()
    objects = online(kind, {1}, {0, 1, 5} | showing(kind, {1}))
    batch = objects.batch(np.arange(8, dtype=ROW))
    wanted: dict[Field, Array] = dict(objects.rows(batch))
    assert set(wanted[Field.KNOWLEDGE].tolist()) == set(objects.plan.trained.tolist())
    assert set(wanted[Field.JOINT].tolist()) == set(range(8)) - set(objects.plan.trained.tolist())
    assert wanted[Field.CONTEXT].tolist() == [1]
    plain = FrozenObjects(kind.encoder, kind.table, kind.contexts, kind.topology, objects.plan)
    unprepared = plain.batch(np.arange(8, dtype=ROW))
    assert plain.rows(unprepared)[Field.CONTEXT].tolist() == unprepared.changing.vertex_rows.tolist()
    assert set(batch.changing.rows.tolist()) == showing(kind, {1}) | {1}


def test_affected_objects_are_drawn_back_and_newcomers_are_not() -> None:
    """The gradient of half of it times the squared way since `prepare`; where nothing moved there is none."""
    kind = night_of_one()
    rows = np.array([7, 2, 1, 5, 0], ROW)
    plan = online(kind, {1}, {0, 1, 5, 7}).plan
    hold = np.arange(1, 1 + plan.continued.shape[0], dtype=np.float32)
    assert 5 in plan.continued
    assert 1 not in plan.continued
    gradients = []
    moved = np.random.default_rng(3).normal(size=(2, DIM)).astype(np.float32)
    for strengths in (None, hold):
        objects = FrozenObjects(kind.encoder, kind.table, kind.contexts, kind.topology, plan, strengths)
        objects.prepare()
        before = kind.table.pull({Field.KNOWLEDGE: np.array([1, 5], ROW)})[Field.KNOWLEDGE].copy()
        kind.table.write(Field.KNOWLEDGE, np.array([1, 5], ROW), before + moved)
        batch = objects.batch(rows)
        out, leaves = objects.encode(batch)
        out.sum().backward()
        gradients.append(objects.gradients(batch, leaves))
        kind.table.write(Field.KNOWLEDGE, np.array([1, 5], ROW), before)
    plainly, held = gradients
    for field, (where, plain) in plainly.items():
        assert held[field][0].tolist() == where.tolist()
        expected = plain.copy()
        if field == Field.KNOWLEDGE:
            expected[where == 5] += hold[plan.continued == 5] * moved[1]
        np.testing.assert_allclose(held[field][1], expected, rtol=1e-5, atol=1e-6)
