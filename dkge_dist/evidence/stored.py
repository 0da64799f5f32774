"""Evidence as arrays by name, as a model version keeps it: θ, and the counts by relation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.evidence.features import FEATURES
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.evidence.weights import EvidenceWeights
from dkge_dist.graph.topology import Topology
from dkge_dist.types import Array, DkgeError


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
    # Versions of the first releases do not say how much changed since.
    known = units.shape in ((2,), (3,))
    if relation.ndim != 3 or relation.shape[::2] != (2, width) or common.shape != (2, width) or not known:
        shapes = f"{relation.shape}, {common.shape} and {units.shape}"
        raise DkgeError(f"weights of evidence of the shapes {shapes}: not of this program")
    scale, near, *changed = units.tolist()
    return EvidenceWeights(relation, common, scale, near, int(changed[0]) if changed else 0)


def counts_of(arrays: Mapping[str, Array]) -> RelationCounts:
    """The counts by relation."""
    return RelationCounts(*_counts(arrays, "counts", "pairs", "loops"), *_counts(arrays, "counts", "codes", "joint"))


def paths_of(arrays: Mapping[str, Array]) -> PathShares:
    """The counts of paths."""
    return PathShares(*_counts(arrays, "paths", "codes", "support", "total"))


def evidence_of(arrays: Mapping[str, Array], topology: Topology, digest: Array, limits: WalkLimits) -> Evidence:
    """The evidence of a model version over the train graph of its snapshot."""
    graph = GraphEvidence.counted(topology, counts_of(arrays), paths_of(arrays), digest, limits)
    return Evidence(graph, weights_of(arrays))
