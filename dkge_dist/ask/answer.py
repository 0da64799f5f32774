"""Questions to a model: (head, relation, ?), (?, relation, tail) and (head, ?, tail), one or many of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkge_dist.ask.answers import Answers as FoundAnswers
from dkge_dist.ask.answers import answer as best_answers
from dkge_dist.ask.batches import ANY, AT_ONCE, Line, Triplets, lines_in, resolve
from dkge_dist.ask.explanations import explain
from dkge_dist.ask.results import Answer, Answers, Batch, Origin, Result
from dkge_dist.ask.scores import score_triples
from dkge_dist.ask.session import Deletion, Session
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.dictionary import Named
from dkge_dist.types import ROW, Array, Triples, UsageError, seconds_since

QUESTION_LINE = "`head<TAB>relation<TAB>?`, `?<TAB>relation<TAB>tail` or `head<TAB>?<TAB>tail`"
HOW_TO_ASK = "ask with HEAD and RELATION, with RELATION and --tail, with HEAD ? TAIL, or with --batch FILE"


@dataclass(frozen=True)
class AnswerOptions:
    """`top` predictions after the known facts; `new_only` leaves those out; `why` adds the evidence of each.

    Of the known facts the `known` best are listed, or all of them: a hub has more than anybody wants to read.
    """

    top: int = 10
    new_only: bool = False
    why: bool = False
    evidence: bool = True
    known: int | None = None

    def __post_init__(self) -> None:
        if self.top < 1:
            raise UsageError(f"--top {self.top}: at least one answer")

    @property
    def listed(self) -> slice:
        """Which known facts are listed, best first."""
        return slice(0 if self.new_only else self.known)


def questions_of(head: str | None, relation: str | None, tail: str | None, batch: Triplets | None) -> list[Line]:
    """The question that was given, or those of a batch."""
    given = [None if label == ANY else label for label in (head, relation, tail)]
    if batch is None:
        if given.count(None) != 1:
            scored = "; `dkge score` tells how plausible a triple is" if None not in given else ""
            raise UsageError(HOW_TO_ASK + scored)
        return [Line(1, given)]
    if given != [None] * 3:
        raise UsageError("--batch brings its own questions: no HEAD, RELATION or TAIL beside it")
    return lines_in(batch, "question")


def answer(session: Session, lines: Sequence[Line], options: AnswerOptions) -> Batch:
    """The best answers to each question: first what the graph says already, then predictions."""
    began = time.monotonic()
    opened = session.opened
    has_evidence = options.evidence and opened.model.model.evidence is not None
    if options.why and not has_evidence:
        raise UsageError("--why tells evidence: this model was learnt without, or --no-evidence was given")
    origin = Origin(opened.model.version, opened.snapshot_name, has_evidence, session.notice)
    asked = resolve(opened, lines, QUESTION_LINE, asked=1)
    results: dict[int, Result] = dict(asked.failures)
    asks_relation = asked.rows_N3[:, 1] < 0
    for_entities = asked.good[~asks_relation[asked.good]]
    for begin in range(0, for_entities.shape[0], AT_ONCE):
        numbers = for_entities[begin : begin + AT_ONCE]
        results |= _entities(session, numbers, asked.rows_N3[numbers], options, origin)
    for number in asked.good[asks_relation[asked.good]].tolist():
        results[number] = _relations(session, asked.rows_N3[number], options, origin)
    ordered = [results[number] for number in range(len(lines))]
    return Batch(ordered, "questions", origin, {"seconds": seconds_since(began)})


def _entities(
    session: Session, numbers: Array, rows_N3: Array, options: AnswerOptions, origin: Origin
) -> dict[int, Result]:
    """The answers to questions for a head or a tail."""
    head, relation, tail = rows_N3.T
    asked = Questions(np.where(tail < 0, head, tail).astype(ROW), relation, tail < 0)
    evidence = session.evidence(asked) if origin.evidence else None
    best = best_answers(session.embedding, asked, options.top, session.known(asked), evidence)
    entities, relations = session.opened.names
    results: dict[int, Result] = {}
    for at, number in enumerate(numbers.tolist()):
        facts, predictions = best[at]
        deleted = session.deletions(asked.triples(at, predictions.rows))
        answers = []
        listed = FoundAnswers(facts.rows[options.listed], facts.scores[options.listed])
        for found, is_known in ((listed, True), (predictions, False)):
            for place, (row, score) in enumerate(zip(found.rows.tolist(), found.scores.tolist(), strict=True)):
                why = _why(session, evidence, asked.take(np.array([at])), row) if options.why else None
                gone = None if is_known else deleted[place]
                answers.append(_answer(score, is_known, gone, why, entity=entities.named(row)))
        given = (entities.named(int(asked.entity[at])), relations.named(int(relation[at])))
        triple = (given[0], given[1], None) if asked.asks_tail[at] else (None, given[1], given[0])
        results[number] = Answers(answers, triple, origin, facts.rows.shape[0])
    return results


def _relations(session: Session, rows: Array, options: AnswerOptions, origin: Origin) -> Answers:
    """All relations between a head and a tail, by the scores of the triples that they make."""
    entities, relations = session.opened.names
    every = session.opened.snapshot.alive_relations
    triples = Triples(np.full(every.shape[0], rows[0], ROW), every, np.full(every.shape[0], rows[2], ROW))
    sides = Questions(rows[[0, 2]], every[[0, 0]], np.array([True, False]))
    evidence = session.evidence(sides) if origin.evidence else None
    scores = score_triples(session.embedding, triples, evidence)
    known = session.in_graph(triples)
    order = np.lexsort((every, -scores, ~known))
    facts, predictions = order[known[order]], order[~known[order]][: options.top]
    deleted = session.deletions(triples.take(predictions))
    answers = []
    listed = facts[options.listed]
    for place, at in enumerate([*listed, *predictions]):
        question = Questions.of(triples.take(np.array([at])), asks_tail=True)
        why = _why(session, evidence, question, int(rows[2])) if options.why else None
        gone = None if known[at] else deleted[place - listed.shape[0]]
        answers.append(_answer(float(scores[at]), bool(known[at]), gone, why, relation=relations.named(int(every[at]))))
    ends = (entities.named(int(rows[0])), None, entities.named(int(rows[2])))
    return Answers(answers, ends, origin, facts.shape[0])


def _why(session: Session, evidence: Evidence | None, question: Questions, candidate: int) -> list[dict[str, Any]]:
    assert evidence is not None, "asked for only where there is evidence"
    return explain(evidence, question, candidate, session.opened.names)


def _answer(
    score: float,
    known: bool,
    gone: Deletion | None,
    why: list[dict[str, Any]] | None,
    entity: Named | None = None,
    relation: Named | None = None,
) -> Answer:
    by = gone.snapshot if gone is not None else None
    meant = entity or relation
    assert meant is not None, "an entity or a relation"
    labels = (entity.label if entity else None, relation.label if relation else None)
    return Answer(labels[0], round(score, 6), known, labels[1], gone is not None, by, why, meant.name)
