"""Small graphs whose right answers are known, for systems to learn."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.protocol import Graph
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW, Triples


def triples_of(lines: list[tuple[int, int, int]]) -> Triples:
    columns = np.array(sorted(set(lines)), ROW).reshape(-1, 3)
    return canonical(Triples(*(np.ascontiguousarray(columns[:, number]) for number in range(3))))


def graph_with(train: Triples, held_out: Triples | None = None, entities: int | None = None) -> Graph:
    """All rows are candidates; what is held out is valid and test."""
    rows = entities or int(max(train.head.max(), train.tail.max())) + 1
    rest = held_out if held_out is not None else Triples.empty()
    return Graph(train, rest, rest, np.arange(rows, dtype=ROW), rows, int(train.relation.max()) + 1)


def teams(count: int = 12, members: int = 8, seed: int = 0) -> tuple[Triples, Triples]:
    """Each member belongs to its team (relation 0) and works in the team's town (1): towns follow from teams.

    Returns train, and held-out triples of relation 1: (member, 1, town).
    """
    rng = np.random.default_rng(seed)
    train, held_out = [], []
    for team in range(count):
        town = count + team
        train.append((team, 2, town))
        for member in range(members):
            person = 2 * count + team * members + member
            train.append((person, 0, team))
            (held_out if member == rng.integers(1, members) else train).append((person, 1, town))
    return triples_of(train), triples_of(held_out)
