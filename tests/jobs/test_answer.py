"""Questions as a job: known facts, then the best predictions, why, and what cannot be asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.jobs.answer import AnswerOptions, Question, answer, questions_of
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Field, UsageError
from tests.graphs import everything
from tests.jobs.building import ADDED, ingest_night, write_lines
from tests.jobs.reads import counted_reads
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")


BY_VECTORS = AnswerOptions(7, evidence=False)


@pytest.mark.parametrize("asks_tail", [True, False])
def test_known_facts_come_first_then_the_nearest_entities(store: Path, asks_tail: bool) -> None:
    report = answer(Store.open(store), LocalRuntime(), [Question("e4", "r2", asks_tail)], None, BY_VECTORS)
    opened = Store.open(store)
    names, vectors = opened.dictionaries(opened.head()), vectors_of(store)
    labels = names[0].labels(np.arange(len(names[0])))
    entities, relations = vectors.entities[Field.JOINT], vectors.relations[Field.JOINT]
    kinds = names[1].labels(np.arange(len(names[1])))
    query = entities[labels.index("e4")] + (1 if asks_tail else -1) * relations[kinds.index("r2")]
    distances = np.abs(query - entities).sum(1)
    order = np.argsort(distances, kind="stable").tolist()
    (found,) = report["questions"]
    known = everything(store, "base")
    facts = {row for row in order if (("e4", "r2", labels[row]) if asks_tail else (labels[row], "r2", "e4")) in known}
    expected = [row for row in order if row in facts] + [row for row in order if row not in facts][:7]
    assert facts
    assert [line["entity"] for line in found["answers"]] == [labels[row] for row in expected]
    assert [line["score"] for line in found["answers"]] == pytest.approx((-distances[expected]).tolist(), abs=1e-5)
    assert [line["known"] for line in found["answers"]] == [row in facts for row in expected]
    assert found["relation"] == "r2"
    assert found["head" if asks_tail else "tail"] == "e4"
    assert (report["version"], report["snapshot"], report["evidence"]) == (2, "base", False)


def test_many_questions_are_answered_as_each_alone(store: Path) -> None:
    questions = [Question("e4", "r2", True), Question("e9", "r0", False), Question("e4", "r2", True)]
    options = AnswerOptions(5, why=True)
    together = answer(Store.open(store), LocalRuntime(), questions, None, options)["questions"]
    for question, found in zip(questions, together, strict=True):
        assert answer(Store.open(store), LocalRuntime(), [question], None, options)["questions"] == [found]


def test_more_answers_than_entities(store: Path) -> None:
    options = AnswerOptions(10**6)
    (found,) = answer(Store.open(store), LocalRuntime(), [Question("e4", "r2", True)], None, options)["questions"]
    assert len(found["answers"]) == len({line["entity"] for line in found["answers"]}) == 60


def test_it_opens_the_store_once_and_reads_each_part_once(store: Path) -> None:
    """The vectors of the questions come from the table that the answers are looked for in."""
    with counted_reads(store) as reads:
        dkge_dist.answer(store, "e4", "r2")
    assert reads.stores == 1
    assert set(reads.parts.values()) == {1}


def test_an_earlier_version_is_asked_with_its_own_snapshot(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "night.changes", store, ADDED, [])
    dkge_dist.update(store)
    assert dkge_dist.answer(store, "new1", "r1")["snapshot"] == "night"
    with pytest.raises(DkgeError, match="no entity 'new1'"):
        dkge_dist.answer(store, "new1", "r1", version="2")


@pytest.mark.parametrize(("entity", "relation", "gone"), [("new1", "r1", "new1"), ("e5", "r9", "r9")])
def test_labels_that_are_not_alive_are_refused(
    store: Path, tmp_path: Path, entity: str, relation: str, gone: str
) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    ingest_night(tmp_path / "n2.changes", store, [], ADDED)
    dkge_dist.update(store)
    with pytest.raises(DkgeError, match=rf"^q, line 2: '{gone}' is not in snapshot 'n2' \(it was in another one\)$"):
        answer(
            Store.open(store),
            LocalRuntime(),
            [Question("e1", "r1", True), Question(entity, relation, True, "q, line 2: ")],
            None,
            AnswerOptions(3),
        )


def test_questions_of_a_call() -> None:
    assert questions_of("a", "r", None, None) == [Question("a", "r", True)]
    assert questions_of(None, "r", "b", None) == [Question("b", "r", False)]


@pytest.mark.parametrize("given", [(None, None, None), ("a", None, None), (None, "r", None), ("a", "r", "b")])
def test_questions_that_ask_nothing_or_too_much(given: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(UsageError, match="ask with HEAD and RELATION"):
        questions_of(*given, None)


def test_questions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "questions.tsv"
    path.write_bytes("a\tr\t?\r\n\n?\tr s\tb\u2028c\n".encode())
    assert questions_of(None, None, None, path) == [
        Question("a", "r", True, f"{path}, line 1: "),
        Question("b\u2028c", "r s", False, f"{path}, line 3: "),
    ]


@pytest.mark.parametrize("line", ["a\tr", "a\tr\tb", "?\tr\t?", "a\tr\t?\tx", "a r ?"])
def test_lines_that_are_no_questions_are_named(tmp_path: Path, line: str) -> None:
    path = write_lines(tmp_path / "questions.tsv", ["a\tr\t?", line])
    with pytest.raises(UsageError, match=f"{path}, line 2: expected"):
        questions_of(None, None, None, path)


def test_files_without_questions_and_other_bytes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no question"):
        questions_of(None, None, None, write_lines(tmp_path / "empty.tsv", [""]))
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\tr\t?\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        questions_of(None, None, None, tmp_path / "bytes.tsv")
    with pytest.raises(UsageError, match="brings its own questions"):
        questions_of("a", None, None, tmp_path / "bytes.tsv")
