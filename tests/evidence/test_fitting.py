"""Which triples fit weights: one half of validation, or train where there is none; beside vectors."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.evidence.fit import fitting_half
from dkge_dist.evidence.fitting import EvidenceFitting, validation_half
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.settings import EvidenceSettings
from dkge_dist.types import Array
from tests.evidence.test_fit import RELATIONS, ROWS, some_triples
from tests.strategies import to_list
from tests.training_graphs import graph_of_rows

BOUNDS = WalkLimits(3, 8, 80)


def graph_of(valid: bool = True) -> TrainingGraph:
    train, held_out = some_triples()
    return graph_of_rows(train, ROWS, RELATIONS, Sampling(1, 5, 1), valid=held_out if valid else [])


def test_one_half_of_validation_fits_and_the_other_judges() -> None:
    graph = graph_of()
    fitting = EvidenceFitting.of(graph, BOUNDS)
    assert fitting.fitted_on == "valid"
    fits = to_list(graph.valid.take(np.flatnonzero(fitting_half(graph.valid, graph.digests))))
    judges = to_list(validation_half(graph))
    assert sorted([*fits, *judges]) == sorted(to_list(graph.valid))
    assert fits and judges
    count = len(fits)
    questions, answers = fitting.problem.questions, fitting.problem.rows[fitting.problem.truth]
    assert [to_list(questions.triples(i, answers[i : i + 1]))[0] for i in range(2 * count)] == [*fits, *fits]


class RandomDistances:
    """Remembers what it was asked for."""

    def __init__(self, highest: float = 1.0) -> None:
        self.highest = highest
        self.asked: list[tuple[Questions, Array]] = []
        self.given: list[Array] = []

    def __call__(self, questions: Questions, indptr: Array, rows: Array) -> Array:
        assert indptr[-1] == rows.shape[0] and indptr.shape[0] == questions.count + 1
        self.asked.append((questions, rows))
        self.given.append(self.highest * np.random.default_rng(1).random(rows.shape[0]).astype(np.float32))
        return self.given[-1]


def test_weights_beside_vectors() -> None:
    fitting, distances = EvidenceFitting.of(graph_of(), BOUNDS), RandomDistances()
    fitted = fitting.fitted(distances)
    assert distances.asked[0][1] is fitting.problem.rows
    assert fitted.graph is fitting.graph
    assert fitted.weights.relation_2RJ.any() and fitted.weights.scale != 1.0
    again = EvidenceFitting.of(graph_of(), BOUNDS).fitted(RandomDistances())
    assert again.weights.relation_2RJ.tobytes() == fitted.weights.relation_2RJ.tobytes()


def test_most_train_triples_lie_nearer_than_near() -> None:
    graph = graph_of()
    fitting, distances = EvidenceFitting.of(graph, BOUNDS), RandomDistances(7.0)
    near = fitting.fitted(distances).weights.near
    questions, answers = distances.asked[-1]
    assert questions.asks_tail.all()
    asked = list(zip(questions.entity.tolist(), questions.relation.tolist(), answers.tolist(), strict=True))
    assert len(set(asked)) == len(asked) > 100 and set(asked) <= set(to_list(graph.train))
    assert (distances.given[-1] < near).sum() == pytest.approx(0.9 * len(asked), abs=1)


@pytest.mark.parametrize(("away", "share"), [(0.5, 0.9), (1.02, None), (9.0, 0.99)])
def test_new_triples_that_lie_farther_away_are_known_too(away: float, share: float | None) -> None:
    """As far as nearly all old ones lie; where they lie nearer, nothing changes."""
    graph = graph_of()
    fitted = EvidenceFitting.of(graph, BOUNDS).fitted(RandomDistances())
    new = graph.train.take(np.arange(5))

    def distances(questions: Questions, indptr: Array, rows: Array) -> Array:
        if questions.count == new.count:
            return np.full(rows.shape[0], away * 0.9, np.float32)
        return np.linspace(0, 1, rows.shape[0], dtype=np.float32)

    near = fitted.beside(distances, graph.train, new).weights.near
    assert near == pytest.approx(share if share is not None else away * 0.9, abs=1e-6)
    assert fitted.beside(distances, graph.train, new.take(slice(0))).weights.near == pytest.approx(0.9)


def test_without_validation_train_triples_fit_without_vectors() -> None:
    """They have seen the triples. Of many a sample is enough, the same for the same seed."""
    graph, bounds = graph_of(valid=False), BOUNDS._replace(settings=EvidenceSettings(fit_triples=50))
    fitting, again = EvidenceFitting.of(graph, bounds), EvidenceFitting.of(graph, bounds)
    assert fitting.fitted_on == "train"
    assert fitting.problem.questions.count == 100
    assert fitting.problem.rows.tobytes() == again.problem.rows.tobytes()

    one, other = (fitting.fitted(RandomDistances(highest)).weights for highest in (1.0, 50.0))
    assert one.relation_2RJ.any() and one.scale == 1.0
    assert one.relation_2RJ.tobytes() == other.relation_2RJ.tobytes(), "whatever vectors say"
    assert one.near < 1 < other.near, "but how near they are to the triples is theirs to say"
    assert validation_half(graph).count == 0
