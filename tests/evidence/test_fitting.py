"""Which triples fit weights: one half of validation, or train where there is none; before and after vectors."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.evidence import fitting as module
from dkge_dist.evidence.fit import fitting_half
from dkge_dist.evidence.fitting import EvidenceFitting, validation_half
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
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


def test_weights_before_vectors_and_after_them() -> None:
    fitting = EvidenceFitting.of(graph_of(), BOUNDS)
    assert fitting.before.weights is fitting.prior
    assert fitting.prior.relation_2RJ.any() and fitting.prior.scale == 1.0
    asked: list[tuple[int, ...]] = []

    def distances(questions: object, indptr: Array, rows: Array) -> Array:
        asked.append(rows.shape)
        return np.random.default_rng(1).random(rows.shape[0]).astype(np.float32)

    after = fitting.after(distances)
    assert asked == [fitting.problem.rows.shape]
    assert after.graph is fitting.before.graph
    assert after.weights.scale != 1.0
    again = EvidenceFitting.of(graph_of(), BOUNDS)
    assert again.prior.relation_2RJ.tobytes() == fitting.prior.relation_2RJ.tobytes()
    assert again.after(distances).weights.relation_2RJ.tobytes() == after.weights.relation_2RJ.tobytes()


def test_without_validation_train_triples_fit_and_vectors_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have seen the triples. Of many a sample is enough, the same for the same seed."""
    monkeypatch.setattr(module, "FIT_TRIPLES", 50)
    graph = graph_of(valid=False)
    fitting, again = EvidenceFitting.of(graph, BOUNDS), EvidenceFitting.of(graph, BOUNDS)
    assert fitting.fitted_on == "train"
    assert fitting.problem.questions.count == 100
    assert fitting.problem.rows.tobytes() == again.problem.rows.tobytes()

    def distances(*_: object) -> Array:
        raise AssertionError("the vectors were asked")

    assert fitting.after(distances).weights is fitting.prior
    assert validation_half(graph).count == 0
