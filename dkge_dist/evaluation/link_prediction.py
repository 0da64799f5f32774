"""Link prediction: the rank of the true entity on both sides of held-out triples.

Protocol `paper` takes out of the competition what makes a *train* triple, `filtered` what makes any triple. Ties get
the mean of the best and the worst rank.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.kernels.csr import Adjacency, incoming, outgoing
from dkge_dist.kernels.ranks import FilteredCandidates, count_closer, distances_between, known_answers
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Array, Split, Triples

Protocol = Literal["paper", "filtered"]


class JointVectors(typing.Protocol):
    """o* of all entity and relation rows, wherever those of the entities are, and who may be an answer."""

    @property
    def rows(self) -> int:
        """How many entity rows there are."""

    @property
    def relations(self) -> Array:
        """o* of all relations."""

    def vectors(self, rows: Array) -> Array:
        """o* of some entities, in their order."""

    def count_closer(self, query_QD: Array, bound_Q: Array, filtered: FilteredCandidates) -> tuple[Array, Array]:
        """How many that may be an answer are closer to each query than its bound, and how many just as close."""


@dataclass(frozen=True)
class Joint:
    """All of it in this process; `candidates` (ascending rows) may be an answer."""

    entities: Array
    relations: Array
    candidates: Array

    @property
    def rows(self) -> int:
        """How many entity rows there are."""
        return int(self.entities.shape[0])

    def vectors(self, rows: Array) -> Array:
        """o* of some entities, in their order."""
        return self.entities[rows]

    def count_closer(self, query_QD: Array, bound_Q: Array, filtered: FilteredCandidates) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""
        return count_closer(query_QD, bound_Q, self.entities, self.candidates, filtered)


@dataclass(frozen=True)
class Ranks:
    """The rank of the true tail and of the true head of every triple."""

    tail: Array
    head: Array

    @property
    def both(self) -> Array:
        """All ranks."""
        return np.concatenate([self.tail, self.head])


def known_triples(splits: tuple[Triples, Triples, Triples], protocol: Protocol) -> Triples:
    """What a protocol takes out of the competition."""
    return splits[Split.TRAIN] if protocol == "paper" else canonical(Triples.concat(list(splits)))


def rank(joint: JointVectors, triples: Triples, known: Triples) -> Ranks:
    """Rank both sides of `triples`; answers that stand in canonical `known` do not compete."""
    return rank_without(joint, triples, filter_known(triples, outgoing(known, joint.rows), incoming(known, joint.rows)))


def filter_known(
    triples: Triples, known_tails: Adjacency, known_heads: Adjacency
) -> tuple[FilteredCandidates, FilteredCandidates]:
    """Who does not compete with the true tails and the true heads: known answers, and these themselves."""
    return (
        known_answers(known_tails, triples.head, triples.relation, triples.tail),
        known_answers(known_heads, triples.tail, triples.relation, triples.head),
    )


def rank_without(
    joint: JointVectors, triples: Triples, filtered: tuple[FilteredCandidates, FilteredCandidates]
) -> Ranks:
    """Rank both sides of `triples`, with those left out that `left_out` tells."""
    head, tail = joint.vectors(triples.head), joint.vectors(triples.tail)
    relation = joint.relations[triples.relation]
    sides = []
    for query, true, skip in ((head + relation, tail, filtered[0]), (tail - relation, head, filtered[1])):
        closer, equal = joint.count_closer(query, distances_between(query, true), skip)
        sides.append(1 + closer + equal / 2)
    return Ranks(*sides)


def metrics(ranks: Array) -> dict[str, float]:
    """MR, MRR and Hits@1, 3, 10 of some ranks."""
    if not ranks.shape[0]:
        return {}
    hits = {f"hits@{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    return {"mr": float(ranks.mean()), "mrr": float((1 / ranks).mean()), **hits}
