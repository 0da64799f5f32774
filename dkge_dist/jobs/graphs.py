"""A snapshot as learning sees it, under some settings."""

from __future__ import annotations

from collections.abc import Mapping

from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.settings import Settings
from dkge_dist.types import Array


def training_graph(
    snapshot: Snapshot,
    digests: tuple[Array, Array],
    settings: Settings,
    kept_paths: Mapping[str, Array] | None = None,
) -> TrainingGraph:
    """The training graph of a snapshot; `digests` are those of all entity and relation labels, by row.

    `kept_paths`: what a model of the snapshot keeps of its relation paths.
    """
    context = settings.context
    sampling = Sampling(settings.seed, context.cap, context.hops)
    return TrainingGraph.of(snapshot, digests, sampling, context.path_length, kept_paths)
