"""Relation paths between pairs, their sets, and relation contexts, against the reference."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.paths import PathSets, build_relation_contexts, count_path_sets, expand_pairs, path_bits
from dkge_dist.types import ROW, DkgeError
from tests import reference
from tests.kernels.building import decoded, topology_of
from tests.reference import Path, Triple
from tests.strategies import RandomGraph, digests, graphs

small = graphs(max_rows=8, max_relations=3, max_triples=20)


def sets_of(triples: list[Triple], rows: int, pairs: list[tuple[int, int]], length: int, bits: int) -> PathSets:
    topology = topology_of(triples, rows)
    left, right = np.array(pairs, ROW).reshape(-1, 2).T
    return count_path_sets(topology.outgoing, topology.incoming, left, right, length, bits)


@given(small, st.integers(1, 4), st.data())
def test_path_sets_are_those_of_the_linked_pairs(graph: RandomGraph, length: int, data: st.DataObject) -> None:
    row = st.integers(0, graph.rows - 1)
    pairs = data.draw(st.lists(st.tuples(row, row), max_size=30))
    bits = path_bits(length, graph.relations)
    sets = sets_of(graph.triples, graph.rows, pairs, length, bits)
    known = reference.path_sets(graph.triples, length)
    expected = Counter(frozenset(known[pair]) for pair in pairs if pair in known)
    found = {}
    for i, count in enumerate(sets.pairs.tolist()):
        codes = sets.codes[sets.indptr[i] : sets.indptr[i + 1]].tolist()
        assert codes == sorted(set(codes))
        found[frozenset(decoded(code, bits) for code in codes)] = count
    assert found == expected
    assert len(found) == sets.pairs.shape[0], "every set once"


def test_more_different_sets_than_the_first_hash_table_has_slots() -> None:
    """Pair i has the relations of the bits of i: 400 different sets."""
    triples = [(i, r, i + 400) for i in range(1, 400) for r in range(9) if i >> r & 1]
    pairs = [(i, i + 400) for i in range(1, 400)]
    sets = sets_of(triples, 800, pairs + pairs[:50], 1, path_bits(1, 9))
    assert sets.pairs.tolist() == [2] * 50 + [1] * 349


@given(small, st.integers(1, 3))
def test_expanded_sets_are_all_ordered_pairs_of_paths(graph: RandomGraph, length: int) -> None:
    bits = path_bits(length, graph.relations)
    pairs = sorted({(head, tail) for head, _, tail in graph.triples})
    left, right, count = expand_pairs(sets_of(graph.triples, graph.rows, pairs, length, bits))
    found: Counter[tuple[Path, Path]] = Counter()
    for a, b, n in zip(left.tolist(), right.tolist(), count.tolist(), strict=True):
        found[decoded(a, bits), decoded(b, bits)] += n
    assert found == reference.together(graph.triples, length)


@given(small, st.integers(1, 3), st.integers(1, 6), st.integers(0, 2**63 - 1))
def test_relation_contexts_equal_the_reference(graph: RandomGraph, length: int, cap: int, seed: int) -> None:
    bits = path_bits(length, graph.relations)

    def coded(path: Path) -> int:
        return sum((relation + 1) << (bits * i) for i, relation in enumerate(path))

    table = reference.together(graph.triples, length)
    pairs = np.array(sorted((coded(a), coded(b)) for a, b in table), np.int64).reshape(-1, 2)
    digest = digests(graph.relations)
    rows = np.arange(graph.relations)[::-1]
    contexts = build_relation_contexts((pairs[:, 0], pairs[:, 1]), bits, digest, Sampling(seed, cap, 1), rows)
    for number, relation in enumerate(rows.tolist()):
        vertices, edges = reference.relation_context(table, digest, seed, cap, relation)
        size = contexts.size[number]
        found = [decoded(int(code), bits) for code in contexts.vertices[number, :size]]
        mask = contexts.mask[number]
        joined = {
            (a, b) for i, a in enumerate(found) for j, b in enumerate(found) if int(mask[i, j >> 6]) >> (j & 63) & 1
        }
        assert found == vertices
        assert joined == edges


def test_too_many_relations_for_the_path_length_are_refused() -> None:
    assert path_bits(2, 60_000) == 31
    with pytest.raises(DkgeError, match="path_length=4 allows 32,766 relations"):
        path_bits(4, 60_000)
