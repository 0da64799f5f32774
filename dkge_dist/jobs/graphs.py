"""A snapshot as learning sees it, under some settings."""

from __future__ import annotations

from dkge_dist.config import Settings
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.types import Array


def training_graph(snapshot: Snapshot, digests: tuple[Array, Array], settings: Settings) -> TrainingGraph:
    """The training graph of a snapshot; `digests` are those of all entity and relation labels, by row."""
    context = settings.context
    return TrainingGraph.of(snapshot, digests, Sampling(settings.seed, context.cap, context.hops), context.path_length)
