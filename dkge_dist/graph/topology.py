"""The train graph as neighbour lists: directed and labelled both ways, and undirected and simple."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.diff import Change
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.csr import Adjacency, incoming, joined, outgoing, patch, undirected
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import pack
from dkge_dist.types import OFFSET, ROW, Array, Split, Triples


@dataclass(frozen=True)
class Toggles:
    """Undirected edges (left < right) that a change brought (first parallel triple) and took (last one)."""

    come: tuple[Array, Array]
    gone: tuple[Array, Array]


@dataclass(frozen=True)
class Topology:
    """An immutable value; `after` gives the one that a change leads to, over the same arrays."""

    outgoing: Adjacency
    incoming: Adjacency
    neighbours: Adjacency

    @property
    def lists(self) -> tuple[Adjacency, Adjacency, Adjacency]:
        """All three, in their order."""
        return self.outgoing, self.incoming, self.neighbours

    @staticmethod
    def of(train: Triples, entity_rows: int) -> Topology:
        """From canonical train triples."""
        out, into = outgoing(train, entity_rows), incoming(train, entity_rows)
        return Topology(out, into, undirected(out, into))

    @staticmethod
    def of_snapshot(snapshot: Snapshot, base: Topology | None = None) -> Topology:
        """Of the train triples of a snapshot, without joining its base and the change since.

        `base` are the lists of its base, if they are known.
        """
        if base is None:
            base = Topology.of(snapshot.base.splits[Split.TRAIN], snapshot.base.entity_rows)
        return base.after(snapshot.diff.splits[Split.TRAIN])[0]

    @staticmethod
    def of_few(train: Triples) -> Topology:
        """The same of few triples among many rows, at a cost that follows the triples alone."""
        labelled, simple = (Adjacency.of(np.zeros(1, OFFSET), np.empty(0, dtype)) for dtype in (np.int64, ROW))
        return Topology(labelled, labelled, simple).after(Change(added=train, deleted=Triples.empty()))[0]

    def after(self, change: Change) -> tuple[Topology, Toggles]:
        """The topology after `change`, and the undirected edges that toggled, at a cost that follows the change."""
        (gone_out, gone_in), (come_out, come_in) = (_codes(side) for side in (change.deleted, change.added))
        out, into = patch(self.outgoing, gone_out, come_out), patch(self.incoming, gone_in, come_in)
        left, right = _changed_pairs(change)
        before, now = joined(self.outgoing, left, right), joined(out, left, right)
        toggles = Toggles(
            come=(left[now & ~before], right[now & ~before]), gone=(left[before & ~now], right[before & ~now])
        )
        neighbours = patch(self.neighbours, _both_ways(*toggles.gone), _both_ways(*toggles.come))
        return Topology(out, into, neighbours), toggles


def _codes(triples: Triples) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    head, relation, tail = triples
    return (head, pack(tail, relation)), (tail, pack(head, relation))


def _changed_pairs(change: Change) -> tuple[Array, Array]:
    """The different unordered pairs of ends of the changed triples, loops left out."""
    triples = Triples.concat([change.added, change.deleted])
    low, high = np.minimum(triples.head, triples.tail), np.maximum(triples.head, triples.tail)
    codes = distinct(pack(low, high)[low != high])
    return (codes >> 32).astype(ROW), (codes & 0xFFFFFFFF).astype(ROW)


def _both_ways(left: Array, right: Array) -> tuple[Array, Array]:
    return np.concatenate([left, right]), np.concatenate([right, left])
