"""Fitting: the problem as it is stated, the best of its objective, shrinkage, and nothing without questions."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.evidence import fit
from dkge_dist.evidence.features import FEATURES, features
from dkge_dist.evidence.fit import FitProblem, fit_problem, fit_weights, fitting_half
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.kernels.triples import canonical
from dkge_dist.settings import EvidenceSettings
from dkge_dist.types import ROW, Array, Triples
from tests.evidence.building import evidence_of
from tests.reference import Triple
from tests.strategies import digests, to_list, to_triples

ROWS, RELATIONS = 60, 4


def some_triples(seed: int = 0) -> tuple[list[Triple], list[Triple]]:
    """(train, held out): relation 1 often repeats relation 0, 2 and 3 are noise; nothing is held out of 3."""
    rng = np.random.default_rng(seed)
    train, held_out = set[Triple](), set[Triple]()
    for h, t, luck in zip(*rng.integers(0, ROWS, (2, 150)).tolist(), rng.random(150).tolist(), strict=True):
        train.add((h, 0, t))
        if luck < 0.8:
            (held_out if luck < 0.2 else train).add((h, 1, t))
    noise = [(int(h), int(r), int(t)) for h, r, t in rng.integers([0, 2, 0], [ROWS, 4, ROWS], (80, 3))]
    held_out |= {triple for triple in noise[:15] if triple[1] == 2}
    return sorted(train | set(noise[15:])), sorted(held_out - train - set(noise[15:]))


@pytest.fixture(scope="module")
def graph() -> GraphEvidence:
    return evidence_of(some_triples()[0], ROWS, RELATIONS, WalkLimits(1, 8, 80))


@pytest.fixture(scope="module")
def problem(graph: GraphEvidence) -> FitProblem:
    return problem_of(graph)


def problem_of(graph: GraphEvidence, seed: int = 1) -> FitProblem:
    train, held_out = some_triples()
    known = canonical(to_triples([*train, *held_out]))
    return fit_problem(graph, to_triples(held_out), known, np.arange(ROWS, dtype=ROW), seed)


def test_an_answer_competes_with_all_that_have_evidence_and_a_sample(graph: GraphEvidence, problem: FitProblem) -> None:
    train, held_out = some_triples()
    known = {*train, *held_out}
    questions, answers = Questions.both_sides(to_triples(held_out))
    assert problem.questions.count == questions.count == 2 * len(held_out)
    found = graph.candidates(questions)
    own = features(graph.of_pairs(questions, answers))
    for number in range(questions.count):
        part = slice(problem.indptr[number], problem.indptr[number + 1])
        rows = problem.rows[part]
        truth = problem.truth[number]
        assert truth == part.stop - 1 and problem.rows[truth] == answers[number]
        assert problem.features_NJ[truth].tobytes() == own[number].tobytes()
        assert problem.log_weight[truth] == 0
        rivals = rows[:-1]
        made = to_list(questions.triples(number, rivals))
        assert not known & set(made) and questions.entity[number] not in rivals
        mine = found.rows[found.indptr[number] : found.indptr[number + 1]].tolist()
        made = to_list(questions.triples(number, np.array(mine, ROW)))
        strong = [row for row, triple in zip(mine, made, strict=True) if triple not in known]
        assert rivals[: len(strong)].tolist() == strong
        assert problem.features_NJ[part][: len(strong), 0].all(), "all of them have evidence"
        assert not problem.features_NJ[part][len(strong) : -1].any(), "and nobody else"
        # What a link says is probably true competes for the little that it may be false.
        links = graph.of_pairs(questions.take(np.full(len(strong), number)), np.array(strong, ROW))[:, 0]
        expected = [4 * np.log(1 - min(link, 0.999)) for link in links.tolist()]
        assert problem.log_weight[part][: len(strong)] == pytest.approx(expected, abs=1e-5)
        # The sampled ones together stand for all that have no evidence.
        weight = np.exp(problem.log_weight[part][len(strong) : -1]).sum()
        assert weight == pytest.approx(ROWS - len(strong))


def objective(
    problem: FitProblem, theta_2RJ: Array, common_2J: Array, scale: float, distance: Array,
    forgiving: float = 0.5,
) -> float:  # fmt: skip
    """What the fit makes least, written down plainly, of weights in units of logits; 0 forgives nothing: likelihood."""
    side = np.where(problem.questions.asks_tail, 0, 1)
    total = 0.0
    for number in range(problem.questions.count):
        part = slice(problem.indptr[number], problem.indptr[number + 1])
        theta = theta_2RJ[side[number], problem.questions.relation[number]]
        phi, far = problem.features_NJ[part].astype(np.float64), distance[part].astype(np.float64)
        scores = phi @ theta + problem.log_weight[part] - scale * far
        chance = np.exp(scores[-1] - scores.max()) / np.exp(scores - scores.max()).sum()
        total += (1 - chance**forgiving) / forgiving if forgiving else -np.log(chance)
    differs = theta_2RJ - common_2J[:, None]
    penalty = 0.1 * (common_2J**2).sum() + 1.0 * (differs**2).sum()
    return float(total + penalty / 2)


def distances_of(problem: FitProblem) -> Array:
    """True answers are a little nearer than others."""
    distance = np.random.default_rng(4).random(problem.rows.shape[0]).astype(np.float32) * 6
    distance[problem.truth] *= 0.5
    return distance


@pytest.mark.parametrize("with_vectors", [True, False])
def test_the_fit_is_where_its_objective_is_flat(problem: FitProblem, with_vectors: bool) -> None:
    """Finite differences in all directions: by each common weight and by each relation's own."""
    distance = distances_of(problem) if with_vectors else np.zeros(problem.rows.shape[0], np.float32)
    found = fit_weights(problem, RELATIONS, (lambda *_: distance) if with_vectors else None)
    common, theta = (part.astype(np.float64) * found.scale for part in (found.common_2J, found.relation_2RJ))
    best = objective(problem, theta, common, found.scale, distance)
    assert best < objective(problem, np.zeros_like(theta), np.zeros_like(common), found.scale, distance)
    step = 1e-3
    for column in range(len(FEATURES)):
        for side in (0, 1):
            for relation in (None, 1, 2):
                slopes = []
                for sign in (1, -1):
                    moved, all_moved = theta.copy(), common.copy()
                    if relation is None:
                        all_moved[side, column] += sign * step
                        moved[side, :, column] += sign * step
                    else:
                        moved[side, relation, column] += sign * step
                    slopes.append(objective(problem, moved, all_moved, found.scale, distance))
                assert (slopes[0] - slopes[1]) / (2 * step) == pytest.approx(0, abs=0.02)
    if with_vectors:
        assert fit.LEAST_SCALE < found.scale < fit.GREATEST_SCALE
    else:
        assert found.scale == 1.0


def test_the_scale_is_that_of_the_likelihood(problem: FitProblem) -> None:
    """The other objective would trust vectors without bound where they are mostly right."""
    distance = distances_of(problem)
    found = fit_weights(problem, RELATIONS, lambda *_: distance)
    likely = fit_weights(problem._replace(settings=EvidenceSettings(forgiving=0)), RELATIONS, lambda *_: distance)
    assert found.scale == pytest.approx(likely.scale, rel=1e-6)
    assert found.relation_2RJ.tobytes() != likely.relation_2RJ.tobytes(), "the weights are not"
    common, theta = (part.astype(np.float64) * likely.scale for part in (likely.common_2J, likely.relation_2RJ))
    near = [objective(problem, theta, common, likely.scale * factor, distance, 0.0) for factor in (1.001, 0.999)]
    assert (near[0] - near[1]) / 0.002 == pytest.approx(0, abs=0.02)


def test_links_that_go_along_are_believed(problem: FitProblem) -> None:
    weights = fit_weights(problem, RELATIONS, None)
    confidence = FEATURES.index("confidence")
    assert (weights.relation_2RJ[:, 1, confidence] > 0).all()


def test_a_relation_without_data_has_the_common_weights(problem: FitProblem) -> None:
    assert not (problem.questions.relation == 3).any()
    weights = fit_weights(problem, RELATIONS + 2, None)
    for relation in (3, 4, 5):
        assert np.array_equal(weights.relation_2RJ[:, relation], weights.common_2J)
    assert not np.array_equal(weights.relation_2RJ[:, 1], weights.common_2J)


def test_it_follows_from_the_seed(graph: GraphEvidence, problem: FitProblem) -> None:
    again = problem_of(graph)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(problem[1:-1], again[1:-1], strict=True))
    distance = distances_of(problem)
    one, other = (fit_weights(some, RELATIONS, lambda *_: distance) for some in (problem, again))
    assert one.relation_2RJ.tobytes() == other.relation_2RJ.tobytes()
    assert one.scale == other.scale
    assert problem_of(graph, 2).rows.tobytes() != problem.rows.tobytes()


def test_vectors_that_say_nothing_do_not_drown_in_evidence(problem: FitProblem) -> None:
    """The farther the better, by these: their scale would go to 0, and with it the unit that scores are in."""
    distance = 10 - distances_of(problem)
    weights = fit_weights(problem, RELATIONS, lambda *_: distance)
    assert weights.scale == pytest.approx(fit.LEAST_SCALE)
    alone = fit_weights(problem, RELATIONS, None)
    np.testing.assert_allclose(weights.common_2J * weights.scale, alone.common_2J, atol=0.1)


def test_without_questions_nothing_counts(graph: GraphEvidence) -> None:
    none = fit_problem(graph, Triples.empty(), canonical(to_triples(some_triples()[0])), np.arange(ROWS, dtype=ROW), 1)
    for distances in (None, lambda *_: np.empty(0, np.float32)):
        weights = fit_weights(none, RELATIONS, distances)
        assert not weights.relation_2RJ.any() and not weights.common_2J.any()
        assert weights.relation_2RJ.shape == (2, RELATIONS, len(FEATURES))


def test_halves_depend_on_labels_alone() -> None:
    """Not on rows: the same triples with their rows dealt out anew are halved alike."""
    rng = np.random.default_rng(5)
    triples = to_triples([(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [40, 5, 40], (600, 3))])
    entity, relation = digests(40), digests(5, 1)
    half = fitting_half(triples, (entity, relation))
    assert 240 < half.sum() < 360
    order, kinds = rng.permutation(40), rng.permutation(5)
    moved_entity, moved_relation = np.empty_like(entity), np.empty_like(relation)
    moved_entity[order], moved_relation[kinds] = entity, relation
    moved = Triples(*(column.astype(ROW) for column in (order[triples.head], kinds[triples.relation],
                                                        order[triples.tail])))  # fmt: skip
    assert np.array_equal(fitting_half(moved, (moved_entity, moved_relation)), half)
    assert not np.array_equal(fitting_half(triples, (digests(40, 7), relation)), half)
