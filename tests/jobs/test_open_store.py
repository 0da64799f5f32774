"""A store that stays open: the answers of the commands, opened once, followed to newer versions, asked by threads."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dkge_dist
from dkge_dist.ask.results import Answers, Failure
from dkge_dist.types import DkgeError, Field
from tests.jobs.building import ADDED, ingest_night
from tests.jobs.reads import counted_reads
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

BATCH = [("e4", "r2", None), ("nobody", "r2", None), (None, "r0", "e9"), ("e4", "?", "e9")]


def timeless(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in json.loads(json.dumps(report, default=dict)).items() if key != "seconds"}


def test_it_gives_what_the_commands_print(store: Path) -> None:
    with dkge_dist.open(store) as opened:
        found = opened.answer(batch=BATCH, top=3, why=True)
        assert timeless(found.to_dict()) == timeless(dkge_dist.answer(store, batch=BATCH, top=3, why=True))
        scored = opened.score(batch=[("e4", "r2", "e9"), ("e1", "r0", "e1")])
        asked = dkge_dist.score(store, batch=[("e4", "r2", "e9"), ("e1", "r0", "e1")])
        assert timeless(scored.to_dict()) == timeless(asked)
        assert timeless(opened.similar(batch=["e4"]).to_dict()) == timeless(dkge_dist.similar(store, batch=["e4"]))
        assert timeless(opened.evaluate()) == timeless(dkge_dist.evaluate(store))
        assert opened.log() == dkge_dist.log(store)
        alone = opened.answer("e4", "r2", top=3, why=True)
        assert alone == found[0] and isinstance(found[1], Failure)


def test_the_second_question_opens_nothing(store: Path) -> None:
    with counted_reads(store) as reads, dkge_dist.open(store) as opened:
        first = opened.answer("e4", "r2")
        opened.score("e4", "r2", "e9")
        before = dict(reads.parts)
        assert opened.answer("e4", "r2") == first
        opened.answer("e4", None, "e9", why=True)
        opened.score("e4", "r2", "e9")
        opened.similar("e4")
        assert (reads.stores, dict(reads.parts)) == (1, before)


def test_it_stays_at_its_version_until_it_is_refreshed(store: Path, tmp_path: Path) -> None:
    with dkge_dist.open(store) as opened, dkge_dist.open(store, version=2) as fixed:
        before = opened.answer("e4", "r2")
        ingest_night(tmp_path / "night.changes", store, ADDED, [])
        assert opened.notice is None
        assert not opened.refresh()
        assert opened.notice == f"snapshot 'night' is newer and not learnt yet: `dkge update {store}`"
        dkge_dist.update(store)
        assert opened.answer("e4", "r2") == before and opened.version == 2
        with pytest.raises(DkgeError, match="no entity 'new1'"):
            opened.answer("new1", "r1")
        assert opened.refresh() and not fixed.refresh()
        assert (opened.version, opened.snapshot, opened.notice) == (4, "night", None)
        assert opened.answer("new1", "r1").origin.version == 4
        assert (fixed.version, fixed.notice) == (2, None)


def test_many_threads_may_ask_while_it_is_refreshed(store: Path, tmp_path: Path) -> None:
    """Every answer is that of one version or of the other."""
    questions = [(f"e{n}", f"r{n % 4}") for n in range(24)]
    with dkge_dist.open(store) as opened:
        old = [opened.answer(*question) for question in questions]
        ingest_night(tmp_path / "night.changes", store, ADDED, [])
        dkge_dist.update(store)
        with dkge_dist.open(store) as other:
            new = [other.answer(*question) for question in questions]
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(opened.answer, *question) for question in questions]
            assert pool.submit(opened.refresh).result()
            asked += [pool.submit(opened.answer, *question) for question in questions]
            found = [one.result() for one in asked]
    for number, answers in enumerate(found):
        at = number % len(questions)
        assert answers == (old if answers.origin.version == 2 else new)[at]
    assert all(answers.origin.version == 4 for answers in found[len(questions) :])


def test_vectors_are_those_of_the_store_without_a_copy(store: Path, tmp_path: Path) -> None:
    with dkge_dist.open(store) as opened:
        labels, values = opened.vectors()
        expected = vectors_of(store)
        assert len(labels) == 60 and np.array_equal(values, expected.entities[Field.JOINT])
        assert np.shares_memory(values, opened.vectors().values)
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0
        assert opened.vectors().to_pandas().loc["e4"].tolist() == values[labels.index("e4")].tolist()
        names, context = opened.vectors("relations", "context")
        assert len(names) == 4 and np.array_equal(context, expected.relations[Field.CONTEXT])
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    ingest_night(tmp_path / "n2.changes", store, [], ADDED)
    dkge_dist.update(store)
    with dkge_dist.open(store) as opened:
        assert opened.vectors().labels == labels


def test_results_print_well_and_become_tables(store: Path) -> None:
    with dkge_dist.open(store) as opened:
        assert "version 2 of 'base': 60 entities, 4 relations" in repr(opened)
        answers = opened.answer("e4", "r2", top=30)
        assert isinstance(answers, Answers) and answers[0].known
        first, second, *_, last = repr(answers).splitlines()
        assert first == "(e4, r2, ?) by version 2" and second.endswith("(known)") and last.endswith("more")
        table = answers.to_pandas()
        assert isinstance(table, pd.DataFrame) and len(table) == len(answers)
        assert table["tail"].tolist() == [answer.entity for answer in answers]
        assert set(table["head"]) == {"e4"} and table["score"].tolist() == [answer.score for answer in answers]
        batch = opened.answer(batch=BATCH, top=2).to_pandas()
        assert batch["error"].notna().sum() == 1 and batch["relation"].notna().sum() == len(batch) - 1
        assert opened.score("e4", "r2", "e9").to_pandas()["relation"].tolist() == ["r2"]
        assert opened.similar("e4", top=3).to_pandas()["similar"].tolist() == [
            n.entity for n in opened.similar("e4")[:3]
        ]
        evaluated = opened.evaluate()
        assert evaluated.to_pandas()["mrr"].tolist()[0] == evaluated["mrr"]
        assert [line.split()[0] for line in repr(evaluated).splitlines()[1:]] == ["filtered", "paper"] * 2
        assert opened.log().to_pandas()["version"].tolist() == [1, 2] and "snapshot" in repr(opened.log())


def test_a_closed_store_answers_nothing(store: Path) -> None:
    opened = dkge_dist.open(store)
    opened.close()
    opened.close()
    with pytest.raises(DkgeError, match="is closed"):
        opened.answer("e4", "r2")
    assert "closed" in repr(opened)
