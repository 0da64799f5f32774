"""Both encoders equal the published formulas, computed densely in 64 bits: outputs and every gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.adjacency import padded_blocks
from dkge_dist.kernels.batches import RowNumbering
from dkge_dist.kernels.contexts import Sampling, build_contexts
from dkge_dist.kernels.triples import canonical
from dkge_dist.learning.contexts import EntityContexts
from dkge_dist.model.attentive_gcn import PaddedBlock
from dkge_dist.model.dkge import Encoder
from tests import reference
from tests.strategies import RandomGraph, digests, graphs, to_triples

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def padded_places(contexts, rows: int) -> tuple[list[PaddedBlock], np.ndarray]:
    """Padded blocks over the same numbering of rows as the ragged form."""
    numbering = RowNumbering(rows)
    flat = np.concatenate([contexts.vertices[b, : contexts.size[b]] for b in range(contexts.size.shape[0])])
    vertex_rows, _ = numbering.number(flat)
    number = {int(row): i for i, row in enumerate(vertex_rows)}
    blocks = []
    for block in padded_blocks(contexts):
        real = block.vertices >= 0
        at = np.vectorize(lambda row: number.get(int(row), 0))(block.vertices)
        blocks.append(
            PaddedBlock(
                *(torch.from_numpy(np.ascontiguousarray(x)) for x in (block.contexts, at, block.adjacency, real))
            )
        )
    return blocks, vertex_rows


def run(encoder: Encoder, features: torch.Tensor, contexts, knowledge: torch.Tensor, wanted: torch.Tensor):
    """Output and all gradients of Σ output ⊙ wanted."""
    leaves = [features.clone().requires_grad_(), knowledge.clone().requires_grad_()]
    out = encoder(leaves[0], contexts, leaves[1])
    parameters = [*leaves, *encoder.parameters()]
    return [out.detach(), *torch.autograd.grad((out * wanted).sum(), parameters)]


@given(graphs(max_rows=18), st.integers(1, 3), st.integers(1, 7), st.sampled_from([3, 8, 20]), st.integers(0, 99))
def test_ragged_and_padded_equal_the_dense_formulas(
    graph: RandomGraph, layers: int, cap: int, dim: int, seed: int
) -> None:
    topology = Topology.of(canonical(to_triples(graph.triples)), graph.rows)
    digest, sampling = digests(graph.rows), Sampling(seed, cap, 1)
    rows = np.arange(graph.rows, dtype=np.int32)
    batch = EntityContexts(topology, digest, sampling).batch(rows)
    blocks, vertex_rows = padded_places(build_contexts(topology.neighbours, digest, sampling, rows), graph.rows)
    assert np.array_equal(vertex_rows, batch.vertex_rows)

    generator = torch.Generator().manual_seed(seed)
    encoder = Encoder(dim, layers, generator)
    with torch.no_grad():
        encoder.gcn.attention.normal_(generator=generator)
        encoder.gate.logits.normal_(generator=generator)
    features = torch.randn(len(vertex_rows), dim, generator=generator)
    knowledge = torch.randn(graph.rows, dim, generator=generator)
    wanted = torch.randn(graph.rows, dim, generator=generator)
    ragged = run(encoder, features, batch.places, knowledge, wanted)
    padded = run(encoder, features, blocks, knowledge, wanted)

    number = {int(row): i for i, row in enumerate(vertex_rows)}
    simple = reference.neighbours(graph.triples)
    dense = []
    for row in range(graph.rows):
        context = reference.entity_context(simple, digest, *sampling, row)
        dense.append((np.array([number[v] for v in context[0]]), reference.normalised_adjacency(context)))
    exact = [x.double().detach().requires_grad_() for x in (features, knowledge, *encoder.parameters())]
    attention, *weights, gate = exact[2:]  # the order of `parameters()`: own ones before those of submodules
    out = reference.encode(dense, exact[0], exact[1], weights, attention, gate)
    expected = [out.detach(), *torch.autograd.grad((out * wanted.double()).sum(), exact)]
    for mine, other, truth in zip(ragged, padded, expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), truth.numpy(), **TOLERANCE)
        np.testing.assert_allclose(other.numpy(), truth.numpy(), **TOLERANCE)


def test_padding_never_leaks() -> None:
    """Whatever stands in the padding places, nothing of it reaches the result."""
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
    from dkge_dist.kernels import jit

    rng = np.random.default_rng(0)
    triples = [(int(h), 0, int(t)) for h, t in rng.integers(0, 300, (1500, 2))]
    topology = Topology.of(canonical(to_triples(triples)), 300)
    batch = EntityContexts(topology, digests(300), Sampling(1, 35, 1)).batch(np.arange(300, dtype=np.int32))
    generator = torch.Generator().manual_seed(0)
    encoder = Encoder(32, 1, generator)
    features, knowledge, wanted = (torch.randn(300, 32, generator=generator) for _ in range(3))
    before = jit.threads()
    try:
        jit.set_threads(2)
        many = run(encoder, features[: len(batch.vertex_rows)], batch.places, knowledge, wanted)
        jit.set_threads(threads)
        again = run(encoder, features[: len(batch.vertex_rows)], batch.places, knowledge, wanted)
    finally:
        jit.set_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(many, again, strict=True))
