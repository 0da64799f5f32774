"""Path counts and relation contexts, counted and updated, against the reference."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.paths import path_bits
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import DkgeError
from tests import reference
from tests.reference import Path, Triple
from tests.strategies import Evolution, RandomGraph, digests, evolutions, graphs, to_triples


def decoded(code: int, bits: int) -> Path:
    path = []
    while code:
        path.append((code & ((1 << bits) - 1)) - 1)
        code >>= bits
    return tuple(path)


def as_counter(counts: PathCounts) -> Counter[tuple[Path, Path]]:
    keys = [
        (decoded(int(a), counts.bits), decoded(int(b), counts.bits))
        for a, b in zip(counts.left, counts.right, strict=True)
    ]
    assert len(set(keys)) == len(keys)
    return Counter(dict(zip(keys, counts.count.tolist(), strict=True)))


def count(triples: list[Triple], rows: int, relations: int, length: int) -> tuple[Topology, PathCounts]:
    train = canonical(to_triples(triples))
    topology = Topology.of(train, rows)
    return topology, PathCounts.of(topology, train, relations, length)


small = graphs(max_rows=8, max_relations=3, max_triples=20)


@given(small, st.integers(1, 4))
def test_counts_equal_the_reference(graph: RandomGraph, length: int) -> None:
    _, counts = count(graph.triples, graph.rows, graph.relations, length)
    assert as_counter(counts) == reference.together(graph.triples, length)


@given(evolutions(max_rows=8, max_relations=3, max_triples=20), st.integers(1, 4))
def test_updated_counts_equal_counting_again(night: Evolution, length: int) -> None:
    graph, after = night
    before, counts = count(graph.triples, graph.rows, graph.relations, length)
    change = Change.between(canonical(to_triples(graph.triples)), canonical(to_triples(after)))
    now, _ = before.after(change)
    updated, turned = counts.after(before, now, change, graph.relations)
    old, new = reference.together(graph.triples, length), reference.together(after, length)
    assert as_counter(updated) == new
    expected = {a for a, b in (set(old) ^ set(new))}
    assert {decoded(int(path), counts.bits) for path in turned} == expected


@given(small, st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**63 - 1))
def test_relation_contexts_equal_the_reference(graph: RandomGraph, length: int, cap: int, seed: int) -> None:
    _, counts = count(graph.triples, graph.rows, graph.relations, length)
    digest = digests(graph.relations)
    contexts = counts.contexts(digest, Sampling(seed, cap, 1), np.arange(graph.relations))
    table = reference.together(graph.triples, length)
    for relation in range(graph.relations):
        vertices, edges = reference.relation_context(table, digest, seed, cap, relation)
        size = contexts.size[relation]
        found = [decoded(int(code), counts.bits) for code in contexts.vertices[relation, :size]]
        joined = {
            (found[i], found[j])
            for i in range(size)
            for j in range(size)
            if int(contexts.mask[relation, i, j >> 6]) >> (j & 63) & 1
        }
        assert found == vertices
        assert joined == edges


def test_walks_over_hubs_are_searched() -> None:
    """One end has a hundred times the other's neighbours: the long list is searched, with the same result."""
    triples = [(0, 0, t) for t in range(2, 300)] + [(5, 1, 1), (250, 2, 1), (0, 1, 1)]
    _, counts = count(triples, 300, 3, 2)
    assert as_counter(counts) == reference.together(triples, 2)


def test_too_many_relations_for_the_path_length_are_refused() -> None:
    assert path_bits(2, 60_000) == 31
    with pytest.raises(DkgeError, match="path_length=4 allows 32,766 relations"):
        path_bits(4, 60_000)
