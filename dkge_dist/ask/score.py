"""How plausible given triples are: their scores, the ranks of their ends, and probabilities."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dkge_dist.ask.batches import ANY, AT_ONCE, Line, Triplets, lines_in, resolve
from dkge_dist.ask.calibration import Calibration
from dkge_dist.ask.ranks import Ranks, find_evidence, rank_filtered
from dkge_dist.ask.results import Batch, Origin, Result, ScoredTriple
from dkge_dist.ask.scores import score_triples
from dkge_dist.ask.session import Session
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.kernels.sets import distinct
from dkge_dist.types import OFFSET, ROW, Array, Report, Triples, UsageError, seconds_since

TRIPLE_LINE = "`head<TAB>relation<TAB>tail`"


@dataclass(frozen=True)
class ScoreOptions:
    """`ranks`: among all alternatives on each side, which costs a pass over all entities."""

    evidence: bool = True
    ranks: bool = True


def triples_of(head: str | None, relation: str | None, tail: str | None, batch: Triplets | None) -> list[Line]:
    """The triple that was given, or those of a batch."""
    if batch is None:
        if head is None or relation is None or tail is None:
            raise UsageError("name HEAD, RELATION and TAIL, or --batch FILE")
        if ANY in (head, relation, tail):
            raise UsageError(f"a whole triple is scored: `dkge answer` asks for what is `{ANY}`")
        return [Line(1, (head, relation, tail))]
    if (head, relation, tail) != (None, None, None):
        raise UsageError("--batch brings its own triples: no HEAD, RELATION or TAIL beside it")
    return lines_in(batch, "triple")


def score(session: Session, lines: Sequence[Line], options: ScoreOptions) -> Batch:
    """Scores of triples, known or not. A triple is no evidence for itself."""
    began = time.monotonic()
    opened = session.opened
    has_evidence = options.evidence and opened.model.model.evidence is not None
    origin = Origin(opened.model.version, opened.snapshot_name, has_evidence, session.notice)
    asked = resolve(opened, lines, TRIPLE_LINE, asked=0)
    calibration = session.calibration(has_evidence)
    results: dict[int, Result] = dict(asked.failures)
    for begin in range(0, asked.good.shape[0], AT_ONCE):
        numbers = asked.good[begin : begin + AT_ONCE]
        triples = Triples(*np.ascontiguousarray(asked.rows_N3[numbers].T))
        found = _scored(session, triples, options.ranks, has_evidence, calibration)
        results |= dict(zip(numbers.tolist(), found, strict=True))
    more: Report = {
        "candidates": int(session.embedding.candidates.shape[0]),
        "calibration": _told(calibration),
        "seconds": seconds_since(began),
    }
    return Batch([results[number] for number in range(len(lines))], "triples", origin, more)


def _told(calibration: Calibration | None) -> Report | None:
    """What probabilities were fitted on."""
    if calibration is None:
        return None
    return {"fitted_on": "valid", "triples": calibration.triples, "corrupted": calibration.corrupted}


def _scored(
    session: Session, triples: Triples, ranks: bool, has_evidence: bool, calibration: Calibration | None
) -> list[ScoredTriple]:
    questions, _ = Questions.both_sides(triples)
    evidence = session.evidence(questions) if has_evidence else None
    scores = score_triples(session.embedding, triples, evidence)
    ranked = _ranks(session, triples, evidence) if ranks else None
    known = session.in_graph(triples)
    new = np.flatnonzero(~known)
    deleted = dict(zip(new.tolist(), session.deletions(triples.take(new)), strict=True))
    chance = calibration.probability(triples.relation, scores) if calibration is not None else None
    threshold = calibration.threshold(triples.relation) if calibration is not None else None
    entities, relations = session.opened.names
    found = []
    for i in range(triples.count):
        gone = deleted.get(i)
        head, tail = (entities.named(int(column[i])) for column in (triples.head, triples.tail))
        relation = relations.named(int(triples.relation[i]))
        found.append(
            ScoredTriple(
                head.label,
                relation.label,
                tail.label,
                round(float(scores[i]), 6),
                bool(known[i]),
                None if chance is None else round(float(chance[i]), 6),
                None if threshold is None else round(float(threshold[i]), 6),
                None if ranked is None else float(ranked.tail[i]),
                None if ranked is None else float(ranked.head[i]),
                gone is not None,
                gone.snapshot if gone is not None else None,
                head.name,
                relation.name,
                tail.name,
            )
        )
    return found


def _ranks(session: Session, triples: Triples, evidence: Evidence | None) -> Ranks:
    """Among all entities but those that make another known triple."""
    filtered = []
    for asks_tail, true in ((True, triples.tail), (False, triples.head)):
        lists = [
            distinct(some, true[i : i + 1]) for i, some in enumerate(session.known(Questions.of(triples, asks_tail)))
        ]
        filtered.append(_as_lists(lists))
    found = find_evidence(evidence, triples) if evidence is not None else None
    return rank_filtered(session.embedding, triples, (filtered[0], filtered[1]), found)


def _as_lists(lists: list[Array]) -> FilteredCandidates:
    indptr = np.zeros(len(lists) + 1, OFFSET)
    np.cumsum([some.shape[0] for some in lists], out=indptr[1:])
    return FilteredCandidates(indptr, np.concatenate([np.empty(0, ROW), *lists]).astype(ROW))
