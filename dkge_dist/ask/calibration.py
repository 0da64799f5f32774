"""From scores to probabilities: a logistic curve a relation. In: scores, true and corrupted. Out: Calibration.

The probability answers this: of a true triple and one that was made of it by replacing an end with another end of the
same relation, which is this? Few parameters, shrunk to those of all relations where a relation has few triples. A
higher score never gives a lower probability. Fitted when a model is trained, kept with its ranks of validation triples,
and by its updates: nights do not fit it anew, as they do not fit the weights of evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.ask.scores import score_triples
from dkge_dist.evidence.fitting import validation_half
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.triples import canonical, contains
from dkge_dist.settings import CalibrationSettings
from dkge_dist.store.manifest import ModelEntry
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store
from dkge_dist.types import ROW, Array, DkgeError, Triples

DRAWS = 10
"""Of another end, until the triple is none that is known."""
ITERATIONS = 300
CALIBRATION_STREAM = 15
"""Of random numbers, apart from the other streams of a seed."""

PREFIX = "calibration"
WAYS = (f"{PREFIX}.vectors", f"{PREFIX}.with_evidence")


@dataclass(frozen=True)
class Calibration:
    """The logit of a triple with score s is slope·s + offset: `relation_R2` by row, `common_2` for all others.

    Fitted on so many true `triples`, each against up to two `corrupted` ones. Half of them all count as true.
    """

    relation_R2: Array
    common_2: Array
    triples: int
    corrupted: int

    def probability(self, relation: Array, scores: Array) -> Array:
        """How likely triples of these relations and scores are true rather than corrupted."""
        slope, offset = self._curves(relation).T
        chance: Array = 1 / (1 + np.exp(-np.clip(slope * scores + offset, -500, 500)))
        return chance

    def threshold(self, relation: Array) -> Array:
        """The score from which on a triple is more likely true than not."""
        slope, offset = self._curves(relation).T
        score: Array = -offset / slope
        return score

    def _curves(self, relation: Array) -> Array:
        known = self.relation_R2.shape[0]
        padded = np.concatenate([self.relation_R2, self.common_2[None]])
        curves: Array = padded[np.minimum(relation, known)]
        return curves

    def to_arrays(self, name: str) -> dict[str, Array]:
        """As a model version keeps it."""
        curves = np.concatenate([self.relation_R2, self.common_2[None]])
        return {f"{name}.curves": curves, f"{name}.counts": np.array([self.triples, self.corrupted])}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Array], name: str) -> Calibration | None:
        """As it was kept; None if it was not."""
        if f"{name}.curves" not in arrays:
            return None
        curves, counts = arrays[f"{name}.curves"], arrays.get(f"{name}.counts", np.empty(0))
        if curves.ndim != 2 or curves.shape[1] != 2 or not curves.shape[0] or counts.shape != (2,):
            raise DkgeError(f"a calibration of the shapes {curves.shape} and {counts.shape}: not of this program")
        if not (np.isfinite(curves).all() and (curves[:, 0] > 0).all()):
            raise DkgeError("a calibration whose curves do not rise: not of this program")
        return Calibration(curves[:-1], curves[-1], *(int(count) for count in counts))


def corrupt(triples: Triples, train: Triples, known: Triples, rng: np.random.Generator) -> tuple[Triples, Array]:
    """Triples with one end replaced by that of another train triple of the same relation, and whose they are.

    One of each side, unless all that is drawn is a triple of canonical `known`.
    """
    order = np.argsort(train.relation, kind="stable")
    ordered = train.relation[order]
    first = np.searchsorted(ordered, triples.relation)
    count = np.searchsorted(ordered, triples.relation, side="right") - first
    made, origin = [], []
    for column in ("tail", "head"):
        left = np.flatnonzero(count)
        for _ in range(DRAWS):
            drawn = order[first[left] + rng.integers(0, count[left])]
            some = triples.take(left)._replace(**{column: getattr(train, column)[drawn].astype(ROW)})
            wrong = ~contains(known, some)
            made.append(some.take(wrong))
            origin.append(left[wrong])
            left = left[~wrong]
    return Triples.concat(made), np.concatenate(origin)


def fit_calibration(
    relation: Array,
    scores: Array,
    corrupted_relation: Array,
    corrupted_scores: Array,
    relations: int,
    settings: CalibrationSettings,
) -> Calibration | None:
    """The curves of the greatest penalised likelihood; None where there is nothing to compare.

    Relations of which no triple could be corrupted do not take part.
    """
    wrong = np.bincount(corrupted_relation, minlength=relations)
    kept = wrong[relation] > 0
    relation, scores = relation[kept], scores[kept]
    if not relation.shape[0]:
        return None
    true = np.bincount(relation, minlength=relations)
    every = np.concatenate([relation, corrupted_relation])
    score = np.concatenate([scores, corrupted_scores]).astype(np.float64)
    centre, unit = float(score.mean()), float(score.std()) or 1.0
    # In every relation true and corrupted triples weigh the same.
    weight = np.ones(every.shape[0])
    weight[relation.shape[0] :] = true[corrupted_relation] / wrong[corrupted_relation]
    # Not quite 1 and 0 (Platt): scores that separate all triples would call for an infinite slope.
    target = np.full(every.shape[0], 1 / (relation.shape[0] + 2))
    target[: relation.shape[0]] = 1 - target[0]
    groups, group = np.unique(every, return_inverse=True)
    common, differs = _fit((score - centre) / unit, target, weight, group, groups.shape[0], settings)
    slope, offset = np.exp(common[0] + differs[:, 0]), common[1] + differs[:, 1]
    whole = np.array([np.exp(common[0]) / unit, common[1] - np.exp(common[0]) * centre / unit])
    curves = np.tile(whole, (relations, 1))
    curves[groups] = np.stack([slope / unit, offset - slope * centre / unit], axis=1)
    return Calibration(curves, whole, int(relation.shape[0]), int(corrupted_relation.shape[0]))


def _fit(
    score: Array, target: Array, weight: Array, group: Array, groups: int, settings: CalibrationSettings
) -> tuple[Array, Array]:
    """(logarithm of the slope, offset) common to all groups, and what those of every group differ by."""
    from scipy.optimize import minimize

    prior, common_prior = np.array([settings.slope_prior, settings.offset_prior]), settings.common_prior

    def objective(parameters: Array) -> tuple[float, Array]:
        common, differs = parameters[:2], parameters[2:].reshape(groups, 2)
        slope = np.exp(np.clip(common[0] + differs[:, 0], -20, 20))[group]
        logit = slope * score + common[1] + differs[group, 1]
        loss = weight @ (np.logaddexp(0, logit) - target * logit)
        error = weight * (1 / (1 + np.exp(-np.clip(logit, -500, 500))) - target)
        by_group = np.stack([np.bincount(group, error * slope * score, groups), np.bincount(group, error, groups)], 1)
        penalty = 0.5 * (common_prior * common @ common + (prior * differs**2).sum())
        slopes = np.concatenate([by_group.sum(0) + common_prior * common, (by_group + prior * differs).ravel()])
        return float(loss + penalty), slopes

    found = minimize(
        objective, np.zeros(2 + 2 * groups), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS}
    ).x
    return found[:2], found[2:].reshape(groups, 2)


def expected_error(probability: Array, is_true: Array, bins: int = 10) -> float:
    """The expected calibration error: by how much probabilities and shares of true triples differ, bin by bin."""
    at = np.minimum((probability * bins).astype(int), bins - 1)
    gap = np.bincount(at, probability - is_true, bins)
    return float(np.abs(gap).sum() / probability.shape[0])


def measure_calibration(
    graph: TrainingGraph,
    embedding: JointEmbedding,
    evidence: Evidence | None,
    seed: int,
    settings: CalibrationSettings,
) -> dict[str, Array]:
    """Fitted on validation triples (those that θ is not fitted on) against corrupted ones, with and without evidence.

    As arrays by name; none where there are no validation triples.
    """
    triples = validation_half(graph) if evidence is not None else graph.valid
    if not triples.count:
        return {}
    rng = np.random.default_rng([seed, CALIBRATION_STREAM])
    if triples.count > settings.triples:
        triples = triples.take(np.sort(rng.choice(triples.count, settings.triples, replace=False)))
    known = canonical(Triples.concat([graph.train, graph.valid]))
    corrupted, _ = corrupt(triples, graph.train, known, rng)
    arrays: dict[str, Array] = {}
    for name, by in zip(WAYS, (None, evidence), strict=True):
        if name == WAYS[1] and by is None:
            continue
        scores = (score_triples(embedding, some, by) for some in (triples, corrupted))
        fitted = fit_calibration(
            triples.relation, next(scores), corrupted.relation, next(scores), graph.relation_rows, settings
        )
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
