"""Whose answers changed: the questions of changed triples, asked one by one of the models before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist.measure import changed_answers as job
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from tests.graphs import everything
from tests.jobs.building import ADDED, base_triples, ingest_night

pytestmark = pytest.mark.usefixtures("one_thread")

DELETED = ["\t".join(triple) for triple in base_triples()[:3]]


@pytest.fixture
def updated(store: Path, tmp_path: Path) -> Path:
    """Snapshot `base` with model 2, `night` with model 4."""
    ingest_night(tmp_path / "night.changes", store, ADDED, DELETED)
    dkge_dist.update(store)
    return store


def best(store: Path, question: dict[str, Any], version: int) -> list[str]:
    """The best answers by score, found by asking for all of them."""
    given = {"head": question.get("head"), "tail": question.get("tail")}
    found = dkge_dist.answer(
        store, given["head"], question["relation"], tail=given["tail"], top=999, version=str(version)
    )
    return [line["entity"] for line in sorted(found["answers"], key=lambda line: -line["score"])][: job.TOP]


def test_questions_that_differ_are_those_that_one_by_one_do(updated: Path) -> None:
    diff = dkge_dist.diff(updated, "base", "night", answers=True, examples=999)
    report, triples = diff["answers"], diff["added_examples"] + diff["deleted_examples"]
    graphs = [everything(updated, name) for name in ("base", "night")]
    entities = set.intersection(*({label for h, _, t in graph for label in (h, t)} for graph in graphs))
    relations = set.intersection(*({r for _, r, _ in graph} for graph in graphs))
    asked = {(h, r, "?") for h, r, _ in triples if h in entities and r in relations}
    asked |= {("?", r, t) for _, r, t in triples if t in entities and r in relations}
    assert (report["models"], report["questions"], report["asked"]) == ([2, 4], len(asked), len(asked))
    shown = {(line.get("head", "?"), line["relation"], line.get("tail", "?")): line for line in report["examples"]}
    assert len(shown) == report["differ"]
    for head, relation, tail in asked:
        question = {"relation": relation, **({"head": head} if tail == "?" else {"tail": tail})}
        before, after = best(updated, question, 2), best(updated, question, 4)
        line = shown.get((head, relation, tail))
        if line is None:
            assert before == after
        else:
            assert [[found["entity"] for found in line[when]] for when in ("before", "after")] == [before, after]
            assert before != after


def test_a_large_change_is_asked_by_a_sample(updated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = dkge_dist.diff(updated, "base", "night", answers=True, examples=999)["answers"]
    monkeypatch.setattr(job, "QUESTIONS", 3)
    report = dkge_dist.diff(updated, "base", "night", answers=True, examples=1)["answers"]
    assert (report["asked"], report["questions"]) == (3, whole["questions"])
    assert report["differ"] <= 3
    assert all(line in whole["examples"] for line in report["examples"])
    assert len(report["examples"]) <= 1


def test_models_are_those_of_the_snapshots_or_those_named(updated: Path) -> None:
    for words in (("1", "3"), ("2", "4"), ("base", "4"), ("1", "2999-01-01")):
        assert dkge_dist.diff(updated, *words, answers=True)["answers"]["models"] == [2, 4]
    nothing = dkge_dist.diff(updated, "2", "2", answers=True)["answers"]
    assert (nothing["models"], nothing["questions"], nothing["asked"], nothing["examples"]) == ([2, 2], 0, 0, [])


def test_a_snapshot_that_no_model_was_learnt_from(updated: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "later.changes", updated, ["x\tlikes\ty"], [])
    with pytest.raises(StoreError, match="no model was learnt from snapshot 'later'; `dkge train "):
        dkge_dist.diff(updated, "night", "later", answers=True)
    assert Store.open(updated).learnt_from(5) is None
