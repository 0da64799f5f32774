"""What questions read of the graph, as a model version keeps it: θ, the counts by relation, and neighbour lists.

Lists are those of the snapshot in full that a model stands on: they are written when it is trained, inherited by its
nights, and patched by what changed since when they are opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.evidence.features import FEATURES
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.thinning import ThinnedGraph
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.evidence.weights import EvidenceWeights
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.evidence.hubs import HubCounts
from dkge_dist.kernels.evidence.thinning import lists_of, overlaid
from dkge_dist.store.manifest import ListsEntry, SnapshotManifest
from dkge_dist.store.models import map_arrays, save_arrays
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store
from dkge_dist.types import OFFSET, ROW, Array, DkgeError, Split


def to_arrays(evidence: Evidence) -> dict[str, Array]:
    """What has to be kept; the rest is read off the graph."""
    weights, counts, paths = evidence.weights, evidence.graph.counts, evidence.graph.paths
    return {
        "weights.relation": weights.relation_2RJ,
        "weights.common": weights.common_2J,
        "weights.scale": np.array([weights.scale, weights.near, weights.changed]),
        "counts.pairs": counts.pairs,
        "counts.loops": counts.loops,
        "counts.codes": counts.codes,
        "counts.joint": counts.joint,
        "paths.codes": paths.codes,
        "paths.support": paths.support,
        "paths.total": paths.total,
    }


def _named(arrays: Mapping[str, Array], group: str, *names: str) -> list[Array]:
    missing = next((name for name in names if f"{group}.{name}" not in arrays), None)
    if missing is not None:
        raise DkgeError(f"evidence without {group}.{missing}: not of this program")
    return [arrays[f"{group}.{name}"] for name in names]


def _counts(arrays: Mapping[str, Array], group: str, *names: str) -> list[Array]:
    """Columns of equal length. Kernels look them up without a check."""
    columns = _named(arrays, group, *names)
    if any(column.ndim != 1 or column.dtype.kind != "i" or column.shape != columns[0].shape for column in columns):
        shapes = ", ".join(f"{column.dtype}{list(column.shape)}" for column in columns)
        raise DkgeError(f"evidence whose {group} {', '.join(names)} are {shapes}: not of this program")
    return columns


def weights_of(arrays: Mapping[str, Array]) -> EvidenceWeights:
    """θ of a model version."""
    relation, common, units = _named(arrays, "weights", "relation", "common", "scale")
    width = len(FEATURES)
    if relation.ndim != 3 or relation.shape[::2] != (2, width) or common.shape != (2, width) or units.shape != (3,):
        shapes = f"{relation.shape}, {common.shape} and {units.shape}"
        raise DkgeError(f"weights of evidence of the shapes {shapes}: not of this program")
    scale, near, changed = units.tolist()
    return EvidenceWeights(relation, common, scale, near, int(changed))


def counts_of(arrays: Mapping[str, Array]) -> RelationCounts:
    """The counts by relation."""
    return RelationCounts(*_counts(arrays, "counts", "pairs", "loops"), *_counts(arrays, "counts", "codes", "joint"))


def paths_of(arrays: Mapping[str, Array]) -> PathShares:
    """The counts of paths."""
    return PathShares(*_counts(arrays, "paths", "codes", "support", "total"))


def evidence_of(arrays: Mapping[str, Array], graph: ThinnedGraph, digest: Array, limits: WalkLimits) -> Evidence:
    """The evidence of a model version over the train graph of its snapshot."""
    return Evidence(GraphEvidence(graph, counts_of(arrays), paths_of(arrays), digest, limits), weights_of(arrays))


class WalkedGraph(NamedTuple):
    """The train graph of a snapshot as neighbour lists: in full, and thinned for walks where a model has evidence."""

    full: Topology
    thinned: ThinnedGraph | None


KINDS = tuple(field.name for field in fields(Topology))


def current_lists(
    store: Store,
    staging: Staging,
    manifest: SnapshotManifest,
    snapshot: Snapshot,
    digest: Array,
    limits: WalkLimits | None,
    before: ListsEntry | None = None,
) -> ListsEntry:
    """The lists that a model of a snapshot names: those `before`, if they are of the base that it stands on, or new.

    Without `limits` the model has no evidence to walk for.
    """
    key = store.base_of(manifest).train.digest
    if before is not None and before.base == key:
        return before
    full = _base_topology(snapshot)
    arrays: dict[str, Array] = {}
    for name, lists in zip(KINDS, full.lists, strict=True):
        arrays |= {f"{name}.indptr": lists.indptr, f"{name}.entries": lists.entries}
    if limits is not None:
        thinned = ThinnedGraph.of(full, digest, *_sampling(limits))
        arrays["thin.sampling"] = np.array(_sampling(limits))
        for name, lists in zip(KINDS, thinned.thin.lists, strict=True):
            arrays[f"thin.{name}.indptr"], arrays[f"thin.{name}.entries"] = lists_of(lists, thinned.hubs.rows)
        arrays |= {f"hubs.{name}": array for name, array in thinned.hubs._asdict().items()}
    return ListsEntry(base=key, part=save_arrays(staging, arrays))


def open_graph(
    store: Store,
    manifest: SnapshotManifest,
    snapshot: Snapshot,
    entry: ListsEntry | None,
    digest: Array,
    limits: WalkLimits | None,
) -> WalkedGraph:
    """The lists of a snapshot: its base by the stored ones, patched by the change since; made where there are none."""
    change, stored = snapshot.diff.splits[Split.TRAIN], None
    if entry is not None and entry.base == store.base_of(manifest).train.digest:
        stored = _StoredLists(map_arrays(store, entry.part), snapshot, entry)
    base = stored.topology() if stored is not None else _base_topology(snapshot)
    full = base.after(change)[0] if change.size else base
    if limits is None:
        return WalkedGraph(full, None)
    if stored is None or not stored.are_thinned_by(limits):
        return WalkedGraph(full, ThinnedGraph.of(full, digest, *_sampling(limits)))
    thinned = stored.thinned(base, limits)
    return WalkedGraph(full, thinned.after(full, change, digest) if change.size else thinned)


def _base_topology(snapshot: Snapshot) -> Topology:
    return Topology.of(snapshot.base.splits[Split.TRAIN], snapshot.base.entity_rows)


def _sampling(limits: WalkLimits) -> tuple[int, int]:
    # One neighbour more than walks start with: the spare.
    return limits.seed, limits.max_neighbours + 1


class _StoredLists:
    """The arrays of such a part. Kernels take positions and rows on trust, so they are checked before."""

    def __init__(self, arrays: Mapping[str, Array], snapshot: Snapshot, entry: ListsEntry) -> None:
        self._arrays, self._entry = arrays, entry
        self._rows, self._relations = snapshot.base.entity_rows, snapshot.relation_rows
        self._train = snapshot.base.splits[Split.TRAIN].count

    def topology(self) -> Topology:
        """Of the base in full."""
        lists = (self._lists(kind, ("indptr", "entries"), self._rows) for kind in KINDS)
        topology = Topology(*(Adjacency.of(*some) for some in lists))
        # Lists of another base would give wrong answers without a word.
        if self._named("outgoing.entries").shape[0] != self._train:
            raise self._damaged("outgoing lists")
        return topology

    def are_thinned_by(self, limits: WalkLimits) -> bool:
        """Is the sample of hubs the one that these limits ask for?"""
        return tuple(self._arrays.get("thin.sampling", ())) == _sampling(limits)

    def thinned(self, base: Topology, limits: WalkLimits) -> ThinnedGraph:
        """The base thinned."""
        rows, counts = self._named("hubs.rows"), self._named("hubs.counts")
        if not _are_sound(np.array([0, rows.shape[0]]), rows, 1, self._rows, 0):
            raise self._damaged("hubs")
        lists = (self._lists(f"thin.{kind}", ("indptr", "entries"), rows.shape[0]) for kind in KINDS)
        thin = Topology(*(overlaid(full, rows, *some) for full, some in zip(base.lists, lists, strict=True)))
        directed = 2 * self._relations
        indptr, codes = self._lists("hubs", ("indptr", "codes"), rows.shape[0], (directed, directed))
        if counts.shape != codes.shape:
            raise self._damaged("hubs")
        return ThinnedGraph(base, thin, HubCounts(rows, indptr, codes, counts), *_sampling(limits))

    def _lists(
        self, group: str, names: tuple[str, str], count: int, limits: tuple[int, int] | None = None
    ) -> tuple[Array, Array]:
        indptr, entries = (self._named(f"{group}.{name}") for name in names)
        if not _are_sound(indptr, entries, count, *(limits or (self._rows, self._relations))):
            raise self._damaged(group)
        return indptr, entries

    def _named(self, name: str) -> Array:
        if name not in self._arrays:
            raise self._damaged(name)
        return self._arrays[name]

    def _damaged(self, what: str) -> DkgeError:
        return DkgeError(f"part {self._entry.part.digest} is damaged: its {what} are not lists of this snapshot")


def _are_sound(indptr: Array, entries: Array, lists: int, rows: int, relations: int) -> bool:
    """May kernels walk these as so many lists, of rows below `rows` and relations below `relations`?

    Places and rows are checked, and not the order: what is out of order is not found, and nothing else happens.
    """
    if indptr.shape != (lists + 1,) or indptr.dtype != OFFSET or indptr[0] or indptr[-1] != entries.shape[0]:
        return False
    if (indptr[1:] < indptr[:-1]).any():
        return False
    if not entries.shape[0]:
        return True
    if entries.dtype == ROW:
        return bool(entries.min() >= 0 and entries.max() < rows)
    # Read as pairs of 32 bits: the relation of an entry is its low half.
    return bool(entries.min() >= 0 and entries.max() >> 32 < rows and entries.view(np.uint32)[::2].max() < relations)
