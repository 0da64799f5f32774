"""Answers: the candidates of the best scores, s = −f + E or −f alone. In: questions by rows. Out: rows with scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence, ScoredCandidates, combined_score
from dkge_dist.evidence.weights import NOWHERE
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.csr import Adjacency, list_of
from dkge_dist.kernels.sets import among, distinct
from dkge_dist.kernels.triples import canonical, pack
from dkge_dist.types import OFFSET, ROW, Array, Split, Triples


class Answers(NamedTuple):
    """To one question: rows, best first, and their scores; higher is better. Among equals the smaller row is first."""

    rows: Array
    scores: Array


def answer(
    embedding: JointEmbedding, questions: Questions, top: int, known: list[Array], evidence: Evidence | None = None
) -> list[tuple[Answers, Answers]]:
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
) -> list[Answers]:
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


def _best(rows: Array, scores: Array, top: int) -> Answers:
    order = np.lexsort((rows, -scores))[:top]
    return Answers(rows[order], scores[order])


def known_answers(snapshot: Snapshot, questions: Questions) -> list[Array]:
    """The answers to each question that stand in the graph already, in whatever split; ascending rows.

    For heads that takes a pass over the triples, however many questions there are.
    """
    known: list[Array] = [np.empty(0, ROW)] * questions.count
    for asks_tail in (True, False):
        numbers = np.flatnonzero(questions.asks_tail == asks_tail)
        entity, relation, _ = questions.take(numbers)
        if not numbers.shape[0]:
            continue
        find, asked = (snapshot.beginning if asks_tail else snapshot.touching), distinct(entity)
        triples = Triples.concat([find(split, asked) for split in Split])
        given, other = (triples.head, triples.tail) if asks_tail else (triples.tail, triples.head)
        every = pack(given, triples.relation)
        order = np.argsort(every, kind="stable")
        every, rows = every[order], other[order]
        wanted = pack(entity, relation)
        first, last = np.searchsorted(every, wanted), np.searchsorted(every, wanted, side="right")
        for number, begin, end in zip(numbers.tolist(), first, last, strict=True):
            known[number] = distinct(rows[begin:end])
    return known


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
        """As `known_answers`, at a cost that follows the lists of the questions' entities."""
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
