"""The ragged convolution and attention, forward and backward, against dense formulas in 64 bits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.adjacency import ragged
from dkge_dist.kernels.batches import RowNumbering
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.ragged import (
    CHUNK,
    RaggedBatch,
    aggregate,
    aggregate_backward,
    chunks_of,
    encode,
    encode_backward,
    ragged_batch,
)
from tests import reference
from tests.kernels.building import build, samplings
from tests.strategies import RandomGraph, graphs

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


class Case(NamedTuple):
    """Contexts of a graph as a ragged batch, and dense: (row at each vertex, Â) by context."""

    batch: RaggedBatch
    dense: list[tuple[np.ndarray, torch.Tensor]]
    rows: int


def case_of(graph: RandomGraph, sampling: Sampling) -> Case:
    contexts, expected = build(graph.triples, graph.rows, sampling)
    flat = ragged(contexts)
    distinct, slot_row = RowNumbering(graph.rows).number(flat.vertices)
    number = {int(row): i for i, row in enumerate(distinct)}
    dense = [
        (np.array([number[v] for v in context[0]]), torch.from_numpy(reference.normalised_adjacency(context)))
        for context in expected
    ]
    return Case(ragged_batch(flat, slot_row, distinct.shape[0]), dense, distinct.shape[0])


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def dense_hidden(case: Case, rows: torch.Tensor) -> list[torch.Tensor]:
    return [torch.relu(adjacency @ rows[torch.from_numpy(at)]) for at, adjacency in case.dense]


def dense_encode(
    case: Case, rows: torch.Tensor, knowledge: torch.Tensor, attention: torch.Tensor, share: torch.Tensor
) -> torch.Tensor:
    query = attention * torch.relu(knowledge)
    found = [torch.softmax(h @ q, 0) @ h for h, q in zip(dense_hidden(case, rows), query, strict=True)]
    return share * knowledge + (1 - share) * torch.stack(found)


def parameters(rng: np.random.Generator, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """(attention, the knowledge's share in the gate)."""
    return random(rng, dim), rng.uniform(0, 1, dim).astype(np.float32)


def encoded(case: Case, *given: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(weights of the attention, sums over contexts, o*) of some rows, knowledge and parameters."""
    weight = np.full(case.batch.slot_row.shape[0], np.nan, np.float32)
    context, out = np.full_like(given[1], np.nan), np.full_like(given[1], np.nan)
    encode(case.batch, *given, weight, context, out)
    return weight, context, out


@given(graphs(max_rows=16), samplings, st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_aggregation_and_its_gradient_equal_the_dense_formula(
    graph: RandomGraph, sampling: Sampling, dim: int, seed: int
) -> None:
    case, rng = case_of(graph, sampling), np.random.default_rng(seed)
    rows = random(rng, case.rows, dim)
    slots = case.batch.slot_row.shape[0]
    exact = torch.from_numpy(rows).double().requires_grad_()
    expected = torch.cat(dense_hidden(case, exact))
    out = np.full((slots, dim), np.nan, np.float32)
    aggregate(case.batch, rows, out)
    np.testing.assert_allclose(out, expected.detach(), **TOLERANCE)
    grad = random(rng, slots, dim)
    expected.backward(torch.from_numpy(grad).double())
    by_rows = np.full_like(rows, np.nan)
    aggregate_backward(case.batch, out, grad.copy(), np.full_like(grad, np.nan), by_rows)
    assert exact.grad is not None
    np.testing.assert_allclose(by_rows, exact.grad, **TOLERANCE)


@given(graphs(max_rows=18), samplings, st.integers(1, 20), st.sampled_from([0, 0.5, 1]), st.integers(0, 2**32 - 1))
def test_encoding_and_its_gradients_equal_the_dense_formula(
    graph: RandomGraph, sampling: Sampling, dim: int, learning: float, seed: int
) -> None:
    """The gradients of the rows that learn; those of others are not written."""
    case, rng = case_of(graph, sampling), np.random.default_rng(seed)
    rows, knowledge, (attention, share) = (
        random(rng, case.rows, dim),
        random(rng, graph.rows, dim),
        parameters(rng, dim),
    )
    given = (rows, knowledge, attention, share)
    leaves = [torch.from_numpy(x).double().requires_grad_() for x in given]
    expected = dense_encode(case, *leaves)
    weight, context, out = encoded(case, *given)
    np.testing.assert_allclose(out, expected.detach(), **TOLERANCE)
    sums = np.add.reduceat(weight, case.batch.indptr[:-1])
    np.testing.assert_allclose(sums, np.ones(graph.rows), rtol=1e-5)
    query = attention * np.maximum(knowledge, 0)
    for b, hidden in enumerate(dense_hidden(case, leaves[0].detach())):
        np.testing.assert_allclose(context[b], reference.attend(hidden.numpy(), query[b]), **TOLERANCE)
    grad = random(rng, graph.rows, dim)
    expected.backward(torch.from_numpy(grad).double())
    scratch = np.full((weight.shape[0], dim), np.nan, np.float32)
    by_rows, by_knowledge = np.full_like(rows, np.nan), np.full_like(knowledge, np.nan)
    by_attention, by_share = (np.full((chunks_of(graph.rows), dim), np.nan, np.float32) for _ in range(2))
    found = (by_rows, by_knowledge, by_attention, by_share)
    learns = rng.random(case.rows) < learning
    encode_backward(case.batch, *given, weight, context, grad, learns, scratch, *found)
    assert np.isnan(by_rows[~learns]).all()
    assert leaves[0].grad is not None
    leaves[0].grad[~learns] = torch.nan
    for mine, leaf in zip((*found[:2], by_attention.sum(0), by_share.sum(0)), leaves, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(mine, leaf.grad, rtol=1e-4, atol=1e-4)


@given(graphs(max_rows=12), samplings)
def test_rows_and_slots_are_inverse_to_each_other(graph: RandomGraph, sampling: Sampling) -> None:
    case = case_of(graph, sampling)
    shown = [case.batch.row_slot[case.batch.row_ptr[u] : case.batch.row_ptr[u + 1]].tolist() for u in range(case.rows)]
    slots = range(case.batch.slot_row.shape[0])
    assert shown == [[slot for slot in slots if case.batch.slot_row[slot] == u] for u in range(case.rows)]
    own = case.batch.over_slots()
    assert own.slot_row.tolist() == own.row_slot.tolist() == list(slots)
    assert own.row_ptr.tolist() == [*slots, len(slots)]
    assert own.entry_slot is case.batch.entry_slot and own.indptr is case.batch.indptr


@pytest.mark.parametrize("contexts", [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_any_number_of_contexts_around_the_chunks_of_threads(contexts: int) -> None:
    ring = RandomGraph(contexts, 1, [(i, 0, (i + 1) % contexts) for i in range(contexts)])
    case, rng = case_of(ring, Sampling(1, 8, 1)), np.random.default_rng(contexts)
    given = (random(rng, case.rows, 5), random(rng, contexts, 5), *parameters(rng, 5))
    truth = dense_encode(case, *(torch.from_numpy(x).double() for x in given))
    np.testing.assert_allclose(encoded(case, *given)[-1], truth, **TOLERANCE)
