"""Questions to a model: (head, relation, ?), (?, relation, tail) and (head, ?, tail), one or many of them.

Answers are the candidates of the best scores, s = −f + E or −f alone: first what the graph says already, then
predictions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dkge_dist.ask.batches import ANY, AT_ONCE, Line, Triplets, lines_in, resolve
from dkge_dist.ask.explanations import explain
from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.ask.results import Answer, Answers, Batch, Origin, Result
from dkge_dist.ask.scores import score_triples
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence, ScoredCandidates, combined_score
from dkge_dist.evidence.weights import NOWHERE
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import Adjacency, list_of
from dkge_dist.kernels.sets import among, distinct
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import OFFSET, ROW, Array, Split, Triples, UsageError, seconds_since

if TYPE_CHECKING:
    from dkge_dist.ask.model import Model

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


def answer(model: Model, lines: Sequence[Line], options: AnswerOptions) -> Batch:
    """The best answers to each question: first what the graph says already, then predictions."""
    began = time.monotonic()
    has_evidence = options.evidence and model.entry.evidence is not None
    if options.why and not has_evidence:
        raise UsageError("--why tells evidence: this model was learnt without, or --no-evidence was given")
    origin = Origin(model.version, model.snapshot_name, has_evidence, model.notice)
    asked = resolve(model, lines, QUESTION_LINE, asked=1)
    results: dict[int, Result] = dict(asked.failures)
    asks_relation = asked.rows_N3[:, 1] < 0
    for_entities = asked.good[~asks_relation[asked.good]]
    for begin in range(0, for_entities.shape[0], AT_ONCE):
        numbers = for_entities[begin : begin + AT_ONCE]
        results |= _entities(model, numbers, asked.rows_N3[numbers], options, origin)
    for number in asked.good[asks_relation[asked.good]].tolist():
        results[number] = _relations(model, asked.rows_N3[number], options, origin)
    ordered = [results[number] for number in range(len(lines))]
    return Batch(ordered, "questions", origin, {"seconds": seconds_since(began)})


def _entities(
    model: Model, numbers: Array, rows_N3: Array, options: AnswerOptions, origin: Origin
) -> dict[int, Result]:
    """The answers to questions for a head or a tail."""
    head, relation, tail = rows_N3.T
    asked = Questions(np.where(tail < 0, head, tail).astype(ROW), relation, tail < 0)
    evidence = model.evidence if origin.evidence else None
    best = best_answers(model.embedding, asked, options.top, model.known.answers(asked), evidence)
    entities, relations = model.names
    results: dict[int, Result] = {}
    for at, number in enumerate(numbers.tolist()):
        facts, predictions = best[at]
        rows = np.concatenate([facts.rows[options.listed], predictions.rows])
        scores = np.concatenate([facts.scores[options.listed], predictions.scores])
        known = np.arange(rows.shape[0]) < rows.shape[0] - predictions.rows.shape[0]
        deletions, question = model.deletions(asked.triples(at, rows), known), asked.take(np.array([at]))
        answers = []
        for row, score, is_known, gone in zip(rows.tolist(), scores.tolist(), known.tolist(), deletions, strict=True):
            label, name = entities.named(row)
            why = explain(evidence, question, row, model.names) if options.why and evidence is not None else None
            told = {"known": is_known, **gone._asdict(), "why": why}
            answers.append(Answer(entity=label, name=name, score=round(score, 6), **told))
        given = (entities.named(int(asked.entity[at])), relations.named(int(relation[at])))
        triple = (given[0], given[1], None) if asked.asks_tail[at] else (None, given[1], given[0])
        results[number] = Answers(answers, triple, origin, facts.rows.shape[0])
    return results


def _relations(model: Model, rows: Array, options: AnswerOptions, origin: Origin) -> Answers:
    """All relations between a head and a tail, by the scores of the triples that they make."""
    entities, relations = model.names
    every = model.snapshot.alive_relations
    triples = Triples(np.full(every.shape[0], rows[0], ROW), every, np.full(every.shape[0], rows[2], ROW))
    evidence = model.evidence if origin.evidence else None
    scores = score_triples(model.embedding, triples, evidence)
    known = model.in_graph(triples)
    order = np.lexsort((every, -scores, ~known))
    facts, predictions = order[known[order]], order[~known[order]][: options.top]
    listed = np.concatenate([facts[options.listed], predictions])
    answers = []
    for at, gone in zip(listed.tolist(), model.deletions(triples.take(listed), known[listed]), strict=True):
        label, name = relations.named(int(every[at]))
        question = Questions.of(triples.take(np.array([at])), asks_tail=True)
        why = explain(evidence, question, int(rows[2]), model.names) if options.why and evidence is not None else None
        told = {"known": bool(known[at]), **gone._asdict(), "why": why}
        answers.append(Answer(relation=label, name=name, score=round(float(scores[at]), 6), **told))
    ends = (entities.named(int(rows[0])), None, entities.named(int(rows[2])))
    return Answers(answers, ends, origin, facts.shape[0])


class BestRows(NamedTuple):
    """To one question: rows, best first, and their scores; higher is better. Among equals the smaller row is first."""

    rows: Array
    scores: Array


def best_answers(
    embedding: JointEmbedding, questions: Questions, top: int, known: list[Array], evidence: Evidence | None = None
) -> list[tuple[BestRows, BestRows]]:
    """To each question: its `known` answers in the order of their scores, and the `top` best other candidates."""
    query = embedding.queries(questions)
    known_answers = _scored(embedding, questions, query, known, evidence)
    found = evidence.candidates(questions) if evidence is not None else ScoredCandidates.none(questions.count)
    near_by_heart = evidence.weights.near if evidence is not None else NOWHERE
    own = combined_score(embedding.entities.distances(query, found.indptr, found.rows), found.scores, near_by_heart)
    lists = [found.rows[found.indptr[i] : found.indptr[i + 1]] for i in range(questions.count)]
    # So many that enough are left when known ones and those with evidence are taken out.
    more = max((known[i].shape[0] + lists[i].shape[0] for i in range(questions.count)), default=0)
    near = embedding.entities.nearest(query, embedding.candidates, min(top + more, embedding.candidates.shape[0]))
    answers = []
    for i in range(questions.count):
        far = ~np.isin(near.rows[i], lists[i])
        rows = np.concatenate([lists[i], near.rows[i][far]])
        scores = np.concatenate([own[found.indptr[i] : found.indptr[i + 1]], -near.distances[i][far]])
        new = among(embedding.candidates, rows) & ~np.isin(rows, known[i])
        answers.append((known_answers[i], _best(rows[new], scores[new], top)))
    return answers


def _scored(
    embedding: JointEmbedding, questions: Questions, query: Array, rows: list[Array], evidence: Evidence | None
) -> list[BestRows]:
    """Given candidates of each question, best first. Their own triples do not count as evidence for them."""
    indptr = np.zeros(questions.count + 1, OFFSET)
    np.cumsum([some.shape[0] for some in rows], out=indptr[1:])
    every = np.concatenate([np.empty(0, ROW), *rows]).astype(ROW)
    distances = embedding.entities.distances(query, indptr, every)
    scores = -distances
    if evidence is not None:
        repeated = questions.take(np.repeat(np.arange(questions.count), np.diff(indptr)))
        scores = combined_score(distances, evidence.of(repeated, every), evidence.weights.near)
    parts = [slice(indptr[i], indptr[i + 1]) for i in range(questions.count)]
    return [_best(every[part], scores[part], every.shape[0]) for part in parts]


def _best(rows: Array, scores: Array, top: int) -> BestRows:
    order = np.lexsort((rows, -scores))[:top]
    return BestRows(rows[order], scores[order])


class KnownLists(NamedTuple):
    """All known triples as neighbour lists, for many questions: those of train, and the few that are held out."""

    train: Topology
    held_out: tuple[Adjacency, Adjacency]

    @staticmethod
    def of(train: Topology, snapshot: Snapshot) -> KnownLists:
        """`train` is the topology of the snapshot."""
        rest = canonical(Triples.concat([snapshot.triples(split) for split in (Split.VALID, Split.TEST)]))
        few = Topology.of_few(rest)
        return KnownLists(train, (few.outgoing, few.incoming))

    def answers(self, questions: Questions) -> list[Array]:
        """The answers to each question that stand in the graph already, in whatever split; ascending rows."""
        found = []
        for entity, relation, asks_tail in zip(*(column.tolist() for column in questions), strict=True):
            train = self.train.outgoing if asks_tail else self.train.incoming
            lists = (train, self.held_out[0 if asks_tail else 1])
            codes = np.concatenate([list_of(some, entity) for some in lists])
            found.append(distinct((codes[(codes & 0xFFFFFFFF) == relation] >> 32).astype(ROW)))
        return found

    def facts(self, entity: int) -> Triples:
        """The triples of an entity: those that it begins, then those that it only ends; each side canonical."""
        sides: list[Triples] = []
        for train, held_out in zip((self.train.outgoing, self.train.incoming), self.held_out, strict=True):
            codes = np.concatenate([list_of(train, entity), list_of(held_out, entity)])
            other, relation = (codes >> 32).astype(ROW), (codes & 0xFFFFFFFF).astype(ROW)
            own = np.full(codes.shape[0], entity, ROW)
            if not sides:
                sides.append(canonical(Triples(own, relation, other)))
            else:
                is_new = other != entity
                sides.append(canonical(Triples(other[is_new], relation[is_new], own[is_new])))
        return Triples.concat(sides)
