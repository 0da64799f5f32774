"""Questions as a job: known facts, then the best predictions, why, and what cannot be asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.answers import AnswerOptions, answer, questions_of
from dkge_dist.ask.batches import Line
from dkge_dist.ask.model import open_model
from dkge_dist.ask.results import Answers, Failure
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Field, UsageError
from tests.graphs import everything
from tests.jobs.building import ADDED, ingest_night, some_train, write_lines
from tests.jobs.reads import counted_reads
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")


BY_VECTORS = AnswerOptions(7, evidence=False)


def ask(store: Path, lines: list[tuple[str | None, ...]], options: AnswerOptions) -> list[Answers | Failure]:
    model = open_model(Store.open(store))
    return list(answer(model, [Line(n, fields) for n, fields in enumerate(lines, 1)], options))  # type: ignore[arg-type]


@pytest.mark.parametrize("asks_tail", [True, False])
def test_known_facts_come_first_then_the_nearest_entities(store: Path, asks_tail: bool) -> None:
    (answers,) = ask(store, [("e4", "r2", None) if asks_tail else (None, "r2", "e4")], BY_VECTORS)
    found, origin = answers.to_dict(), answers.origin
    opened = Store.open(store)
    names, vectors = opened.dictionaries(opened.head()), vectors_of(store)
    labels = names[0].labels(np.arange(len(names[0])))
    entities, relations = vectors.entities[Field.JOINT], vectors.relations[Field.JOINT]
    kinds = names[1].labels(np.arange(len(names[1])))
    query = entities[labels.index("e4")] + (1 if asks_tail else -1) * relations[kinds.index("r2")]
    distances = np.abs(query - entities).sum(1)
    order = np.argsort(distances, kind="stable").tolist()
    known = everything(store, "base")
    facts = {row for row in order if (("e4", "r2", labels[row]) if asks_tail else (labels[row], "r2", "e4")) in known}
    expected = [row for row in order if row in facts] + [row for row in order if row not in facts][:7]
    assert facts
    assert [line["entity"] for line in found["answers"]] == [labels[row] for row in expected]
    assert [line["score"] for line in found["answers"]] == pytest.approx((-distances[expected]).tolist(), abs=1e-5)
    assert [line["known"] for line in found["answers"]] == [row in facts for row in expected]
    assert found["relation"] == "r2"
    assert found["head" if asks_tail else "tail"] == "e4"
    assert (origin.version, origin.snapshot, origin.evidence) == (2, "base", False)


QUESTIONS = [("e4", "r2", None), (None, "r0", "e9"), ("e4", None, "e9"), ("e4", "r2", "?"), ("e1", "?", "e1")]


def test_many_questions_are_answered_as_each_alone(store: Path) -> None:
    """One question and many take the same path."""
    options = AnswerOptions(5, why=True)
    together = ask(store, QUESTIONS, options)
    for question, found in zip(QUESTIONS, together, strict=True):
        (alone,) = ask(store, [question], options)
        assert found == alone and (found.head, found.relation, found.tail) == (alone.head, alone.relation, alone.tail)


def test_more_answers_than_entities(store: Path) -> None:
    (found,) = ask(store, [("e4", "r2", None)], AnswerOptions(10**6))
    assert len(found) == len({answer.entity for answer in found}) == 60


def test_relations_between_two_entities_are_ranked_by_the_score_of_their_triples(store: Path) -> None:
    head, _, tail = min(everything(store, "base"))
    (found,) = ask(store, [(head, None, tail)], AnswerOptions(2))
    every = dkge_dist.score(store, batch=[(head, f"r{n}", tail) for n in range(4)], ranks=False)["triples"]
    known = sorted((one for one in every if one["known"]), key=lambda one: -one["score"])
    others = sorted((one for one in every if not one["known"]), key=lambda one: -one["score"])[:2]
    assert known and others
    assert [(one.relation, one.score, one.known) for one in found] == [
        (one["relation"], one["score"], one["known"]) for one in [*known, *others]
    ]
    assert all(one.entity is None for one in found)
    (new,) = ask(store, [(head, None, tail)], AnswerOptions(2, new_only=True))
    assert list(new) == [one for one in found if not one.known]


def test_deleted_facts_are_marked_with_the_night_that_deleted_them(store: Path, tmp_path: Path) -> None:
    """Whichever side is asked for; and no more once they are back."""
    first, second, held_out = some_train(store, 3)
    ingest_night(tmp_path / "n1.changes", store, [], [first, second])
    ingest_night(tmp_path / "n2.changes", store, ["e5\tr2\te9"], [held_out])
    ingest_night(tmp_path / "n3.changes", store, [second], [])
    dkge_dist.update(store)
    head, relation, tail = first.split("\t")
    for question in ((head, relation, None), (None, relation, tail), (head, None, tail)):
        (found,) = ask(store, [question], AnswerOptions(60))
        gone = [one for one in found if one.deleted]
        mine = {head, relation, tail} - {label for label in question if label}
        assert [one for one in gone if {one.entity, one.relation} & mine] and not any(one.known for one in gone)
        told = next(one.to_dict() for one in gone if {one.entity, one.relation} & mine)
        assert (told["deleted"], told["deleted_in"]) == (True, "n1")
    (back,) = dkge_dist.score(store, batch=[tuple(second.split("\t"))])["triples"]
    assert back["known"] and "deleted" not in back
    (other,) = dkge_dist.score(store, batch=[tuple(held_out.split("\t"))])["triples"]
    assert other["deleted_in"] == "n2"


def test_a_newer_snapshot_is_noticed_unless_a_version_was_asked_for(store: Path, tmp_path: Path) -> None:
    assert "notice" not in dkge_dist.answer(store, "e4", "r2")
    ingest_night(tmp_path / "night.changes", store, ADDED, [])
    report = dkge_dist.answer(store, "e4", "r2")
    assert report["notice"] == f"snapshot 'night' is newer and not learnt yet: `dkge update {store}`"
    assert "notice" not in dkge_dist.answer(store, "e4", "r2", version=2)
    dkge_dist.update(store)
    assert "notice" not in dkge_dist.answer(store, "e4", "r2")


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


def test_bad_questions_of_a_batch_are_told_in_their_places(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    ingest_night(tmp_path / "n2.changes", store, [], ADDED)
    dkge_dist.update(store)
    lines: list[tuple[str | None, ...]] = [
        ("e1", "r1", None), ("new1", "r1", None), ("e5", "r9", None), ("e5", "r1"), ("e5", "r1", "e6"),
        (None, None, "e6"), ("nobody", "r1", "?"), (None, "r1", "e1"), ("e5", 7, None), ("\udcff", "r1", None),
    ]  # fmt: skip
    found = ask(store, lines, AnswerOptions(3))
    told = {one.line: one.error for one in found if isinstance(one, Failure)}
    assert [isinstance(one, Answers) for one in found] == [number in (1, 8) for number in range(1, 11)]
    assert told[2] == "'new1' is not in snapshot 'n2' (it was in another one)"
    assert told[3] == "'r9' is not in snapshot 'n2' (it was in another one)"
    assert told[7].startswith("no entity 'nobody'") and told[10].startswith("no entity '\\udcff'")
    assert all(told[number].startswith("expected `head<TAB>relation<TAB>?`") for number in (4, 5, 6, 9))


def test_a_single_question_that_cannot_be_answered_is_an_error(store: Path) -> None:
    with pytest.raises(DkgeError, match=r"^no entity 'nobody'"):
        dkge_dist.answer(store, "nobody", "r1")


def test_questions_of_a_call() -> None:
    assert questions_of("a", "r", None, None) == [Line(1, ["a", "r", None])]
    assert questions_of("?", "r", "b", None) == [Line(1, [None, "r", "b"])]
    assert questions_of("a", None, "b", None) == [Line(1, ["a", None, "b"])]


@pytest.mark.parametrize("given", [(None, None, None), ("a", None, None), (None, "r", None), ("a", "r", "b")])
def test_questions_that_ask_nothing_or_too_much(given: tuple[str | None, str | None, str | None]) -> None:
    with pytest.raises(UsageError, match="ask with HEAD and RELATION"):
        questions_of(*given, None)


def test_questions_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "questions.tsv"
    path.write_bytes("a\tr\t?\r\n\n?\tr s\tb\u2028c\nx\n".encode())
    assert questions_of(None, None, None, path) == [
        Line(1, ["a", "r", "?"]), Line(3, ["?", "r s", "b\u2028c"]), Line(4, ["x"]),
    ]  # fmt: skip


def test_files_without_questions_and_other_bytes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no question"):
        questions_of(None, None, None, write_lines(tmp_path / "empty.tsv", [""]))
    with pytest.raises(UsageError, match="holds no question"):
        questions_of(None, None, None, [])
    (tmp_path / "bytes.tsv").write_bytes(b"\xff\tr\t?\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        questions_of(None, None, None, tmp_path / "bytes.tsv")
    with pytest.raises(UsageError, match="brings its own questions"):
        questions_of("a", None, None, tmp_path / "bytes.tsv")


def test_wrong_options_are_wrong_usage(store: Path) -> None:
    with pytest.raises(UsageError, match="--top 0: at least one answer"):
        dkge_dist.answer(store, "e4", "r2", top=0)
    with pytest.raises(UsageError, match="--why tells evidence"):
        dkge_dist.answer(store, "e4", "r2", why=True, evidence=False)
