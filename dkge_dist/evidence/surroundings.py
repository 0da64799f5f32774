"""The train triples that the evidence of a few questions is read from. In: all of them. Out: those around questions.

A walk takes three steps, and at a hub sees only a sample: what it reads of a graph of millions is little. A few passes
over the triples find it sooner than neighbour lists of the whole graph could be built.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evidence.thinning import ThinnedGraph
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import list_of
from dkge_dist.kernels.sets import distinct
from dkge_dist.types import ROW, Array, Triples

STEPS = 3
"""Of a walk: to a neighbour, to its neighbours, and to theirs."""


def triples_around(train: Triples, digest: Array, entities: Array, limits: WalkLimits) -> Triples:
    """All triples of every row whose list a walk from `entities` may read; canonical, as `train` is."""
    reached = [distinct(entities).astype(ROW)]
    # Links are looked up among all neighbours, not only those of the sample.
    first = _touching(train, reached[0], digest.shape[0])
    wanted = [reached[0], first.head, first.tail]
    for step in range(STEPS):
        triples = first if step == 0 else _touching(train, reached[-1], digest.shape[0])
        reached.append(_sampled_neighbours(triples, digest, reached[-1], limits))
        wanted.append(reached[-1])
    return _touching(train, distinct(np.concatenate(wanted)), digest.shape[0])


def _touching(train: Triples, rows: Array, count: int) -> Triples:
    """The triples with an end among `rows`."""
    mark = np.zeros(count, np.bool_)
    mark[rows] = True
    return train.take(np.flatnonzero(mark[train.head] | mark[train.tail]))


def _sampled_neighbours(triples: Triples, digest: Array, rows: Array, limits: WalkLimits) -> Array:
    """The neighbours in the samples of `rows`, of which `triples` holds all triples.

    Samples depend on digests, not on row numbers: a small graph of its own gives the same ones.
    """
    local = distinct(triples.head, triples.tail, rows)
    head, tail = np.searchsorted(local, triples.head), np.searchsorted(local, triples.tail)
    topology = Topology.of(Triples(head.astype(ROW), triples.relation, tail.astype(ROW)), local.shape[0])
    thinned = ThinnedGraph.of(topology, digest[local], limits.seed, limits.max_neighbours + 1)
    lists = [list_of(thinned.thin.neighbours, int(row)) for row in np.searchsorted(local, rows)]
    found: Array = local[distinct(np.concatenate([np.empty(0, ROW), *lists]))].astype(ROW)
    return found
