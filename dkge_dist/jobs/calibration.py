"""The calibration of a model: fitted when it is trained, kept with its ranks of validation triples, and by its updates.

Nights do not fit it anew, as they do not fit the weights of evidence.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.evaluation.calibration import Calibration, corrupt, fit_calibration
from dkge_dist.evaluation.link_prediction import JointEmbedding
from dkge_dist.evaluation.triple_scores import score_triples
from dkge_dist.evidence.fitting import validation_half
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.triples import canonical
from dkge_dist.store.manifest import ModelEntry
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Triples

MAX_TRIPLES = 3000
"""Validation triples that it is fitted on at most: it has few parameters."""
STREAM = 15
"""Of random numbers, apart from the other streams of a seed."""

PREFIX = "calibration"
WAYS = (f"{PREFIX}.vectors", f"{PREFIX}.with_evidence")


def measure_calibration(
    graph: TrainingGraph, embedding: JointEmbedding, evidence: Evidence | None, seed: int
) -> dict[str, Array]:
    """Fitted on validation triples (those that θ is not fitted on) against corrupted ones, with and without evidence.

    As arrays by name; none where there are no validation triples.
    """
    triples = validation_half(graph) if evidence is not None else graph.valid
    if not triples.count:
        return {}
    rng = np.random.default_rng([seed, STREAM])
    if triples.count > MAX_TRIPLES:
        triples = triples.take(np.sort(rng.choice(triples.count, MAX_TRIPLES, replace=False)))
    known = canonical(Triples.concat([graph.train, graph.valid]))
    corrupted, _ = corrupt(triples, graph.train, known, rng)
    arrays: dict[str, Array] = {}
    for name, by in zip(WAYS, (None, evidence), strict=True):
        if name == WAYS[1] and by is None:
            continue
        scores = (score_triples(embedding, some, by) for some in (triples, corrupted))
        fitted = fit_calibration(triples.relation, next(scores), corrupted.relation, next(scores), graph.relation_rows)
        arrays |= fitted.to_arrays(name) if fitted is not None else {}
    return arrays


def load_calibration(store: Store, model: ModelEntry) -> tuple[Calibration | None, Calibration | None]:
    """That of scores by vectors alone, and that of scores with evidence; None where there is none."""
    arrays = load_arrays(store, model.validation) if model.validation is not None else {}
    by_vectors, with_evidence = (Calibration.from_arrays(arrays, name) for name in WAYS)
    return by_vectors, with_evidence


def kept_calibration(store: Store, parent: ModelEntry) -> dict[str, Array]:
    """What an update of a model keeps of its calibration."""
    arrays = load_arrays(store, parent.validation) if parent.validation is not None else {}
    return {name: array for name, array in arrays.items() if name.startswith(f"{PREFIX}.")}
