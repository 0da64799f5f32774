"""Fitting θ: the likelihood of held-out answers among candidates. In: questions with answers. Out: EvidenceWeights.

Few parameters, shrunk: a value for all relations, and what each relation differs by, which data have to pay for. The
candidates of a question are all that have evidence and a sample of the rest, which stands for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.evidence.features import FEATURES, LEAST_CONFIDENCE, features
from dkge_dist.evidence.questions import Distances, Questions
from dkge_dist.evidence.walks import GraphEvidence
from dkge_dist.evidence.weights import EvidenceWeights
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.kernels.evidence.fit import likelihood
from dkge_dist.kernels.evidence.lists import joined_by
from dkge_dist.kernels.evidence.walks import LINK
from dkge_dist.kernels.hashing import triple_hashes
from dkge_dist.settings import EvidenceSettings
from dkge_dist.types import OFFSET, ROW, Array, Triples

LEAST_SCALE, GREATEST_SCALE = 0.01, 100.0
"""The scale of distances stays within. Vectors that say nothing would bring it to 0 and, in units of their distance,
evidence to infinity."""

ITERATIONS = 300
HALF_SEED = 0x68616C66
FIT_STREAM = 11
"""Of random numbers, apart from the other streams of a seed."""


def fitting_half(triples: Triples, digests: tuple[Array, Array]) -> Array:
    """Which held-out triples fit θ; the others stop training and choose settings. By a hash of labels."""
    entity, relation = digests
    hashes = triple_hashes(HALF_SEED, entity[triples.head], relation[triples.relation], entity[triples.tail])
    fits: Array = (hashes >> np.uint64(63)) == 0
    return fits


class FitProblem(NamedTuple):
    """Question i has the candidates `indptr[i]:indptr[i + 1]`; `truth` is the place of its answer among all of them.

    `log_weight`: the logarithm of how many entities a candidate stands for; less than 0 where it may be no wrong answer
    at all.
    """

    questions: Questions
    indptr: Array
    rows: Array
    features_NJ: Array
    log_weight: Array
    truth: Array
    settings: EvidenceSettings = EvidenceSettings()


def fit_problem(graph: GraphEvidence, triples: Triples, known: Triples, entities: Array, seed: int) -> FitProblem:
    """The questions of some triples on both sides. Answers that make a triple of canonical `known` do not compete."""
    questions, answers = Questions.both_sides(triples)
    found = graph.candidates(questions)
    own = graph.of_pairs(questions, answers)
    number = np.repeat(np.arange(questions.count), np.diff(found.indptr))
    settings = graph.limits.settings
    sampled = _sample(questions, entities, seed, settings.fit_candidates)
    sample_number = np.repeat(np.arange(questions.count), settings.fit_candidates)
    pairs = np.concatenate([number, sample_number]), np.concatenate([found.rows, sampled.ravel()])
    competes = (
        ~_known(questions, pairs, known) & (pairs[1] != answers[pairs[0]]) & (pairs[1] != questions.entity[pairs[0]])
    )
    # A sampled candidate that has evidence is there already.
    code = (number.astype(np.int64) << 32) | found.rows
    competes[number.shape[0] :] &= ~np.isin((sample_number.astype(np.int64) << 32) | sampled.ravel(), code)
    number_kept, rows = pairs[0][competes], pairs[1][competes]
    with_evidence = int(competes[: number.shape[0]].sum())
    drawn = np.bincount(number_kept[with_evidence:], minlength=questions.count)
    rest = np.maximum(entities.shape[0] - np.bincount(number_kept[:with_evidence], minlength=questions.count), 1)
    weight = np.zeros(number_kept.shape[0] + questions.count)
    weight[with_evidence : number_kept.shape[0]] = np.log(rest / np.maximum(drawn, 1))[number_kept[with_evidence:]]
    values = found.values[competes[: number.shape[0]]]
    weight[:with_evidence] = settings.unwritten * np.log1p(-np.minimum(values[:, LINK], 1 - LEAST_CONFIDENCE))
    phi = np.zeros((weight.shape[0], len(FEATURES)), np.float32)
    phi[:with_evidence] = features(values)
    phi[number_kept.shape[0] :] = features(own)
    numbers = np.concatenate([number_kept, np.arange(questions.count)])
    order = np.argsort(numbers, kind="stable")
    indptr = np.zeros(questions.count + 1, OFFSET)
    np.cumsum(np.bincount(numbers, minlength=questions.count), out=indptr[1:])
    # Sorting is stable, and the answer comes last.
    rows = np.concatenate([rows, answers])[order].astype(ROW)
    return FitProblem(questions, indptr, rows, phi[order], weight[order], indptr[1:] - 1, settings)


def _sample(questions: Questions, entities: Array, seed: int, count: int) -> Array:
    """Candidates of each question, the same for the same seed."""
    rng = np.random.default_rng([seed, FIT_STREAM])
    drawn: Array = entities[rng.integers(0, entities.shape[0], (questions.count, count))]
    return drawn


def _known(questions: Questions, pairs: tuple[Array, Array], known: Triples) -> Array:
    """Which (question, candidate) pairs make a triple of canonical `known`."""
    rows = 1 + max(int(column.max(initial=-1)) for column in (known.head, known.tail, questions.entity, pairs[1]))
    entity, relation, asks_tail = (column[pairs[0]] for column in questions)
    out = np.empty(pairs[0].shape[0], np.bool_)
    for is_tail, lists in ((True, outgoing(known, rows)), (False, incoming(known, rows))):
        where = asks_tail == is_tail
        out[where] = joined_by(lists, entity[where], relation[where], pairs[1][where])
    return out


def fit_weights(problem: FitProblem, relations: int, distances: Distances | None) -> EvidenceWeights:
    """θ of the greatest penalised likelihood, and the scale of the distances; without them f is 0 everywhere."""
    questions, indptr, settings = problem.questions, problem.indptr, problem.settings
    if not questions.count:
        return EvidenceWeights.zeros(relations)
    if distances is None:
        distance = np.zeros(problem.rows.shape[0], np.float32)
    else:
        distance = distances(questions, indptr, problem.rows)
    side = np.where(questions.asks_tail, 0, 1)
    groups, group = np.unique(side * relations + questions.relation, return_inverse=True)
    width = problem.features_NJ.shape[1]
    common_size = 2 * width

    def objective(parameters: Array, forgiving: float) -> tuple[float, Array]:
        common = parameters[:common_size].reshape(2, width)
        differs = parameters[common_size:-1].reshape(-1, width)
        scale = np.exp(parameters[-1])
        loss, slope, by_scale = likelihood(
            indptr,
            problem.features_NJ,
            problem.log_weight,
            distance,
            problem.truth,
            common[side] + differs[group],
            scale,
        )
        if forgiving:
            chance = np.exp(-forgiving * loss)
            loss, slope, by_scale = (1 - chance) / forgiving, slope * chance[:, None], by_scale * chance
        by_common, by_differs = np.zeros_like(common), np.zeros_like(differs)
        np.add.at(by_common, side, slope)
        np.add.at(by_differs, group, slope)
        by_common += settings.common_prior * common
        by_differs += settings.relation_prior * differs
        squares = settings.common_prior * np.square(common).sum(), settings.relation_prior * np.square(differs).sum()
        last = by_scale.sum() * scale if distances is not None else 0.0
        return loss.sum() + 0.5 * sum(squares), np.concatenate([by_common.ravel(), by_differs.ravel(), [last]])

    from scipy.optimize import minimize  # It takes half a second to load, and only a fit needs it.

    best = np.zeros(common_size + groups.shape[0] * width + 1)
    bounds = [(None, None)] * (best.shape[0] - 1) + [(np.log(LEAST_SCALE), np.log(GREATEST_SCALE))]
    # The likelihood is concave, and brings the other objective near its best. That one would trust vectors without
    # bound where they are mostly right, so the scale stays that of the likelihood.
    for forgiving in (0.0, settings.forgiving):
        options = {"maxiter": ITERATIONS}
        found = minimize(objective, best, (forgiving,), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        best = found.x
        bounds[-1] = (best[-1], best[-1])
    common, differs = best[:common_size].reshape(2, width), best[common_size:-1].reshape(-1, width)
    scale = float(np.exp(best[-1])) if distances is not None else 1.0
    by_relation = np.repeat(common[:, None], relations, axis=1)
    by_relation[groups // relations, groups % relations] += differs
    return EvidenceWeights((by_relation / scale).astype(np.float32), (common / scale).astype(np.float32), scale)
