"""PyKEEN's models on a graph whose answers follow; skipped where PyKEEN is not installed, but not the message."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
import torch

from benchmarks.peers.pykeen_models import DISTANCES, GRIDS, PykeenPeer
from benchmarks.peers.ranking import filters_of, rank_scores
from dkge_dist.ask.ranks import metrics
from dkge_dist.types import DkgeError
from tests.benchmarks.peers.graphs import graph_with, teams

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]
HAS_PYKEEN = importlib.util.find_spec("pykeen") is not None


def test_without_pykeen_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen", None)
    with pytest.raises(DkgeError, match=r"pip install --constraint constraints\.txt pykeen"):
        PykeenPeer(next(iter(GRIDS["TransE"].values())))


@pytest.mark.skipif(not HAS_PYKEEN, reason="PyKEEN is not installed")
@pytest.mark.parametrize("name", GRIDS)
def test_train_is_recalled(name: str) -> None:
    train, held_out = teams(6, 6)
    graph = graph_with(train, held_out)
    # Row 3 died: the model numbers its entities otherwise than the store does.
    alive = (train.head != 3) & (train.tail != 3)
    known = train.take(alive)
    graph = graph._replace(train=known, valid=known, candidates=np.delete(graph.candidates, 3))
    # How much 8 seconds are worth depends on what else the machine does.
    for budget in (8.0, 60.0):
        system = PykeenPeer(list(GRIDS[name].values())[-1 if name == "ComplEx" else 0], 1)
        report = system.fit(graph, budget)
        assert report.valid_hits_at_10 is not None
        assert report.stopped_by == "budget"
        if report.valid_hits_at_10 > 0.6:
            break
    assert report.epochs > 1
    ranks = rank_scores(system, graph, known, {"": filters_of(graph, known, "paper")})[""]
    assert metrics(ranks.both)["hits@10"] == pytest.approx(report.valid_hits_at_10), "what was kept is the best"
    assert metrics(ranks.both)["hits@10"] > 0.6, "by chance .2"


@pytest.mark.skipif(not HAS_PYKEEN, reason="PyKEEN is not installed")
@pytest.mark.parametrize(("name", "setting"), [(name, setting) for name in DISTANCES for setting in GRIDS[name]])
def test_distances_are_the_scores_of_pykeen(name: str, setting: str) -> None:
    train, _ = teams(6, 6)
    graph = graph_with(train, train)
    system = PykeenPeer(GRIDS[name][setting], 1)
    system.fit(graph, 0.5)
    entity, relation = torch.from_numpy(train.head).long(), torch.from_numpy(train.relation).long()
    with torch.inference_mode():
        for asks_tail in (True, False):
            torch.testing.assert_close(
                system._distances(entity, relation, asks_tail),
                system._predicted(entity, relation, asks_tail),
                rtol=1e-5,
                atol=1e-5,
            )


@pytest.mark.skipif(not HAS_PYKEEN, reason="PyKEEN is not installed")
@pytest.mark.parametrize(("name", "place"), [("ConvE", 0), ("ComplEx", 0), ("ComplEx", 2)])
def test_products_are_the_scores_of_pykeen(name: str, place: int) -> None:
    train, _ = teams(6, 6)
    graph = graph_with(train, train)
    system = PykeenPeer(list(GRIDS[name].values())[place], 1)
    system.fit(graph, 0.5)
    entity, relation = torch.from_numpy(train.head).long(), torch.from_numpy(train.relation).long()
    with torch.inference_mode():
        tails = system._model.predict_t(torch.stack([entity, relation], 1))
        torch.testing.assert_close(system._predicted(entity, relation, True), tails, rtol=1e-4, atol=1e-4)
        heads = system._model.predict_h(torch.stack([relation, entity], 1))
        torch.testing.assert_close(system._predicted(entity, relation, False), heads, rtol=1e-4, atol=1e-4)
