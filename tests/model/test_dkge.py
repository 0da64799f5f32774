"""The whole model: its parameters by seed and size, and features of relation paths."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.model.dkge import (
    Dkge,
    Gate,
    encode_frozen,
    encode_partly_frozen,
    hidden_features,
    path_features,
    products,
)
from tests.model.encoding import TOLERANCE, forms_of, inputs_for
from tests.strategies import RandomGraph, graphs


def test_parameters_are_those_of_two_encoders() -> None:
    model = Dkge(5, entity_layers=2, relation_layers=3)
    assert {name: tuple(value.shape) for name, value in model.named_parameters()} == {
        **{f"entity.gcn.weights.{i}": (5, 5) for i in range(2)},
        **{f"relation.gcn.weights.{i}": (5, 5) for i in range(3)},
        **{f"{kind}.gcn.attention": (5,) for kind in ("entity", "relation")},
        **{f"{kind}.gate.logits": (5,) for kind in ("entity", "relation")},
    }


def test_seed_decides_all_parameters() -> None:
    one, same, other = (dict(Dkge(4, 1, 1, seed).named_parameters()) for seed in (7, 7, 8))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["entity.gcn.weights.0"], other["entity.gcn.weights.0"])
    assert not torch.equal(one["entity.gcn.weights.0"], one["relation.gcn.weights.0"])


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=10), st.integers(0, 99))
def test_features_of_paths_are_sums_over_their_relations(paths: list[list[int]], seed: int) -> None:
    table = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    bag = torch.tensor([relation for path in paths for relation in path])
    offsets = torch.tensor(np.cumsum([0, *map(len, paths[:-1])]))
    found = path_features(table, bag, offsets)
    expected = torch.stack([table[path].sum(0) for path in paths])
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad((x * x).sum(), table, retain_graph=True)[0] for x in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_paths_on_another_device_stay_there() -> None:
    table = torch.randn(6, 3).to("meta").requires_grad_()
    numbers = torch.tensor([0, 1, 2]).to("meta")
    found = path_features(table, numbers, numbers[:2])
    assert found.device.type == "meta"
    assert torch.autograd.grad(found.sum(), table)[0].device.type == "meta"


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_gate_mixes_by_the_sigmoid_of_its_logits(objects: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gate = Gate(dim)
    with torch.no_grad():
        gate.logits.normal_(std=3, generator=generator)
    own, context = (torch.randn(objects, dim, generator=generator) for _ in range(2))
    share = 1 / (1 + torch.exp(-gate.logits.double()))
    torch.testing.assert_close(gate(own, context).double(), share * own + (1 - share) * context, rtol=1e-5, atol=1e-5)


def test_gate_starts_half_and_half() -> None:
    own, context = torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, -5.0]])
    assert Gate(2)(own, context).tolist() == [[2.0, 0.0]]


def test_gradients_reach_both_sides_and_the_logits() -> None:
    gate = Gate(3)
    own, context = torch.ones(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    gate(own, context).sum().backward()
    assert own.grad is not None and own.grad.tolist() == [[0.5] * 3] * 2
    assert context.grad is not None and context.grad.tolist() == [[0.5] * 3] * 2
    assert gate.logits.grad is not None and gate.logits.grad.tolist() == [0.5] * 3


@given(graphs(max_rows=14), st.integers(1, 3), st.integers(1, 7), st.sampled_from([3, 8, 20]), st.data())
def test_frozen_encoding_equals_the_whole_encoder(
    graph: RandomGraph, layers: int, cap: int, dim: int, data: st.DataObject
) -> None:
    """Objects in any order, some of them several times, some not at all."""
    forms = forms_of(graph, Sampling(5, cap, 1))
    encoder, features, knowledge, _ = inputs_for(forms, dim, layers, 1)
    encoder.requires_grad_(False)
    made = torch.from_numpy(products(encoder.gcn, features.clone().requires_grad_()))
    hidden = hidden_features(encoder.gcn, made, forms.ragged)
    assert hidden.shape == (forms.ragged.slot_row.shape[0], dim)
    objects = np.array(data.draw(st.lists(st.integers(0, graph.rows - 1), min_size=1, max_size=20)))
    begin, end = forms.ragged.indptr[:-1][objects], forms.ragged.indptr[1:][objects]
    leaves = [knowledge.clone().requires_grad_() for _ in range(2)]
    whole = encoder(features, forms.ragged, leaves[0])[torch.from_numpy(objects)]
    frozen = encode_frozen(encoder, leaves[1][torch.from_numpy(objects)], begin, end, hidden)
    assert torch.equal(whole, frozen), "the same sums in the same order"
    wanted = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
    for out in (whole, frozen):
        (out * wanted).sum().backward()
    np.testing.assert_allclose(leaves[0].grad, leaves[1].grad, **TOLERANCE)


@given(graphs(max_rows=14), st.integers(1, 3), st.integers(1, 7), st.sampled_from([3, 8, 20]), st.data())
def test_partly_frozen_encoding_equals_the_whole_encoder(
    graph: RandomGraph, layers: int, cap: int, dim: int, data: st.DataObject
) -> None:
    """None, some or all rows learn: the same vectors, and the gradients of those rows and of `^k`."""
    forms = forms_of(graph, Sampling(5, cap, 1))
    encoder, features, knowledge, _ = inputs_for(forms, dim, layers, 1)
    encoder.requires_grad_(False)
    rows = features.shape[0]
    learning = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), np.int64)
    kept = torch.from_numpy(products(encoder.gcn, features))
    kept[learning] = torch.nan
    leaves = [[tensor.clone().requires_grad_() for tensor in (features, knowledge)] for _ in range(2)]
    whole = encoder(leaves[0][0], forms.ragged, leaves[0][1])
    learn = leaves[1][0][torch.from_numpy(learning)]
    partly = encode_partly_frozen(encoder, kept, learning, learn, leaves[1][1], forms.ragged)
    np.testing.assert_allclose(partly.detach(), whole.detach(), **TOLERANCE)
    wanted = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
    for out in (whole, partly):
        (out * wanted).sum().backward()
    np.testing.assert_allclose(leaves[1][1].grad, leaves[0][1].grad, **TOLERANCE)
    by_whole, by_partly = (torch.zeros(rows, dim) if some[0].grad is None else some[0].grad for some in leaves)
    np.testing.assert_allclose(by_partly[learning], by_whole[learning], **TOLERANCE)
    assert not by_partly[np.setdiff1d(np.arange(rows), learning)].any()
