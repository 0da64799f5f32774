"""Ragged and padded contexts give the published formulas, computed densely in 64 bits: outputs and every gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels import jit
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.model.attentive_gcn import AttentiveGcn, PaddedBlock
from dkge_dist.model.dkge import Encoder
from tests.model.encoding import TOLERANCE, forms_of, inputs_for, run, run_dense
from tests.strategies import RandomGraph, graphs

dims = st.sampled_from([3, 8, 20])
DENSE = RandomGraph(
    300, 1, [(int(h), 0, int(t)) for h, t in np.random.default_rng(0).integers(0, 300, (1500, 2))]
)  # fmt: skip
"""A graph with contexts of many sizes."""


@given(graphs(max_rows=18), st.integers(1, 3), st.integers(1, 7), dims, st.integers(0, 99))
def test_ragged_and_padded_equal_the_dense_formulas(
    graph: RandomGraph, layers: int, cap: int, dim: int, seed: int
) -> None:
    forms = forms_of(graph, Sampling(seed, cap, 1))
    inputs = inputs_for(forms, dim, layers, seed)
    ragged, padded = run(inputs, forms.ragged), run(inputs, forms.padded)
    for mine, other, truth in zip(ragged, padded, run_dense(inputs, forms), strict=True):
        np.testing.assert_allclose(mine.numpy(), truth.numpy(), **TOLERANCE)
        np.testing.assert_allclose(other.numpy(), truth.numpy(), **TOLERANCE)


@given(graphs(max_rows=14), st.integers(1, 3), st.integers(1, 7), dims, st.integers(0, 99))
def test_hidden_and_its_gradients_equal_the_dense_formula(
    graph: RandomGraph, layers: int, cap: int, dim: int, seed: int
) -> None:
    forms = forms_of(graph, Sampling(seed, cap, 1))
    encoder, features, *_ = inputs_for(forms, dim, layers, seed)
    leaves = [features.requires_grad_(), *encoder.gcn.weights]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    parts = []
    for rows, adjacency in forms.dense:
        part = exact[0][torch.from_numpy(rows)]
        for weight in exact[1:]:
            part = torch.relu(torch.from_numpy(adjacency) @ part @ weight)
        parts.append(part)
    found, truth = encoder.gcn.hidden(leaves[0], forms.ragged), torch.cat(parts)
    np.testing.assert_allclose(found.detach(), truth.detach(), **TOLERANCE)
    wanted = torch.randn(truth.shape, generator=torch.Generator().manual_seed(seed))
    mine = torch.autograd.grad((found * wanted).sum(), leaves)
    theirs = torch.autograd.grad((truth * wanted.double()).sum(), exact)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_padding_never_leaks() -> None:
    """Whatever row the padding slots name, nothing of it reaches the result."""
    encoder = Encoder(4, 2)
    features, knowledge = torch.randn(3, 4), torch.randn(1, 4)
    adjacency = torch.zeros(1, 8, 8)
    adjacency[0, :2, :2] = 0.5
    real = torch.tensor([[True, True] + [False] * 6])
    results = [
        encoder(
            features,
            [PaddedBlock(torch.tensor([0]), torch.tensor([[0, 1] + [filler] * 6]), adjacency, real)],
            knowledge,
        )
        for filler in (0, 1, 2)
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("threads", [1, 2])
def test_ragged_results_do_not_depend_on_threads(threads: int) -> None:
    forms = forms_of(DENSE, Sampling(1, 35, 1))
    inputs = inputs_for(forms, 32, 1, 0)
    before = jit.threads()
    try:
        jit.set_threads(2)
        many = run(inputs, forms.ragged)
        jit.set_threads(threads)
        again = run(inputs, forms.ragged)
    finally:
        jit.set_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(many, again, strict=True))


def test_same_seed_same_weights() -> None:
    one, other = (AttentiveGcn(6, 2, torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert one.attention.abs().max() <= 0.01
    assert len(one.weights) == 2


class TestDevices:
    """The `meta` device computes shapes only, and refuses to be mixed with the CPU as a GPU does."""

    @pytest.mark.parametrize("layers", [1, 3])
    def test_padded_path_stays_on_the_device_of_its_inputs(self, layers: int) -> None:
        forms = forms_of(DENSE, Sampling(1, 35, 1))
        encoder, features, knowledge, wanted = inputs_for(forms, 8, layers, 0)
        meta = torch.device("meta")
        encoder = encoder.to(meta)
        blocks = [block.to(meta) for block in forms.padded]
        leaves = [tensor.to(meta).requires_grad_() for tensor in (features, knowledge)]
        out = encoder(leaves[0], blocks, leaves[1])
        found = torch.autograd.grad((out * wanted.to(meta)).sum(), [*leaves, *encoder.parameters()])
        assert all(tensor.device == meta for tensor in (out, *found))
        assert out.shape == knowledge.shape

    def test_inputs_on_two_devices_are_refused(self) -> None:
        """A copy inside `forward` would hide it."""
        forms = forms_of(DENSE, Sampling(1, 35, 1))
        encoder, features, knowledge, _ = inputs_for(forms, 8, 1, 0)
        with pytest.raises(RuntimeError, match="device"):
            encoder.to("meta")(features.to("meta"), forms.padded, knowledge.to("meta"))

    @pytest.mark.gpu
    @pytest.mark.parametrize("layers", [1, 3])
    def test_gpu_gives_what_the_cpu_gives(self, layers: int) -> None:
        forms = forms_of(DENSE, Sampling(1, 35, 1))
        inputs = inputs_for(forms, 32, layers, 0)
        expected = run(inputs, forms.ragged)
        cuda = torch.device("cuda")
        moved = type(inputs)(inputs.encoder.to(cuda), *(tensor.to(cuda) for tensor in inputs[1:]))
        for mine, truth in zip(run(moved, [block.to(cuda) for block in forms.padded]), expected, strict=True):
            assert mine.device.type == "cuda"
            np.testing.assert_allclose(mine.cpu(), truth, rtol=1e-3, atol=1e-3)
