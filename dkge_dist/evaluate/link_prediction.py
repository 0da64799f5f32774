"""Link prediction: the rank of the true entity on both sides of held-out triples.

Protocol `paper` takes out of the competition what makes a *train* triple, `filtered` what makes any triple. Ties get
the mean of the best and the worst rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dkge_dist.kernels.csr import Adjacency, incoming, outgoing
from dkge_dist.kernels.ranks import Skips, count_closer, distances_to, known_answers
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Array, Split, Triples

Protocol = Literal["paper", "filtered"]


@dataclass(frozen=True)
class Joint:
    """Materialised o* of all entity and relation rows, and who may be an answer (ascending rows)."""

    entities: Array
    relations: Array
    candidates: Array


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


def rank(joint: Joint, triples: Triples, known: Triples) -> Ranks:
    """Rank both sides of `triples`; answers that stand in canonical `known` do not compete."""
    rows = joint.entities.shape[0]
    return rank_without(joint, triples, left_out(triples, outgoing(known, rows), incoming(known, rows)))


def left_out(triples: Triples, known_tails: Adjacency, known_heads: Adjacency) -> tuple[Skips, Skips]:
    """Who does not compete with the true tails and the true heads: known answers, and these themselves."""
    return (
        known_answers(known_tails, triples.head, triples.relation, triples.tail),
        known_answers(known_heads, triples.tail, triples.relation, triples.head),
    )


def rank_without(joint: Joint, triples: Triples, skips: tuple[Skips, Skips]) -> Ranks:
    """Rank both sides of `triples`, with those left out that `left_out` tells."""
    head, tail, relation = joint.entities[triples.head], joint.entities[triples.tail], joint.relations[triples.relation]
    sides = []
    for query, true, skip in ((head + relation, triples.tail, skips[0]), (tail - relation, triples.head, skips[1])):
        bound = distances_to(query, joint.entities, true)
        closer, equal = count_closer(query, bound, joint.entities, joint.candidates, skip)
        sides.append(1 + closer + equal / 2)
    return Ranks(*sides)


def metrics(ranks: Array) -> dict[str, float]:
    """MR, MRR and Hits@1, 3, 10 of some ranks."""
    if not ranks.shape[0]:
        return {}
    hits = {f"hits@{k}": float((ranks <= k).mean()) for k in (1, 3, 10)}
    return {"mr": float(ranks.mean()), "mrr": float((1 / ranks).mean()), **hits}
