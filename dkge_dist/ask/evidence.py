"""The evidence of a model version: under its settings, kept with it, opened for questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.stored import evidence_of
from dkge_dist.evidence.surroundings import triples_around
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.topology import Topology
from dkge_dist.settings import Settings, settings_of_model
from dkge_dist.store.models import load_arrays
from dkge_dist.types import DkgeError, Split

if TYPE_CHECKING:
    from dkge_dist.ask.model import OpenedModel


def walk_limits(settings: Settings) -> WalkLimits:
    """What bounds walks, under some settings."""
    return WalkLimits(settings.seed, settings.evidence.max_neighbours, settings.evidence.max_candidates)


FEW_QUESTIONS = 16
"""So many are answered from their surroundings, without lists of the whole graph."""


def open_evidence(
    opened: OpenedModel, asked: Questions | None = None, topology: Topology | None = None
) -> Evidence | None:
    """The evidence of an opened model over its snapshot; None if it has none. `asked`: nothing else will be asked.

    `topology` is that of the snapshot, if somebody has it already.
    """
    part = opened.model.model.evidence
    if part is None:
        return None
    digest = opened.names[0].digests
    limits = walk_limits(settings_of_model(opened.model.model.settings))
    if topology is None and asked is not None and asked.count <= FEW_QUESTIONS:
        topology = Topology.of_few(triples_around(opened.snapshot, digest, asked.entity, limits))
    elif topology is None:
        topology = Topology.of(opened.snapshot.triples(Split.TRAIN), digest.shape[0])
    evidence = evidence_of(load_arrays(opened.store, part), topology, digest, limits)
    counted = evidence.graph.counts.pairs.shape[0]
    if counted < opened.snapshot.relation_rows:
        rows = opened.snapshot.relation_rows
        raise DkgeError(f"{opened.store}: part {part.digest} counts {counted} relations, the snapshot has {rows}")
    return evidence
