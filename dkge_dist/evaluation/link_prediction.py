"""Link prediction: the rank of the true entity on both sides of given triples.

Protocol `paper` removes from the candidates what makes a *train* triple, `filtered` what makes any triple. Ties get the
mean of the best and the worst rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.kernels.csr import Adjacency, incoming, outgoing
from dkge_dist.kernels.ranks import FilteredCandidates, distances_between, known_answers
from dkge_dist.kernels.triples import canonical
from dkge_dist.tables.table import Table
from dkge_dist.types import ROW, Array, Field, Split, Triples

Protocol = Literal["paper", "filtered"]


@dataclass(frozen=True)
class JointEmbedding:
    """o* of entities (a table, wherever its rows are) and of all relations; `candidates` are ascending entity rows."""

    entities: Table
    relations: Array
    candidates: Array

    def vectors(self, rows: Array) -> Array:
        """o* of some entities, in their order."""
        distinct, number = np.unique(rows, return_inverse=True)
        return self.entities.pull({Field.JOINT: distinct.astype(ROW)})[Field.JOINT][number]


@dataclass(frozen=True)
class Ranks:
    """The rank of the true tail and of the true head of every triple."""

    tail: Array
    head: Array

    @property
    def both(self) -> Array:
        """All ranks."""
        return np.concatenate([self.tail, self.head])

    def take(self, where: Array) -> Ranks:
        """The ranks of some triples."""
        return Ranks(self.tail[where], self.head[where])


def known_triples(splits: tuple[Triples, Triples, Triples], protocol: Protocol) -> Triples:
    """The triples that a protocol filters by."""
    return splits[Split.TRAIN] if protocol == "paper" else canonical(Triples.concat(list(splits)))


def rank(embedding: JointEmbedding, triples: Triples, known: Triples) -> Ranks:
    """Rank both sides of `triples`; answers that make a triple of canonical `known` are no candidates."""
    rows = embedding.entities.rows
    return rank_filtered(embedding, triples, filter_known(triples, outgoing(known, rows), incoming(known, rows)))


def filter_known(
    triples: Triples, known_tails: Adjacency, known_heads: Adjacency
) -> tuple[FilteredCandidates, FilteredCandidates]:
    """Which candidates are removed on either side: known answers, and the true one itself."""
    return (
        known_answers(known_tails, triples.head, triples.relation, triples.tail),
        known_answers(known_heads, triples.tail, triples.relation, triples.head),
    )


def rank_filtered(
    embedding: JointEmbedding, triples: Triples, filtered: tuple[FilteredCandidates, FilteredCandidates]
) -> Ranks:
    """Rank both sides of `triples`, with the candidates removed that `filter_known` tells."""
    head, tail = embedding.vectors(triples.head), embedding.vectors(triples.tail)
    relation = embedding.relations[triples.relation]
    sides = []
    for query, true, removed in ((head + relation, tail, filtered[0]), (tail - relation, head, filtered[1])):
        bound = distances_between(query, true)
        closer, equal = embedding.entities.count_closer(query, bound, embedding.candidates, removed)
        sides.append(1 + closer + equal / 2)
    return Ranks(*sides)


def metrics(ranks: Array) -> dict[str, float]:
    """MR, MRR and Hits@1, 3, 10 of some ranks."""
    if not ranks.shape[0]:
        return {}
    hits = {f"hits@{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    return {"mr": float(ranks.mean()), "mrr": float((1 / ranks).mean()), **hits}
