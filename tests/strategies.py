"""Random graphs for property tests: hubs, isolated vertices, parallel edges and self loops come up by construction."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from dkge_dist.types import ROW, Triples
from tests.reference import Triple


def to_triples(triples: list[Triple]) -> Triples:
    columns = np.array(triples, ROW).reshape(-1, 3)
    return Triples(*(np.ascontiguousarray(column) for column in columns.T))


def to_list(triples: Triples) -> list[Triple]:
    return [(int(h), int(r), int(t)) for h, r, t in zip(*triples, strict=True)]


class RandomGraph(NamedTuple):
    rows: int
    relations: int
    triples: list[Triple]


@st.composite
def graphs(draw: st.DrawFn, max_rows: int = 14, max_relations: int = 4, max_triples: int = 50) -> RandomGraph:
    """Triples over a few rows; half of the graphs tie a share of their triples to one hub."""
    rows = draw(st.integers(1, max_rows))
    relations = draw(st.integers(1, max_relations))
    row, relation = st.integers(0, rows - 1), st.integers(0, relations - 1)
    triples = draw(st.lists(st.tuples(row, relation, row), max_size=max_triples))
    if draw(st.booleans()):
        hub = draw(row)
        triples += [(hub, r, t) if out else (t, r, hub) for r, t, out in draw(
            st.lists(st.tuples(relation, row, st.booleans()), max_size=max_triples // 2)
        )]  # fmt: skip
    return RandomGraph(rows, relations, triples)


class Evolution(NamedTuple):
    before: RandomGraph
    after: list[Triple]


@st.composite
def evolutions(draw: st.DrawFn, max_rows: int = 14, max_relations: int = 4, max_triples: int = 50) -> Evolution:
    """A graph and what a night made of it: some triples gone, some come."""
    before = draw(graphs(max_rows, max_relations, max_triples))
    row, relation = st.integers(0, before.rows - 1), st.integers(0, before.relations - 1)
    present = sorted(set(before.triples))
    gone = draw(st.lists(st.sampled_from(present), max_size=8)) if present else []
    come = draw(st.lists(st.tuples(row, relation, row), max_size=8))
    return Evolution(before, sorted((set(present) - set(gone)) | set(come)))


def digests(count: int, seed: int = 0) -> np.ndarray:
    """Label digests: any distinct 64-bit numbers will do."""
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


@st.composite
def related_graphs(draw: st.DrawFn, max_rows: int = 9, max_relations: int = 3, max_triples: int = 24) -> RandomGraph:
    """Graphs whose relations say something of each other.

    Some triples stand again under a near-duplicate relation, some reversed under an inverse one, some reversed under
    their own: a symmetric one.
    """
    graph = draw(graphs(max_rows, max_relations, max_triples))
    duplicate, inverse = graph.relations, graph.relations + 1
    triples = list(graph.triples)
    for head, relation, tail in graph.triples:
        copies = [(head, duplicate, tail), (tail, inverse, head), (tail, relation, head)]
        wanted = draw(st.integers(0, 7))
        triples += [triple for bit, triple in enumerate(copies) if wanted >> bit & 1]
    return RandomGraph(graph.rows, graph.relations + 2, triples)
