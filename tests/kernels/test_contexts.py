"""Entity contexts, built, compared and reduced, against the reference."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.adjacency import ragged
from dkge_dist.kernels.contexts import (
    Sampling,
    build_contexts,
    contexts_differ,
    drop_vertices,
    keep_contexts,
    kept_contexts,
)
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.building import as_reference, build, samplings, topology_of
from tests.strategies import RandomGraph, digests, graphs


@given(graphs(max_rows=20), samplings)
def test_contexts_equal_the_reference(graph: RandomGraph, sampling: Sampling) -> None:
    contexts, expected = build(graph.triples, graph.rows, sampling)
    assert [as_reference(contexts, b) for b in range(graph.rows)] == expected


@pytest.mark.parametrize(
    ("cap", "hops"),
    [*itertools.product((35, 63, 64), (1, 2)), (130, 1), pytest.param(130, 2, marks=pytest.mark.slow)],
)
def test_contexts_of_a_dense_graph_with_hubs(cap: int, hops: int) -> None:
    """Long lists are searched instead of merged, and over 63 vertices an adjacency row has several words."""
    rng = np.random.default_rng(cap)
    rows = 220
    ends = np.minimum(rng.integers(0, rows, (4000, 2)), rng.integers(0, rows, (4000, 2)))
    hub = [(0, 1, t) for t in range(1, rows)] + [(1, 0, t) for t in range(2, rows, 2)]
    triples = [(int(h), 0, int(t)) for h, t in ends] + hub
    contexts, expected = build(triples, rows, Sampling(5, cap, hops))
    assert [as_reference(contexts, b) for b in range(rows)] == expected


def test_one_more_neighbour_rarely_changes_the_sample_of_a_hub() -> None:
    """A hub of 500 gets one neighbour more: its sample of 35 changes in about 35 of 500 cases."""
    changed = 0
    for trial in range(200):
        digest = digests(502, trial)
        sampling = Sampling(trial, 35, 1)
        rows = np.array([0])
        stars = [[(0, 0, t) for t in range(1, last)] for last in (501, 502)]
        topologies = [topology_of(star, 502) for star in stars]
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
    """Dropped: vertices outside the context, the object itself, one vertex twice, all of them."""
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
    """Bits move over word borders, from the first slot to the last."""
    rng = np.random.default_rng(cap)
    rows = 215
    triples = [(0, 0, t) for t in range(1, rows)]
    triples += [(int(h), 1, int(t)) for h, t in rng.integers(0, rows, (6000, 2))]
    topology = topology_of(triples, rows)
    sampling = Sampling(3, cap, 1)
    whole = reference.entity_context(reference.neighbours(triples), digests(rows), *sampling, 0)
    assert len(whole[0]) == cap + 1
    slots = sorted(slot for slot in {0, 1, 62, 63, 64, 127, 128, cap - 1, cap} if slot <= cap)
    # The context of the hub again and again, each time with another slot to drop.
    contexts = build_contexts(topology.neighbours, digests(rows), sampling, np.zeros(len(slots), np.int64))
    drop_vertices(contexts, np.arange(len(slots)), np.array(whole[0])[slots])
    for number, slot in enumerate(slots):
        assert as_reference(contexts, number) == reference.without_vertex(whole, whole[0][slot])
    drop_vertices(contexts, np.zeros(cap, np.int64), rng.permutation(whole[0][1:]))
    assert as_reference(contexts, 0) == ([0], frozenset())


@given(graphs(max_rows=20), samplings, st.sampled_from([3, 1 << 16]), st.data())
def test_kept_contexts_are_those_built(
    graph: RandomGraph, sampling: Sampling, at_once: int, data: st.DataObject
) -> None:
    """Of some rows, and of these some in any order; built in one turn or in several."""
    row = st.integers(0, graph.rows - 1)
    rows = np.array(data.draw(st.lists(row, unique=True, min_size=1)), ROW)
    numbers = np.array(data.draw(st.lists(st.integers(0, rows.shape[0] - 1))), ROW)
    neighbours, digest = topology_of(graph.triples, graph.rows).neighbours, digests(graph.rows)
    with patch("dkge_dist.kernels.contexts.KEPT_AT_ONCE", at_once):
        kept = keep_contexts(neighbours, digest, sampling, rows)
    found = kept_contexts(kept, numbers, sampling)
    expected = build_contexts(neighbours, digest, sampling, rows[numbers])
    assert found.size.tolist() == expected.size.tolist()
    assert not contexts_differ(found, expected).any()


@pytest.mark.parametrize("cap", [63, 130])
def test_kept_contexts_with_adjacency_rows_of_several_words(cap: int) -> None:
    rng = np.random.default_rng(cap)
    neighbours = topology_of([(int(h), 0, int(t)) for h, t in rng.integers(0, 150, (3000, 2))], 150).neighbours
    sampling, every = Sampling(5, cap, 1), np.arange(150, dtype=ROW)
    found = kept_contexts(keep_contexts(neighbours, digests(150), sampling, every), every[::-1].copy(), sampling)
    assert not contexts_differ(found, build_contexts(neighbours, digests(150), sampling, every[::-1].copy())).any()
