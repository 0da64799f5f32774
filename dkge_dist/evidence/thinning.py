"""The graph that walks for evidence run over: every entity keeps at most `limit` of its neighbours. In: Topology.

Which ones is decided by a hash of labels (bottom-k), so that a sample depends on nothing but the set of neighbours, and
one more at a hub of 5,000 changes it with probability limit / 5,000.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.kernels.evidence.hubs import HubCounts, count_hubs
from dkge_dist.kernels.evidence.thinning import find_cuts, patched_rows, thin_lists, with_lists
from dkge_dist.kernels.jit import threads
from dkge_dist.kernels.sets import distinct, runs
from dkge_dist.types import OFFSET, ROW, Array


@dataclass(frozen=True)
class ThinnedGraph:
    """A graph in full and thinned; both share what hubs do not have. An immutable value."""

    full: Topology
    thin: Topology
    hubs: HubCounts
    seed: int
    limit: int

    @staticmethod
    def of(topology: Topology, digest: Array, seed: int, limit: int) -> ThinnedGraph:
        """`digest` is that of every entity's label."""
        base = topology.neighbours.indptr
        rows = distinct(np.flatnonzero(np.diff(base) > limit), patched_rows(topology.neighbours)).astype(ROW)
        rows = rows[list_sizes(topology.neighbours, rows) > limit]
        before = ThinnedGraph(topology, topology, _NO_HUBS, seed, limit)
        return before._with_rows(topology, digest, rows)

    def after(self, now: Topology, change: Change, digest: Array) -> ThinnedGraph:
        """The graph after `change`, which led to `now`; the cost follows the change and the number of hubs."""
        ends = [column for side in (change.added, change.deleted) for column in (side.head, side.tail)]
        return self._with_rows(now, digest, distinct(np.concatenate(ends)).astype(ROW))

    def _with_rows(self, full: Topology, digest: Array, rows: Array) -> ThinnedGraph:
        """`full` with the lists of `rows` thinned anew and all others as they are in the thinned graph."""
        cuts = find_cuts(full.neighbours, digest, self.seed, self.limit, rows)
        thin = []
        for whole, before in zip(full.lists, self.thin.lists, strict=True):
            same = np.setdiff1d(patched_rows(before), rows).astype(ROW)
            lists = thin_lists(whole, digest, self.seed, rows, cuts)
            thin.append(with_lists(whole, (before, same), rows, lists))
        hubs = rows[list_sizes(full.neighbours, rows) > self.limit]
        counts = _joined(_without(self.hubs, rows), _count(full, hubs))
        return ThinnedGraph(full, Topology(*thin), counts, self.seed, self.limit)


_NO_HUBS = HubCounts(np.empty(0, ROW), np.zeros(1, OFFSET), np.empty(0, OFFSET), np.empty(0, OFFSET))


def _count(topology: Topology, rows: Array) -> HubCounts:
    """Counted on all threads (the kernel releases the GIL)."""
    slices = [part for part in np.array_split(rows, 8 * threads()) if part.shape[0]]
    with ThreadPoolExecutor(threads()) as pool:
        parts = pool.map(lambda part: count_hubs(topology.outgoing, topology.incoming, part), slices)
        return _concatenated([_NO_HUBS, *parts])


def _take(hubs: HubCounts, which: Array) -> HubCounts:
    """Some hubs, in the order given."""
    sizes = np.diff(hubs.indptr)[which]
    indptr = np.zeros(which.shape[0] + 1, OFFSET)
    np.cumsum(sizes, out=indptr[1:])
    places = runs(hubs.indptr[which], sizes)
    return HubCounts(hubs.rows[which], indptr, hubs.codes[places], hubs.counts[places])


def _without(hubs: HubCounts, rows: Array) -> HubCounts:
    return _take(hubs, np.flatnonzero(~np.isin(hubs.rows, rows)))


def _joined(one: HubCounts, other: HubCounts) -> HubCounts:
    """The hubs of both, ascending; no row is in both."""
    both = _concatenated([one, other])
    return _take(both, np.argsort(both.rows))


def _concatenated(parts: list[HubCounts]) -> HubCounts:
    sizes = np.concatenate([np.diff(part.indptr) for part in parts])
    rows, codes, counts = (
        np.concatenate(column) for column in zip(*((p.rows, p.codes, p.counts) for p in parts), strict=True)
    )
    return HubCounts(rows, np.concatenate([[0], np.cumsum(sizes)]), codes, counts)
