"""Variants of the method: with no difference they are the package's, and each difference does what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.peers.protocol import Graph
from benchmarks.study.from_text import variants
from benchmarks.study.variants import (
    DIFFERENCES,
    LAST_PASS,
    NORM,
    OWN,
    PADDING,
    START,
    VariantDkge,
    head_chance_of_all,
    padded_attention,
)
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.settings import load_settings
from dkge_dist.types import ROW
from tests.benchmarks.peers.graphs import teams, triples_of
from tests.training_graphs import graph_of_rows

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = load_settings(None, ["model.dim=8", "train.batch_size=20", "train.max_epochs=3", "seed=1"], "paper")


def made(*differences: str) -> tuple[VariantDkge, Graph]:
    train, held_out = teams(6, 5)
    rows = int(max(train.head.max(), train.tail.max())) + 1
    graph = Graph(train, held_out, held_out, np.arange(rows, dtype=ROW), rows, 3)
    lines = list(zip(*(column.tolist() for column in train), strict=True))
    training = graph_of_rows(lines, rows, 3, Sampling(1, 35, 1))
    return VariantDkge(training, SETTINGS, frozenset(differences)), graph


def encoded(peer: VariantDkge, rows: list[int]) -> torch.Tensor:
    return peer._encode(peer.vectors.entity, peer.entities.batch(np.array(rows, ROW))).detach()


def by_hand(peer: VariantDkge, row: int, own: bool, width: int | None) -> torch.Tensor:
    """o* of an entity, written out: its context dense, its attention over `width` vertices."""
    kind = peer.vectors.entity
    batch = peer.entities.batch(np.array([row], ROW))
    vertices = batch.vertex_rows[np.asarray(batch.contexts.slot_row)]
    assert vertices[0] == row, "the object comes first"
    count = vertices.shape[0]
    adjacency = torch.zeros(count, count)
    for slot in range(count):
        for at in range(batch.contexts.entry_ptr[slot], batch.contexts.entry_ptr[slot + 1]):
            adjacency[slot, batch.contexts.entry_slot[at]] = float(batch.contexts.entry_weight[at])
    features = kind.context.detach()[vertices].clone()
    if own:
        features[0] = kind.knowledge.detach()[row]
    hidden = torch.relu(adjacency @ features @ kind.encoder.gcn.weights[0].detach())
    hidden = torch.cat([hidden, torch.zeros((width or count) - count, hidden.shape[1])])
    knowledge = kind.knowledge.detach()[row]
    scores = torch.relu(hidden * knowledge) @ kind.encoder.gcn.attention.detach()
    gate = torch.sigmoid(kind.encoder.gate.logits.detach())
    return gate * knowledge + (1 - gate) * (scores.softmax(0)[:, None] * hidden).sum(0)


@pytest.mark.parametrize("start", [(), (START,)])
@pytest.mark.parametrize(
    ("differences", "own", "width"),
    [((), False, None), ((OWN,), True, None), ((PADDING,), False, 36), ((OWN, PADDING), True, 36)],
)
def test_joint_vectors_are_those_written_out(
    start: tuple[str, ...], differences: tuple[str, ...], own: bool, width: int | None
) -> None:
    peer, _ = made(*start, *differences)
    found = encoded(peer, [0, 6, 20])
    for number, row in enumerate((0, 6, 20)):
        torch.testing.assert_close(found[number], by_hand(peer, row, own, width), rtol=1e-4, atol=1e-5)


def test_padding_takes_attention_away() -> None:
    hidden, query = torch.rand(5, 4), torch.rand(2, 4)
    indptr = np.array([0, 2, 5])
    usual, padded = padded_attention(hidden, query, indptr, 1), padded_attention(hidden, query, indptr, 30)
    assert (padded < usual).all()


def test_l2_is_ranked_by_l2() -> None:
    peer, graph = made(NORM)
    peer.fit(graph, 0.05)
    found = peer.scores(np.array([3]), np.array([1]), True)[0]
    query = peer.joint_ED[3] + peer.joint_RD[1]
    np.testing.assert_allclose(
        found, -np.linalg.norm(query - peer.joint_ED[graph.candidates], axis=1), rtol=1e-3, atol=1e-4
    )


def test_one_ratio_for_all_relations() -> None:
    # Three heads, one tail: a head has one tail, a tail three heads.
    assert head_chance_of_all(triples_of([(0, 0, 3), (1, 0, 3), (2, 1, 3)])) == pytest.approx(1 / 4)
    peer, _ = made("global Bernoulli ratio")
    chance = peer._maker().negatives.head_chance
    assert chance is not None
    assert np.unique(chance).shape == (1,)


@pytest.mark.parametrize("differences", [(), DIFFERENCES])
def test_it_learns(differences: tuple[str, ...]) -> None:
    peer, graph = made(*differences)
    report = peer.fit(graph, 30)
    assert report.epochs == 3.0
    assert report.valid_hits_at_10 is not None
    assert np.isfinite(peer.joint_ED).all()
    assert peer.joint_ED[graph.candidates].any(1).all(), "every candidate has a vector"


def test_vectors_of_the_last_pass_are_not_made_anew() -> None:
    peer, graph = made(LAST_PASS)
    peer.fit(graph, 30)
    kept = peer.joint_ED.copy()
    peer._materialise(graph)
    np.testing.assert_array_equal(kept, peer.joint_ED)


def test_differences_alone_and_one_after_the_other() -> None:
    every = variants()
    assert every["literal"] == ()
    assert every[f"up to: {DIFFERENCES[-1]}"] == DIFFERENCES
    assert len(every) == 2 * len(DIFFERENCES)
    with pytest.raises(ValueError, match="unknown differences"):
        made("typo")
