"""One evaluator for all: ranks by scores are those that the package gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.peers.protocol import FitReport, Graph, Watch
from benchmarks.peers.ranking import (
    NotANumberError,
    filters_of,
    measure_fidelity,
    measure_held_out,
    rank_scores,
    validation_hits,
)
from dkge_dist.ask.ranks import JointEmbedding, rank_by_protocol
from dkge_dist.kernels.triples import canonical
from dkge_dist.measure.fidelity import NightTriples, Replaced
from dkge_dist.tables.index import ExactIndex
from dkge_dist.types import ROW, Array, Triples


class ByVectors:
    """A system with given vectors: −‖h + r − t‖₁ of all candidates."""

    def __init__(self, entity_ED: Array, relation_RD: Array, candidates: Array) -> None:
        self.entity_ED, self.relation_RD, self.candidates = entity_ED, relation_RD, candidates

    def fit(self, graph: Graph, budget: float) -> FitReport:
        return FitReport()

    def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
        sign = 1 if asks_tail else -1
        query = self.entity_ED[entity_Q] + sign * self.relation_RD[relation_Q]
        scores: Array = -np.abs(query[:, None] - self.entity_ED[self.candidates][None]).sum(-1)
        return scores


def random_graph(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [[30], [3], [30]], (3, 200)).astype(ROW)
    every = canonical(Triples(*columns))
    split = rng.integers(0, 4, every.count)
    valid, test = every.take(split == 2), every.take(split == 3)
    # Some held-out triples stand in train too.
    train = canonical(Triples.concat([every.take(split < 2), test.take(slice(0, 5))]))
    used = np.unique(np.concatenate([every.head, every.tail]))
    return Graph(train, valid, test, used[used != 7], 30, 3)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_those_of_the_package(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.ranking.SCORES_AT_ONCE", 200)
    graph, rng = random_graph(seed), np.random.default_rng(seed)
    test = graph.test.take((graph.test.head != 7) & (graph.test.tail != 7))
    # Few different numbers, whose sums are exact: there are ties.
    entity, relation = (rng.integers(-2, 3, (rows, 2)).astype(np.float32) for rows in (30, 3))
    expected = rank_by_protocol(JointEmbedding(ExactIndex(entity), relation, graph.candidates), test, graph.splits)
    system = ByVectors(entity, relation, graph.candidates)
    found = rank_scores(system, graph, test, {p: filters_of(graph, test, p) for p in ("paper", "filtered")})
    for protocol, ranks in expected.items():
        np.testing.assert_array_equal(found[protocol].tail, ranks.tail)
        np.testing.assert_array_equal(found[protocol].head, ranks.head)


def test_leaked_triples_are_told_apart() -> None:
    graph = random_graph(1)
    graph = graph._replace(candidates=np.arange(30, dtype=ROW))
    rng = np.random.default_rng(0)
    system = ByVectors(rng.normal(size=(30, 4)), rng.normal(size=(3, 4)), graph.candidates)
    found = measure_held_out(system, graph, graph.test)
    assert found["leaked"] == 5
    assert found["filtered"]["mrr"] >= found["paper"]["mrr"]
    assert found["paper"]["mr"] != found["paper"]["without_train"]["mr"]
    assert 0 <= validation_hits(system, graph) <= 1


def test_what_nobody_knows_is_a_tie_and_nan_is_an_error() -> None:
    graph = random_graph(2)
    graph = graph._replace(candidates=np.arange(30, dtype=ROW))

    class Unknowing(ByVectors):
        value = -np.inf

        def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
            return np.full((entity_Q.shape[0], 30), self.value)

    system = Unknowing(np.empty(0), np.empty(0), graph.candidates)
    no_filter = {"": filters_of(graph._replace(train=Triples.empty()), graph.test, "paper")}
    assert (rank_scores(system, graph, graph.test, no_filter)[""].both == 15.5).all()
    system.value = np.nan
    with pytest.raises(NotANumberError):
        rank_scores(system, graph, graph.test, no_filter)


def test_fidelity_of_a_night() -> None:
    graph = random_graph(3)._replace(candidates=np.arange(30, dtype=ROW))
    one, none = graph.train.take(slice(0, 1)), Triples.empty()
    other = Triples(one.head, one.relation, (one.tail + 1).astype(ROW) % 30)

    class Perfect(ByVectors):
        def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
            right = one.tail[0] if asks_tail else one.head[0]
            return np.where(np.arange(30) == right, 1.0, 0.0)[None].repeat(entity_Q.shape[0], 0)

    system = Perfect(np.empty(0), np.empty(0), graph.candidates)
    for new, old, above in ((one, other, 1.0), (other, one, 0.0)):
        night = NightTriples(one, none, other, none, none, Replaced(new, old, np.array([True])))
        found = measure_fidelity(system, graph, night)
        assert found["added_existing"] == 1.0
        assert found["replaced"] == above
        assert found["deleted"] < 1
        assert "kept_far" not in found


def test_a_watch_keeps_the_best_and_stops() -> None:
    now, kept, values = [0.0], [], iter([0.1, 0.3, *[0.2] * 18])
    watch = Watch(20.0, lambda: next(values), lambda: kept.append(now[0]), lambda: now[0])
    batches = 0
    while True:
        now[0] += 0.5
        batches += 1
        if watch.after_batch(batches / 10):
            break
    report = watch.end()
    assert (report.stopped_by, report.valid_hits_at_10, report.best_seconds) == ("budget", 0.3, 2.0)
    assert kept == [1.0, 2.0]
    assert (report.seconds, watch.share) == (20.0, 1.0)
    assert len(report.curve) == 20
    late = Watch(1.0, lambda: 0.5, lambda: None, lambda: now[0])
    now[0] += 3.0
    assert late.after_batch(1.0)
    assert late.end().stopped_by == "budget"
