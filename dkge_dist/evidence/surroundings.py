"""The train triples that the evidence of a few questions is read from. In: a Snapshot. Out: those around questions.

A walk takes three steps, and at a hub sees only a sample: what it reads of a graph of millions is little. A few passes
over the triples find it sooner than neighbour lists of the whole graph could be built.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evidence.thinning import ThinnedGraph
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import list_of
from dkge_dist.kernels.sets import distinct
from dkge_dist.types import ROW, Array, Split, Triples

STEPS = 3
"""Of a walk: to a neighbour, to its neighbours, and to theirs."""


def triples_around(snapshot: Snapshot, digest: Array, entities: Array, limits: WalkLimits) -> Triples:
    """All train triples of every row whose list a walk from `entities` may read; canonical."""
    reached = distinct(entities).astype(ROW)
    triples = snapshot.touching(Split.TRAIN, reached)
    # Links are looked up among all neighbours, not only those of the sample.
    wanted = [reached, triples.head, triples.tail]
    for step in range(STEPS):
        if step:
            triples = snapshot.touching(Split.TRAIN, reached)
        reached = _sampled_neighbours(triples, digest, reached, limits)
        wanted.append(reached)
    return snapshot.touching(Split.TRAIN, distinct(*wanted))


def _sampled_neighbours(triples: Triples, digest: Array, rows: Array, limits: WalkLimits) -> Array:
    """The neighbours in the samples of `rows`, of which `triples` holds all triples."""
    thinned = ThinnedGraph.of(Topology.of_few(triples), digest, limits.seed, limits.max_neighbours + 1)
    lists = [list_of(thinned.thin.neighbours, row) for row in rows.tolist()]
    return distinct(np.concatenate([np.empty(0, ROW), *lists]))
