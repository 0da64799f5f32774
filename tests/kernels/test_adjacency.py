"""Padded and ragged forms of contexts hold the same normalised adjacency as the reference."""

import numpy as np
import pytest
from hypothesis import given

from dkge_dist.kernels.adjacency import PADDING, padded_blocks, ragged, width_classes
from dkge_dist.kernels.contexts import Contexts, Sampling
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.building import build, samplings
from tests.strategies import RandomGraph, graphs


@given(graphs(max_rows=16), samplings)
def test_ragged_and_padded_hold_the_same_normalised_adjacency(graph: RandomGraph, sampling: Sampling) -> None:
    contexts, expected = build(graph.triples, graph.rows, sampling)
    flat = ragged(contexts)
    seen = []
    for block in padded_blocks(contexts):
        width = block.vertices.shape[1]
        for k, b in enumerate(block.contexts):
            vertices, _ = expected[b]
            n = len(vertices)
            dense = reference.normalised_adjacency(expected[b])
            seen.append(int(b))
            assert block.size[k] == n
            assert block.vertices[k].tolist() == vertices + [PADDING] * (width - n)
            np.testing.assert_allclose(block.adjacency[k, :n, :n], dense, rtol=1e-6)
            np.testing.assert_allclose(block.adjacency[k], reference.padded_adjacency(expected[b], width), rtol=1e-6)
            assert not block.adjacency[k, n:].any()
            assert not block.adjacency[k, :, n:].any()

            first, end = flat.indptr[b], flat.indptr[b + 1]
            assert flat.vertices[first:end].tolist() == vertices
            rebuilt = np.zeros((n, n))
            for i in range(n):
                entries = slice(flat.entry_ptr[first + i], flat.entry_ptr[first + i + 1])
                slots = flat.entry_slot[entries] - first
                assert len(set(slots.tolist())) == len(slots)
                rebuilt[i, slots] = flat.entry_weight[entries]
            np.testing.assert_allclose(rebuilt, dense, rtol=1e-6)
    assert sorted(seen) == list(range(graph.rows))


def test_width_classes_end_at_the_cap() -> None:
    assert width_classes(36) == (8, 16, 24, 32, 40)
    assert width_classes(8) == (8,)
    assert width_classes(9) == (8, 16)
    assert width_classes(100) == (8, 16, 24, 32, 40, 100)


@pytest.mark.parametrize("size", [1, 8, 9, 40, 41, 60])
def test_contexts_are_in_the_narrowest_class_that_fits(size: int) -> None:
    star = [(0, 0, t) for t in range(1, size)]
    contexts, _ = build(star, size, Sampling(1, 59, 1))
    blocks = padded_blocks(contexts)
    hub = next(block for block in blocks if 0 in block.contexts)
    assert hub.vertices.shape[1] == next(width for width in width_classes(60) if width >= size)
    assert sorted(int(b) for block in blocks for b in block.contexts) == list(range(size))


def test_no_contexts_are_no_blocks() -> None:
    none = Contexts(np.empty(0, ROW), np.empty((0, 36), ROW), np.empty((0, 36, 1), np.uint64))
    assert padded_blocks(none) == []
    flat = ragged(none)
    assert flat.indptr.tolist() == flat.entry_ptr.tolist() == [0]
    assert flat.vertices.shape == flat.entry_slot.shape == (0,)
