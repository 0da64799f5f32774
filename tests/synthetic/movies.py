"""Specifications of synthetic graphs that the tests share, and their triples as plain sets and matrices."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse

from dkge_dist.synthetic import PRESETS, SynthSpec
from dkge_dist.synthetic.casting import pack
from dkge_dist.types import Triples

DEMO = PRESETS["demo"]
MEDIUM = DEMO.resized(entities=30_000)
TINY = SynthSpec(entities=200, triples=500, nights=6, added=25, deleted=20, seed=3)


def rows(triples: Triples) -> set[tuple[int, int, int]]:
    return set(zip(*(column.tolist() for column in triples), strict=True))


def entities_of(triples: Triples) -> set[int]:
    return set(triples.head.tolist()) | set(triples.tail.tolist())


def is_canonical(triples: Triples) -> bool:
    keys = pack(triples.head, triples.relation, triples.tail)
    return bool((keys[1:] > keys[:-1]).all())


def simple_adjacency(triples: Triples, entities: int) -> sparse.csr_array:
    """The undirected graph without parallel edges."""
    ends = (np.concatenate([triples.head, triples.tail]), np.concatenate([triples.tail, triples.head]))
    adjacency = sparse.csr_array((np.ones(ends[0].size), ends), shape=(entities, entities))
    adjacency.sum_duplicates()
    adjacency.data[:] = 1.0
    return adjacency
