"""docs/pytorch-and-pykeen.md: the vectors in torch and in PyKEEN are those of the model, and score as it does."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import dkge_dist
from tests.docs.guides import blocks, run

GUIDE = "pytorch-and-pykeen.md"

pytestmark = pytest.mark.usefixtures("one_thread")

DISTANCES = """
h, r = entities.weight[entity_ids["e1"]], relations.weight[relation_ids["r0"]]
found = (h + r - entities.weight).abs().sum(1)
scores = {label: -float(found[i]) for label, i in entity_ids.items()}
Path("scores.json").write_text(json.dumps(scores))
"""
TRANSE = """
head, relation = (torch.tensor([ids]) for ids in (entity_ids["e1"], relation_ids["r0"]))
found = model.score_t(torch.stack([head, relation], dim=1))[0]
scores = {label: float(found[i]) for label, i in entity_ids.items()}
Path("scores.json").write_text(json.dumps(scores))
assert factory.num_triples > 300
"""


def assert_scores_are_those_of_the_model(folder: Path) -> None:
    scores = json.loads((folder / "scores.json").read_text())
    report = dkge_dist.answer(folder / "store", "e1", "r0", top=50, evidence=False)
    assert len(scores) > len(report["answers"]) >= 50
    for answer in report["answers"]:
        assert scores[answer["entity"]] == pytest.approx(answer["score"], rel=1e-4)


def test_torch_embeddings_score_as_the_model_does(folder: Path) -> None:
    run(folder, *blocks(GUIDE, "PyTorch"), DISTANCES)
    assert_scores_are_those_of_the_model(folder)


@pytest.mark.skipif(find_spec("pykeen") is None, reason="pykeen is not installed")
def test_pykeen_model_that_starts_with_the_vectors_scores_as_the_model_does(folder: Path) -> None:
    run(folder, *blocks(GUIDE, "PyTorch"), *blocks(GUIDE, "PyKEEN"), TRANSE)
    assert_scores_are_those_of_the_model(folder)
