"""Questions to a model: (head, relation, ?) and (?, relation, tail), one or a file of them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.evaluation.answers import Answers, known_answers
from dkge_dist.evaluation.answers import answer as best_answers
from dkge_dist.evaluation.explanations import explain
from dkge_dist.evidence.questions import Questions
from dkge_dist.jobs.evidence import open_evidence
from dkge_dist.jobs.opened import (
    OpenedModel,
    check_alive,
    labelled,
    lines_of_three,
    open_embedding,
    open_model,
    rows_of,
)
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.runtime import Runtime
from dkge_dist.store.store import Store
from dkge_dist.types import UsageError

ANY = "?"
QUESTION_LINE = "`head<TAB>relation<TAB>?` or `?<TAB>relation<TAB>tail`"


class Question(NamedTuple):
    """A question by labels; `where` names its line in a file, for errors."""

    entity: str
    relation: str
    asks_tail: bool
    where: str = ""


@dataclass(frozen=True)
class AnswerOptions:
    """`top` predictions after the known facts; `new_only` leaves those out; `why` adds the evidence of each."""

    top: int = 10
    new_only: bool = False
    why: bool = False
    evidence: bool = True


def answer(
    store: Store, runtime: Runtime, questions: Sequence[Question], version: str | None, options: AnswerOptions
) -> Report:
    """The best answers to each question: first what the graph says already, then predictions."""
    began = time.monotonic()
    opened = open_model(store, version)
    asked = _by_rows(opened, questions)
    evidence = open_evidence(opened, asked) if options.evidence else None
    if options.why and evidence is None:
        raise UsageError("--why tells evidence: this model was learnt without, or --no-evidence was given")
    known = known_answers(opened.snapshot, asked)
    with open_embedding(opened, runtime) as embedding:
        best = best_answers(embedding, asked, options.top, known, evidence)
    answered = []
    given = _given(opened, asked)
    for number in range(len(questions)):
        facts, predictions = best[number]
        parts = ((predictions, False),) if options.new_only else ((facts, True), (predictions, False))
        lines = [line for found, is_known in parts for line in _lines(opened, found, is_known)]
        if options.why and evidence is not None:
            for line, row in zip(lines, (row for found, _ in parts for row in found.rows.tolist()), strict=True):
                line["why"] = explain(evidence, asked.take(np.array([number])), row, opened.names)
        answered.append({**given[number], "answers": lines})
    return {
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
        "evidence": evidence is not None,
        "questions": answered,
        "seconds": seconds_since(began),
    }


def _lines(opened: OpenedModel, found: Answers, is_known: bool) -> list[dict[str, Any]]:
    return [
        {**named, "score": round(float(score), 6), "known": is_known}
        for named, score in zip(labelled(opened.names[0], found.rows, "entity", "name"), found.scores, strict=True)
    ]


def _given(opened: OpenedModel, asked: Questions) -> list[Report]:
    """What was given in each question, by its role: labels, whatever it was called by, and names."""
    ends = labelled(opened.names[0], asked.entity, "entity", "name")
    relations = labelled(opened.names[1], asked.relation, "relation", "relation_name")
    roles = [{"entity": role, "name": f"{role}_name"} for role in np.where(asked.asks_tail, "head", "tail").tolist()]
    return [
        {**{role[key]: value for key, value in end.items()}, **relation}
        for role, end, relation in zip(roles, ends, relations, strict=True)
    ]


def _by_rows(opened: OpenedModel, questions: Sequence[Question]) -> Questions:
    """The questions by rows; labels that are unknown or not alive are an error."""
    where = [question.where for question in questions]
    entities, relations = [question.entity for question in questions], [question.relation for question in questions]
    entity_rows = rows_of(opened.names[0], entities, where, opened)
    relation_rows = rows_of(opened.names[1], relations, where, opened)
    check_alive(opened, "entities", entity_rows, entities, where)
    check_alive(opened, "relations", relation_rows, relations, where)
    return Questions(entity_rows, relation_rows, np.array([question.asks_tail for question in questions], bool))


def questions_of(head: str | None, relation: str | None, tail: str | None, batch: Path | None) -> list[Question]:
    """The question that was given, or those of a file."""
    if batch is None:
        if relation is None or (head is None) == (tail is None):
            raise UsageError("ask with HEAD and RELATION, with RELATION and --tail, or with --batch FILE")
        return [Question(head, relation, True) if head is not None else Question(str(tail), relation, False)]
    if head is not None or relation is not None or tail is not None:
        raise UsageError("--batch FILE brings its own questions: no HEAD, RELATION or --tail beside it")
    questions = list(_from_lines(batch))
    if not questions:
        raise UsageError(f"{batch}: holds no question")
    return questions


def _from_lines(path: Path) -> Iterator[Question]:
    for where, fields in lines_of_three(path, QUESTION_LINE):
        if (fields[0] == ANY) == (fields[2] == ANY):
            raise UsageError(f"{where}expected {QUESTION_LINE}")
        asks_tail = fields[2] == ANY
        yield Question(fields[0] if asks_tail else fields[2], fields[1], asks_tail, where)
