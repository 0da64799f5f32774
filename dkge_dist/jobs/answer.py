"""Questions to a model: (head, relation, ?) and (?, relation, tail), one or a file of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.evaluation.answers import Questions, known_answers
from dkge_dist.evaluation.answers import answer as nearest_answers
from dkge_dist.jobs.opened import OpenedModel, open_embedding, open_model, rows_of
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.runtime import Runtime
from dkge_dist.store.store import Store
from dkge_dist.tables.nearest import Nearest
from dkge_dist.types import Array, DkgeError, UsageError

ANY = "?"


class Question(NamedTuple):
    """A question by labels; `where` names its line in a file, for errors."""

    entity: str
    relation: str
    asks_tail: bool
    where: str = ""

    @property
    def given(self) -> dict[str, Any]:
        """What was given, by its role."""
        return {("head" if self.asks_tail else "tail"): self.entity, "relation": self.relation}


def answer(store: Store, runtime: Runtime, questions: Sequence[Question], top: int, version: str | None) -> Report:
    """The best answers to each question."""
    began = time.monotonic()
    opened = open_model(store, version)
    asked = _by_rows(opened, questions)
    with open_embedding(opened, runtime) as embedding:
        best = nearest_answers(embedding, asked, top)
    answered = [
        {**question.given, "answers": _answers(opened, asked, number, best)}
        for number, question in enumerate(questions)
    ]
    return {
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
        "questions": answered,
        "seconds": seconds_since(began),
    }


def _by_rows(opened: OpenedModel, questions: Sequence[Question]) -> Questions:
    """The questions by rows; labels that are unknown or not alive are an error."""
    where = [question.where for question in questions]
    entities = rows_of(opened.names[0], [question.entity for question in questions], where)
    relations = rows_of(opened.names[1], [question.relation for question in questions], where)
    snapshot = opened.snapshot
    gone = ~(snapshot.entities_alive[entities] & snapshot.relations_alive[relations])
    for number in np.flatnonzero(gone).tolist():
        question = questions[number]
        label = question.relation if snapshot.entities_alive[entities[number]] else question.entity
        raise DkgeError(
            f"{question.where}{label!r} is not in snapshot {opened.snapshot_name!r} (it was in another one)"
        )
    return Questions(entities, relations, np.array([question.asks_tail for question in questions], bool))


def _answers(opened: OpenedModel, asked: Questions, number: int, best: Nearest) -> list[dict[str, Any]]:
    rows: Array = best.rows[number]
    known = known_answers(opened.snapshot, asked, number, rows)
    return [
        {"entity": label, "score": round(float(distance), 6), "known": bool(mark)}
        for label, distance, mark in zip(opened.names[0].labels(rows), best.distances[number], known, strict=True)
    ]


def questions_of(head: str | None, relation: str | None, tail: str | None, batch: Path | None) -> list[Question]:
    """The question that was given, or those of a file."""
    if batch is None:
        if relation is None or (head is None) == (tail is None):
            raise UsageError("ask with HEAD and RELATION, with RELATION and --tail, or with --batch FILE")
        return [Question(head, relation, True) if head is not None else Question(str(tail), relation, False)]
    if head is not None or relation is not None or tail is not None:
        raise UsageError("--batch FILE brings its own questions: no HEAD, RELATION or --tail beside it")
    try:
        # Lines end as in sources: labels may hold other characters that Python takes for line ends.
        lines = [line.removesuffix("\r") for line in batch.read_bytes().decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise UsageError(f"{batch}: not UTF-8: {error}") from None
    questions = list(_from_lines(batch, lines))
    if not questions:
        raise UsageError(f"{batch}: holds no question")
    return questions


def _from_lines(path: Path, lines: Sequence[str]) -> Iterator[Question]:
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        where = f"{path}, line {number}: "
        fields = line.split("\t")
        if len(fields) != 3 or (fields[0] == ANY) == (fields[2] == ANY):
            raise UsageError(f"{where}expected `head<TAB>relation<TAB>?` or `?<TAB>relation<TAB>tail`")
        asks_tail = fields[2] == ANY
        yield Question(fields[0] if asks_tail else fields[2], fields[1], asks_tail, where)
