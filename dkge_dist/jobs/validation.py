"""Validation of a model that was learnt, from scratch or online: measured alike, so that drift can be measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.ask.ranks import metrics
from dkge_dist.evaluation.comparison import RankedTriples
from dkge_dist.evaluation.validation import Validation, validation_hashes
from dkge_dist.evidence.fitting import validation_half
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.records import Estimate, Quality
from dkge_dist.settings import Settings
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, Field


class MeasuredValidation(NamedTuple):
    """The quality, and the rank of every triple; neither where there are no validation triples."""

    quality: Quality
    ranked: RankedTriples | None


def measure_validation(
    graph: TrainingGraph, tables: Tables, settings: Settings, evidence: Evidence | None
) -> MeasuredValidation:
    """On a sample of all validation triples; with evidence, on a sample of those that θ is not fitted on."""
    triples = validation_half(graph) if evidence is not None else graph.valid
    if not triples.count:
        return MeasuredValidation(Quality(), None)
    max_candidates = settings.train.valid_candidates
    validation = Validation.of(graph, triples, settings.train.valid_triples, max_candidates, evidence)
    every = np.arange(graph.relation_rows, dtype=ROW)
    joint = [
        table.pull({Field.JOINT: rows})[Field.JOINT]
        for table, rows in zip(tables, (validation.rows, every), strict=True)
    ]
    ranks = validation.rank(*joint)
    ranked = RankedTriples.of(validation_hashes(graph, validation.sampled), ranks, max_candidates)
    mean = Estimate.of(ranked.reciprocal.astype(np.float64))
    quality = Quality.model_validate({**metrics(ranks.both), "mrr_error": mean.error, "triples": mean.triples})
    return MeasuredValidation(quality, ranked)
