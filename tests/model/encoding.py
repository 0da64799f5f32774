"""Contexts of a random graph in all forms: ragged, padded and dense, over the same distinct rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dkge_dist.kernels.adjacency import padded_blocks, ragged
from dkge_dist.kernels.batches import RowNumbering
from dkge_dist.kernels.contexts import Contexts, Sampling, build_contexts
from dkge_dist.kernels.ragged import RaggedBatch, ragged_batch
from dkge_dist.model.attentive_gcn import PaddedBlock
from dkge_dist.model.dkge import Encoder
from tests import reference
from tests.kernels.building import topology_of
from tests.strategies import RandomGraph, digests

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


class Forms(NamedTuple):
    """The contexts of all entities of a graph; `dense` are (row at each vertex, Â) in 64 bits."""

    ragged: RaggedBatch
    padded: list[PaddedBlock]
    dense: list[tuple[np.ndarray, np.ndarray]]
    rows: int

    @property
    def count(self) -> int:
        return len(self.dense)


def forms_of(graph: RandomGraph, sampling: Sampling) -> Forms:
    digest = digests(graph.rows)
    every = np.arange(graph.rows, dtype=np.int32)
    contexts = build_contexts(topology_of(graph.triples, graph.rows).neighbours, digest, sampling, every)
    flat = ragged(contexts)
    distinct, slot_row = RowNumbering(graph.rows).number(flat.vertices)
    number = {int(row): i for i, row in enumerate(distinct)}
    simple = reference.neighbours(graph.triples)
    dense = []
    for row in range(graph.rows):
        context = reference.entity_context(simple, digest, *sampling, row)
        dense.append((np.array([number[v] for v in context[0]]), reference.normalised_adjacency(context)))
    batch = ragged_batch(flat, slot_row, distinct.shape[0])
    return Forms(batch, _padded(contexts, number), dense, distinct.shape[0])


def _padded(contexts: Contexts, number: dict[int, int]) -> list[PaddedBlock]:
    blocks = []
    for block in padded_blocks(contexts):
        real = block.vertices >= 0
        rows = np.vectorize(lambda row: number.get(int(row), 0))(block.vertices)
        blocks.append(PaddedBlock(*(torch.from_numpy(x) for x in (block.contexts, rows, block.adjacency, real))))
    return blocks


class Inputs(NamedTuple):
    """An encoder with random parameters, vectors to encode, and weights of its outputs."""

    encoder: Encoder
    features_UD: Tensor
    knowledge_BD: Tensor
    wanted_BD: Tensor


def inputs_for(forms: Forms, dim: int, layers: int, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    encoder = Encoder(dim, layers, generator)
    with torch.no_grad():
        encoder.gcn.attention.normal_(generator=generator)
        encoder.gate.logits.normal_(generator=generator)
    shapes = (forms.rows, forms.count, forms.count)
    return Inputs(encoder, *(torch.randn(rows, dim, generator=generator) for rows in shapes))


def run(inputs: Inputs, contexts: RaggedBatch | list[PaddedBlock]) -> list[Tensor]:
    """o* and the gradients of Σ o* ⊙ wanted by features, knowledge and all parameters."""
    leaves = [inputs.features_UD.clone().requires_grad_(), inputs.knowledge_BD.clone().requires_grad_()]
    out = inputs.encoder(leaves[0], contexts, leaves[1])
    parameters = [*leaves, *inputs.encoder.parameters()]
    return [out.detach(), *torch.autograd.grad((out * inputs.wanted_BD).sum(), parameters)]


def run_dense(inputs: Inputs, forms: Forms) -> list[Tensor]:
    """The same by the published formulas, in 64 bits."""
    given = (inputs.features_UD, inputs.knowledge_BD, *inputs.encoder.parameters())
    exact = [x.double().detach().requires_grad_() for x in given]
    attention, *weights, gate = exact[2:]  # the order of `parameters()`: own ones before those of submodules
    out = reference.encode(forms.dense, exact[0], exact[1], weights, attention, gate)
    return [out.detach(), *torch.autograd.grad((out * inputs.wanted_BD.double()).sum(), exact)]
