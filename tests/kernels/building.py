"""Adjacencies and contexts by the kernels and by the reference, shared by the tests of several kernels."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.contexts import Contexts, Sampling, build_contexts
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.triples import canonical
from tests import reference
from tests.reference import Context, Path, Triple
from tests.strategies import digests, to_triples

samplings = st.builds(Sampling, st.integers(0, 2**63 - 1), st.integers(1, 8), st.integers(1, 4))


def topology_of(triples: list[Triple], rows: int) -> Topology:
    return Topology.of(canonical(to_triples(triples)), rows)


def as_reference(contexts: Contexts, b: int) -> Context:
    """Context b of a batch as lists and sets."""
    vertices = contexts.vertices[b, : contexts.size[b]].tolist()
    bits = [(i, j) for i in range(len(vertices)) for j in range(64 * contexts.mask.shape[2])]
    edges = frozenset((vertices[i], vertices[j]) for i, j in bits if int(contexts.mask[b, i, j >> 6]) >> (j & 63) & 1)
    return vertices, edges


def build(triples: list[Triple], rows: int, sampling: Sampling) -> tuple[Contexts, list[Context]]:
    """The contexts of all rows by the kernel, and by the reference."""
    digest = digests(rows)
    graph = reference.neighbours(triples)
    expected = [reference.entity_context(graph, digest, *sampling, entity) for entity in range(rows)]
    neighbours = topology_of(triples, rows).neighbours
    return build_contexts(neighbours, digest, sampling, np.arange(rows)), expected


def lists(adjacency: Adjacency, rows: int) -> list[list[int]]:
    """All lists of an adjacency, by row."""
    patched = {int(row): at for row, at in zip(adjacency.slot_row, adjacency.slot_list, strict=True) if row >= 0}
    out = []
    for row in range(rows):
        if row in patched:
            indptr, entries, at = adjacency.patch_indptr, adjacency.patch_entries, int(patched[row])
        elif row + 1 < len(adjacency.indptr):
            indptr, entries, at = adjacency.indptr, adjacency.entries, row
        else:
            out.append([])
            continue
        out.append(entries[indptr[at] : indptr[at + 1]].tolist())
    return out


def decoded(code: int, bits: int) -> Path:
    """The relations of a path code."""
    path = []
    while code:
        path.append((code & ((1 << bits) - 1)) - 1)
        code >>= bits
    return tuple(path)
