"""Link prediction: the rank of the true entity on both sides of given triples, by s = −f + E or by −f alone.

Protocol `paper` removes from the candidates what makes a *train* triple, `filtered` what makes any triple. Ties get the
mean of the best and the worst rank.

Few candidates have evidence. They are compared with the true one score by score; all others are counted against the
distance that would give them its score. Everything is computed in float32 and compared as it is, so that ranks are
those of scoring every candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence, ScoredCandidates, combined_score
from dkge_dist.evidence.weights import NOWHERE
from dkge_dist.kernels.csr import Adjacency, incoming, outgoing
from dkge_dist.kernels.ranks import (
    FilteredCandidates,
    answer_counts,
    distances_between,
    in_lists,
    known_answers,
    merge_filtered,
    positions_in,
)
from dkge_dist.kernels.sets import among
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.index import VectorIndex
from dkge_dist.types import OFFSET, ROW, Array, Split, Triples

Protocol = Literal["paper", "filtered"]
TRIPLES_AT_ONCE = 2048
"""Ranked between two reports of progress."""
KNOWN_AT_ONCE = 1 << 22
"""Known answers that are listed at a time. A hub has as many as it has triples, and each of these asks for it again."""
PROTOCOLS: tuple[Protocol, ...] = ("paper", "filtered")


@dataclass(frozen=True)
class JointEmbedding:
    """o* of entities (an index, wherever its rows are) and of all relations; `candidates` are ascending entity rows."""

    entities: VectorIndex
    relations: Array
    candidates: Array

    def vectors(self, rows: Array) -> Array:
        """o* of some entities, in their order."""
        distinct, number = np.unique(rows, return_inverse=True)
        return self.entities.vectors(distinct.astype(ROW))[number]

    def among(self, candidates: Array) -> JointEmbedding:
        """The same with other candidates (ascending rows)."""
        return JointEmbedding(self.entities, self.relations, candidates)

    def queries(self, questions: Questions) -> Array:
        """h* + r* of questions for a tail, t* − r* of those for a head: where a right answer would be."""
        sign = np.where(questions.asks_tail, np.float32(1), np.float32(-1))
        query: Array = self.vectors(questions.entity) + sign[:, None] * self.relations[questions.relation]
        return query

    def distances(self, questions: Questions, indptr: Array, rows: Array) -> Array:
        """f of the candidates `rows[indptr[i]:indptr[i + 1]]` of question i."""
        return self.entities.distances(self.queries(questions), indptr, rows)


@dataclass(frozen=True)
class Ranks:
    """The rank of the true tail and of the true head of every triple."""

    tail: Array
    head: Array

    @property
    def both(self) -> Array:
        """All ranks."""
        return np.concatenate([self.tail, self.head])

    @staticmethod
    def concat(parts: list[Ranks]) -> Ranks:
        """The ranks of several lists of triples, one after the other."""
        return Ranks(np.concatenate([part.tail for part in parts]), np.concatenate([part.head for part in parts]))

    def take(self, where: Array) -> Ranks:
        """The ranks of some triples."""
        return Ranks(self.tail[where], self.head[where])


def known_triples(splits: tuple[Triples, Triples, Triples], protocol: Protocol) -> Triples:
    """The triples that a protocol filters by."""
    return splits[Split.TRAIN] if protocol == "paper" else canonical(Triples.concat(list(splits)))


class SideEvidence(NamedTuple):
    """Of the questions for one side: the candidates with evidence, and E of the true answers.

    `near` is the distance below which evidence counts less.
    """

    candidates: ScoredCandidates
    truth: Array
    near: float


def find_evidence(evidence: Evidence, triples: Triples) -> tuple[SideEvidence, SideEvidence]:
    """The evidence for the tails and for the heads of some triples."""
    sides = []
    for asks_tail, true in ((True, triples.tail), (False, triples.head)):
        questions = Questions.of(triples, asks_tail)
        near = evidence.weights.near
        sides.append(SideEvidence(evidence.candidates(questions), evidence.of(questions, true), near))
    return sides[0], sides[1]


def rank(embedding: JointEmbedding, triples: Triples, known: Triples, evidence: Evidence | None = None) -> Ranks:
    """Rank both sides of `triples`; answers that make a triple of canonical `known` are no candidates."""
    rows = embedding.entities.rows
    return rank_among(embedding, triples, outgoing(known, rows), incoming(known, rows), evidence)


def rank_among(
    embedding: JointEmbedding,
    triples: Triples,
    known_tails: Adjacency,
    known_heads: Adjacency,
    evidence: Evidence | None = None,
) -> Ranks:
    """The same by neighbour lists of what is known, however many triples and known answers there are."""
    parts = [Ranks(np.empty(0), np.empty(0))]
    for batch in batches_of(triples, known_tails, known_heads):
        some = triples.take(batch)
        filtered = filter_known(some, known_tails, known_heads)
        found = find_evidence(evidence, some) if evidence is not None else None
        parts.append(rank_filtered(embedding, some, filtered, found))
    return Ranks.concat(parts)


def batches_of(triples: Triples, known_tails: Adjacency, known_heads: Adjacency) -> Iterator[slice]:
    """Runs of triples whose known answers, all together, fit into memory."""
    head, relation, tail = triples
    tails, heads = answer_counts(known_tails, head, relation, tail), answer_counts(known_heads, tail, relation, head)
    return runs_of(tails + heads, TRIPLES_AT_ONCE)


def runs_of(known: Array, most: int) -> Iterator[slice]:
    """Runs of at most so many, of each of which `known` answers are listed."""
    before = np.concatenate([np.zeros(1, OFFSET), np.cumsum(known)])
    begin, count = 0, known.shape[0]
    while begin < count:
        fits = int(np.searchsorted(before, before[begin] + KNOWN_AT_ONCE, "right")) - 1
        end = min(max(fits, begin + 1), begin + most, count)
        yield slice(begin, end)
        begin = end


def rank_by_protocol(
    embedding: JointEmbedding,
    triples: Triples,
    splits: tuple[Triples, Triples, Triples],
    evidence: Evidence | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[Protocol, Ranks]:
    """Ranks under both protocols. `progress` is called with the share of the triples that is ranked."""
    rows, known = embedding.entities.rows, {}
    for protocol in PROTOCOLS:
        triples_known = known_triples(splits, protocol)
        known[protocol] = (outgoing(triples_known, rows), incoming(triples_known, rows))
    parts = []
    for batch in batches_of(triples, *known["filtered"]) if triples.count else [slice(0, 0)]:
        some = triples.take(batch)
        filtered = {protocol: filter_known(some, *lists) for protocol, lists in known.items()}
        parts.append(_rank_filtered_twice(embedding, some, filtered, evidence))
        if progress is not None:
            progress(batch.stop / max(triples.count, 1))
    return {protocol: Ranks.concat([part[protocol] for part in parts]) for protocol in PROTOCOLS}


def _rank_filtered_twice(
    embedding: JointEmbedding,
    triples: Triples,
    by_protocol: dict[Protocol, tuple[FilteredCandidates, FilteredCandidates]],
    evidence: Evidence | None,
) -> dict[Protocol, Ranks]:
    """Under both protocols by one pass over the candidates: what else is known is few, and subtracted."""
    found = find_evidence(evidence, triples) if evidence is not None else None
    ranks: dict[Protocol, list[Array]] = {protocol: [] for protocol in PROTOCOLS}
    for number, side in enumerate(_sides(embedding, triples, found)):
        by_train, by_all = by_protocol["paper"][number], by_protocol["filtered"][number]
        above, equal = side.compete(embedding, by_train)
        ranks["paper"].append(1 + above + equal / 2)
        more = ScoredCandidates(*by_all, np.zeros(by_all.rows.shape[0], np.float32))
        more = more.take(np.flatnonzero(among(embedding.candidates, more.rows) & ~in_lists(by_train, *by_all)))
        above_known, equal_known = side.compare(embedding, side.scored(more))
        ranks["filtered"].append(1 + above - above_known + (equal - equal_known) / 2)
    return {protocol: Ranks(*sides) for protocol, sides in ranks.items()}


def filter_known(
    triples: Triples, known_tails: Adjacency, known_heads: Adjacency
) -> tuple[FilteredCandidates, FilteredCandidates]:
    """Which candidates are removed on either side: known answers, and the true one itself."""
    return (
        known_answers(known_tails, triples.head, triples.relation, triples.tail),
        known_answers(known_heads, triples.tail, triples.relation, triples.head),
    )


def rank_filtered(
    embedding: JointEmbedding,
    triples: Triples,
    filtered: tuple[FilteredCandidates, FilteredCandidates],
    evidence: tuple[SideEvidence, SideEvidence] | None = None,
) -> Ranks:
    """Rank both sides of `triples`, with the candidates removed that `filter_known` tells."""
    ranks = []
    for side, removed in zip(_sides(embedding, triples, evidence), filtered, strict=True):
        above, equal = side.compete(embedding, removed)
        ranks.append(1 + above + equal / 2)
    return Ranks(*ranks)


def _sides(
    embedding: JointEmbedding, triples: Triples, evidence: tuple[SideEvidence, SideEvidence] | None
) -> Iterator[_Side]:
    """The questions for tails, then those for heads."""
    head, tail = embedding.vectors(triples.head), embedding.vectors(triples.tail)
    relation = embedding.relations[triples.relation]
    for number, (query, true) in enumerate(((head + relation, tail), (tail - relation, head))):
        distance = distances_between(query, true)
        if evidence is None:
            yield _Side(query, -distance, ScoredCandidates.none(triples.count), NOWHERE)
        else:
            candidates, truth, near = evidence[number]
            yield _Side(query, combined_score(distance, truth, near), candidates, near)


@dataclass(frozen=True)
class _Side:
    """The questions for one side: where right answers would be, the scores of the true ones, who has evidence."""

    query_QD: Array
    score_Q: Array
    evidence: ScoredCandidates
    near: float

    def compete(self, embedding: JointEmbedding, removed: FilteredCandidates) -> tuple[Array, Array]:
        """How many candidates score higher than the true answer of each question, and how many as high."""
        found = self.evidence
        if not found.rows.shape[0]:
            return embedding.entities.count_closer(self.query_QD, -self.score_Q, embedding.candidates, removed)
        ranked = among(embedding.candidates, found.rows) & ~in_lists(removed, found.indptr, found.rows)
        above, equal = self.compare(embedding, found.take(np.flatnonzero(ranked)))
        others = merge_filtered(removed, found.indptr, found.rows)
        closer, as_close = embedding.entities.count_closer(self.query_QD, -self.score_Q, embedding.candidates, others)
        return above + closer, equal + as_close

    def compare(self, embedding: JointEmbedding, rivals: ScoredCandidates) -> tuple[Array, Array]:
        """The same for given candidates, one by one."""
        distance = embedding.entities.distances(self.query_QD, rivals.indptr, rivals.rows)
        own = combined_score(distance, rivals.scores, self.near)
        question, count = rivals.question, self.score_Q.shape[0]
        true = self.score_Q[question]
        return (
            np.bincount(question[own > true], minlength=count),
            np.bincount(question[own == true], minlength=count),
        )

    def scored(self, rows: ScoredCandidates) -> ScoredCandidates:
        """Given candidates with the evidence that they have."""
        at = positions_in(self.evidence.indptr, self.evidence.rows, rows.indptr, rows.rows)
        scores = np.zeros(rows.rows.shape[0], np.float32)
        scores[at >= 0] = self.evidence.scores[at[at >= 0]]
        return rows._replace(scores=scores)


def metrics(ranks: Array) -> dict[str, float]:
    """MR, MRR and Hits@1, 3, 10 of some ranks."""
    if not ranks.shape[0]:
        return {}
    hits = {f"hits@{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    return {"mr": float(ranks.mean()), "mrr": float((1 / ranks).mean()), **hits}
