"""Neighbour lists of a stored base, mapped. In: the base and its digest. Out: a Topology that all processes share.

Lists of the whole graph are as large as its triples and take seconds to make. A base is that of many nights, which are
patches of its lists.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dkge_dist.graph.snapshot import Base
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.surfaces.http.kept import kept
from dkge_dist.types import OFFSET, ROW, Array, Split

LABELLED = np.dtype(np.int64)
"""Of the entries of directed lists; those of neighbours are rows."""


def load_lists(folder: Path, digest: str, base: Base) -> Topology:
    """The lists of the train triples of a base; `digest` is that of their part."""
    train, rows = base.splits[Split.TRAIN], base.entity_rows

    def read(data: Array) -> Topology | None:
        return _read(data, rows, train.count)

    return kept(folder / f"{digest}-{rows}.lists", read, lambda: Topology.of(train, rows), _arrays)


def _arrays(topology: Topology) -> list[Array]:
    """As they are written: the positions of all lists, then their entries, the 32-bit ones last."""
    lists = (topology.outgoing, topology.incoming, topology.neighbours)
    return [*(some.indptr for some in lists), *(some.entries for some in lists)]


def _read(data: Array, rows: int, count: int) -> Topology | None:
    sizes = [np.dtype(OFFSET).itemsize * (rows + 1)] * 3 + [LABELLED.itemsize * count] * 2
    if data.shape[0] < sum(sizes):
        return None
    *positions, out, into, neighbours = np.split(data, np.cumsum(sizes))
    entries: list[Array] = [out.view(LABELLED), into.view(LABELLED), neighbours.view(ROW)]
    lists = list(zip((some.view(OFFSET) for some in positions), entries, strict=True))
    if any(int(indptr[-1]) != some.shape[0] for indptr, some in lists):
        return None
    return Topology(*(Adjacency.of(*some) for some in lists))
