"""How plausible given triples are: their scores, the ranks of their ends, and probabilities. In: triples. Out: scores.

The score of a triple is the mean of s on both sides.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dkge_dist.ask.batches import ANY, AT_ONCE, Line, Triplets, lines_in, resolve
from dkge_dist.ask.ranks import JointEmbedding, Ranks, find_evidence, rank_filtered
from dkge_dist.ask.results import Batch, Origin, Result, ScoredTriple
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence, combined_score
from dkge_dist.kernels.ranks import FilteredCandidates, distances_between
from dkge_dist.kernels.sets import distinct
from dkge_dist.types import OFFSET, ROW, Array, Report, Triples, UsageError, seconds_since

if TYPE_CHECKING:
    from dkge_dist.ask.calibration import Calibration
    from dkge_dist.ask.model import Model

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


def score(model: Model, lines: Sequence[Line], options: ScoreOptions) -> Batch:
    """Scores of triples, known or not. A triple is no evidence for itself."""
    began = time.monotonic()
    has_evidence = options.evidence and model.entry.evidence is not None
    origin = Origin(model.version, model.snapshot_name, has_evidence, model.notice)
    asked = resolve(model, lines, TRIPLE_LINE, asked=0)
    calibration = model.calibration(has_evidence)
    results: dict[int, Result] = dict(asked.failures)
    for begin in range(0, asked.good.shape[0], AT_ONCE):
        numbers = asked.good[begin : begin + AT_ONCE]
        triples = Triples(*np.ascontiguousarray(asked.rows_N3[numbers].T))
        found = _scored(model, triples, options.ranks, has_evidence, calibration)
        results |= dict(zip(numbers.tolist(), found, strict=True))
    more: Report = {
        "candidates": int(model.embedding.candidates.shape[0]),
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
    model: Model, triples: Triples, ranks: bool, has_evidence: bool, calibration: Calibration | None
) -> list[ScoredTriple]:
    evidence = model.evidence if has_evidence else None
    scores = score_triples(model.embedding, triples, evidence)
    ranked = _ranks(model, triples, evidence) if ranks else None
    known = model.in_graph(triples)
    deletions = model.deletions(triples, known)
    chance = calibration.probability(triples.relation, scores) if calibration is not None else None
    threshold = calibration.threshold(triples.relation) if calibration is not None else None
    entities, relations = model.names
    found = []
    for i in range(triples.count):
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
                *deletions[i],
                head.name,
                relation.name,
                tail.name,
            )
        )
    return found


def _ranks(model: Model, triples: Triples, evidence: Evidence | None) -> Ranks:
    """Among all entities but those that make another known triple."""
    filtered = []
    for asks_tail, true in ((True, triples.tail), (False, triples.head)):
        lists = [
            distinct(some, true[i : i + 1])
            for i, some in enumerate(model.known.answers(Questions.of(triples, asks_tail)))
        ]
        filtered.append(_as_lists(lists))
    found = find_evidence(evidence, triples) if evidence is not None else None
    return rank_filtered(model.embedding, triples, (filtered[0], filtered[1]), found)


def _as_lists(lists: list[Array]) -> FilteredCandidates:
    indptr = np.zeros(len(lists) + 1, OFFSET)
    np.cumsum([some.shape[0] for some in lists], out=indptr[1:])
    return FilteredCandidates(indptr, np.concatenate([np.empty(0, ROW), *lists]).astype(ROW))


def score_triples(embedding: JointEmbedding, triples: Triples, evidence: Evidence | None = None) -> Array:
    """s of triples, known or not; higher is better. A triple is no evidence for itself."""
    head, tail = embedding.vectors(triples.head), embedding.vectors(triples.tail)
    relation = embedding.relations[triples.relation]
    sides = []
    for asks_tail, query, true in ((True, head + relation, tail), (False, tail - relation, head)):
        distance = distances_between(query, true)
        if evidence is None:
            sides.append(-distance)
        else:
            answers = triples.tail if asks_tail else triples.head
            found = evidence.of(Questions.of(triples, asks_tail), answers)
            sides.append(combined_score(distance, found, evidence.weights.near))
    mean: Array = (sides[0] + sides[1]) / np.float32(2)
    return mean
