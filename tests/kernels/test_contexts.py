"""Contexts and their padded and ragged forms against the reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.adjacency import PADDING, padded_blocks, ragged, width_classes
from dkge_dist.kernels.contexts import Contexts, Sampling, build_contexts, contexts_differ, drop_vertices
from dkge_dist.kernels.triples import canonical
from tests import reference
from tests.reference import Context, Triple
from tests.strategies import RandomGraph, digests, graphs, to_triples


def as_reference(contexts: Contexts, b: int) -> Context:
    vertices = contexts.vertices[b, : contexts.size[b]].tolist()
    bits = [(i, j) for i in range(len(vertices)) for j in range(64 * contexts.mask.shape[2])]
    edges = frozenset((vertices[i], vertices[j]) for i, j in bits if int(contexts.mask[b, i, j >> 6]) >> (j & 63) & 1)
    return vertices, edges


def build(triples: list[Triple], rows: int, sampling: Sampling) -> tuple[Contexts, list[Context]]:
    topology = Topology.of(canonical(to_triples(triples)), rows)
    digest = digests(rows)
    graph = reference.neighbours(triples)
    expected = [reference.entity_context(graph, digest, *sampling, entity) for entity in range(rows)]
    return build_contexts(topology.neighbours, digest, sampling, np.arange(rows)), expected


samplings = st.builds(Sampling, st.integers(0, 2**63 - 1), st.integers(1, 8), st.integers(1, 4))


@given(graphs(max_rows=20), samplings)
def test_contexts_equal_the_reference(graph: RandomGraph, sampling: Sampling) -> None:
    contexts, expected = build(graph.triples, graph.rows, sampling)
    assert [as_reference(contexts, b) for b in range(graph.rows)] == expected


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("cap", [35, 63, 64, 130])
def test_contexts_of_a_dense_graph_with_hubs(cap: int, hops: int) -> None:
    """Long lists are searched instead of merged, and over 63 vertices an adjacency row has several words."""
    rng = np.random.default_rng(cap)
    rows = 220
    ends = np.minimum(rng.integers(0, rows, (4000, 2)), rng.integers(0, rows, (4000, 2)))
    hub = [(0, 1, t) for t in range(1, rows)] + [(1, 0, t) for t in range(2, rows, 2)]
    triples = [(int(h), 0, int(t)) for h, t in ends] + hub
    contexts, expected = build(triples, rows, Sampling(5, cap, hops))
    assert [as_reference(contexts, b) for b in range(rows)] == expected


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
                places = flat.entry_place[entries] - first
                assert len(set(places.tolist())) == len(places)
                rebuilt[i, places] = flat.entry_weight[entries]
            np.testing.assert_allclose(rebuilt, dense, rtol=1e-6)
    assert sorted(seen) == list(range(graph.rows))


def test_width_classes_end_at_the_cap() -> None:
    assert width_classes(36) == (8, 16, 24, 32, 40)
    assert width_classes(8) == (8,)
    assert width_classes(9) == (8, 16)
    assert width_classes(100) == (8, 16, 24, 32, 40, 100)


def test_sample_depends_on_the_set_alone_and_one_neighbour_seldom_matters() -> None:
    """A hub of 500 gets one neighbour more: its sample of 35 changes in about 35 of 500 cases."""
    changed = 0
    for trial in range(200):
        digest = digests(502, trial)
        sampling = Sampling(trial, 35, 1)
        rows = np.array([0])
        stars = [[(0, 0, t) for t in range(1, last)] for last in (501, 502)]
        topologies = [Topology.of(canonical(to_triples(star)), 502) for star in stars]
        old, new = (build_contexts(t.neighbours, digest, sampling, rows) for t in topologies)
        changed += bool(contexts_differ(old, new)[0])
    assert 3 <= changed <= 35


@given(graphs(), graphs(), samplings)
def test_contexts_differ_where_vertices_or_edges_do(one: RandomGraph, other: RandomGraph, sampling: Sampling) -> None:
    rows = max(one.rows, other.rows)
    (a, a_expected), (b, b_expected) = (build(graph.triples, rows, sampling) for graph in (one, other))
    differs = [x != y for x, y in zip(a_expected, b_expected, strict=True)]
    assert contexts_differ(a, b).tolist() == differs


@given(graphs(max_rows=16), samplings, st.data())
def test_dropped_vertices_leave_what_the_others_induce(
    graph: RandomGraph, sampling: Sampling, data: st.DataObject
) -> None:
    """Among what is dropped: vertices that are not there, the object itself, the same one twice, all of them."""
    contexts, expected = build(graph.triples, graph.rows, sampling)
    row = st.integers(0, graph.rows - 1)
    drops = data.draw(st.lists(st.tuples(row, row), max_size=30))
    drop_vertices(contexts, np.array([b for b, _ in drops], np.int64), np.array([gone for _, gone in drops], np.int64))
    for b, gone in drops:
        expected[b] = reference.without_vertex(expected[b], gone)
    assert [as_reference(contexts, b) for b in range(graph.rows)] == expected
    flat = ragged(contexts)
    assert flat.vertices.tolist() == [vertex for vertices, _ in expected for vertex in vertices]


@pytest.mark.parametrize("cap", [62, 63, 64, 127, 128, 200])
def test_dropped_vertices_of_adjacency_rows_of_several_words(cap: int) -> None:
    """Bits move over word borders, from the first place to the last."""
    rng = np.random.default_rng(cap)
    rows = 215
    triples = [(0, 0, t) for t in range(1, rows)]
    triples += [(int(h), 1, int(t)) for h, t in rng.integers(0, rows, (6000, 2))]
    topology = Topology.of(canonical(to_triples(triples)), rows)
    sampling = Sampling(3, cap, 1)
    whole = reference.entity_context(reference.neighbours(triples), digests(rows), *sampling, 0)
    assert len(whole[0]) == cap + 1
    places = sorted(place for place in {0, 1, 62, 63, 64, 127, 128, cap - 1, cap} if place <= cap)
    # The hub's context over and over, each time with another place to drop.
    contexts = build_contexts(topology.neighbours, digests(rows), sampling, np.zeros(len(places), np.int64))
    drop_vertices(contexts, np.arange(len(places)), np.array(whole[0])[places])
    for number, place in enumerate(places):
        assert as_reference(contexts, number) == reference.without_vertex(whole, whole[0][place])
    drop_vertices(contexts, np.zeros(cap, np.int64), rng.permutation(whole[0][1:]))
    assert as_reference(contexts, 0) == ([0], frozenset())
