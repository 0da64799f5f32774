"""GAKE on small graphs: contexts and attention by hand, and answers that follow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.peers.gake import Contexts, Gake, Subjects
from benchmarks.peers.ranking import filters_of, rank_scores
from dkge_dist.ask.ranks import metrics
from dkge_dist.types import ROW
from tests.benchmarks.peers.graphs import graph_with, teams, triples_of

pytestmark = pytest.mark.usefixtures("one_thread")


def test_attention_is_a_softmax_over_the_context() -> None:
    subjects = Subjects(3, 1, 4)
    with torch.no_grad():
        subjects.attention.weight[:, 0] = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    phi = subjects.vector.weight.detach()
    share = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    expected = share[0] * phi[1] + share[1] * phi[3]
    found = subjects.pooled(torch.tensor([[1, 3, -1]]))[0]
    torch.testing.assert_close(found, expected.to(torch.float32))


def test_surprise_is_that_of_a_softmax() -> None:
    subjects = Subjects(6, 2, 3)
    context, target, drawn = torch.tensor([[0, 6]]), torch.tensor([2]), torch.tensor([4, 2, 5])
    scores = (subjects.pooled(context) @ subjects.vector.weight.T).detach()[0].numpy()
    # Three of six were drawn, so that each stands for two; the target itself takes no part.
    total = np.exp(scores[2]) + 2 * np.exp(scores[4]) + 2 * np.exp(scores[5])
    assert subjects.surprise(target, context, drawn).item() == pytest.approx(float(np.log(total) - scores[2]), rel=1e-5)
    relations = np.exp(scores[6:8]).sum()
    found = subjects.surprise_of_relations(torch.tensor([7]), context).item()
    assert found == pytest.approx(float(np.log(relations) - scores[7]), rel=1e-5)


def test_contexts_of_a_chain() -> None:
    # Rows 0, 2, 4 are alive, and numbered 0, 1, 2: 0 -a-> 2 <-b- 4.
    train = triples_of([(0, 0, 2), (4, 1, 2)])
    graph = graph_with(train)._replace(candidates=np.array([0, 2, 4], ROW))
    contexts, rng = Contexts(graph), np.random.default_rng(0)
    chosen = np.array([0, 1])
    (tail, of_tail), (head, of_head) = contexts.neighbours(chosen)
    assert (tail.tolist(), of_tail.tolist()) == ([1, 1], [[0, 3], [2, 4]])
    assert (head.tolist(), of_head.tolist()) == ([0, 2], [[1, 5], [1, 6]]), "backwards they are other subjects"
    relation, ends = contexts.of_relations(chosen)
    assert (relation.tolist(), ends.tolist()) == ([3, 4], [[0, 1], [2, 1]])
    target, edges = contexts.edges(np.array([0]), rng)
    assert (target.tolist(), edges[0, 0].item(), set(edges[0, 1:].tolist())) == ([0], 3, {-1})
    walks = set()
    for _ in range(50):
        end, passed = contexts.paths(np.array([0]), rng)
        walks.add((end.item(), *passed[0].tolist()))
    two = {(0, 0, 3, 1, 5, -1, -1), (2, 0, 3, 1, 6, -1, -1)}
    three = {(1, 0, 3, 1, 5, 0, 3), (1, 0, 3, 1, 6, 2, 4)}
    assert walks == two | three


def test_towns_follow_from_company() -> None:
    train, held_out = teams(12, 8)
    graph = graph_with(train, held_out)
    system = Gake(dim=32, seed=1)
    report = system.fit(graph, 6.0)
    assert report.valid_hits_at_10 is not None
    ranks = rank_scores(system, graph, held_out, {"": filters_of(graph, held_out, "paper")})[""]
    assert metrics(ranks.tail)["hits@10"] > 0.6, "of 120 candidates; by chance .08"
