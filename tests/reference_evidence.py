"""The slow, obvious twin of evidence: every number looked up in a plain set of triples, shares as exact fractions.

What a triple says of itself is left out by leaving out the triple. Only counts of paths are those of the whole graph,
less the pair that is asked about: a triple's part as a leg of other pairs' paths stays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from tests.reference import Path, Triple, combine, neighbours, together

LINK_PRIOR, NEIGHBOUR_PRIOR, PATH_PRIOR = 5.0, 3.0, 20.0
SAME, OPPOSITE = 0, 1
Values = tuple[float, float, float, float, float]
NOTHING: Values = (0.0, 0.0, 0.0, 0.0, 0.0)


def relation_counts(triples: Iterable[Triple]) -> tuple[Counter[int], Counter[int], Counter[tuple[int, int, int]]]:
    """(pairs by relation, self loops by relation, pairs by (asked, other, direction)), over ordered pairs."""
    graph = set(triples)
    pairs, loops, joint = Counter[int](), Counter[int](), Counter[tuple[int, int, int]]()
    relations = {r for _, r, _ in graph}
    for head, relation, tail in graph:
        if head == tail:
            loops[relation] += 1
            continue
        pairs[relation] += 1
        for other in relations:
            if other != relation and (head, other, tail) in graph:
                joint[relation, other, SAME] += 1
            if (tail, other, head) in graph:
                joint[relation, other, OPPOSITE] += 1
    return pairs, loops, joint


def hub_counts(triples: Iterable[Triple], hub: int) -> Counter[tuple[int, int]]:
    """How many neighbours two directed relations (relation << 1 | leads away) both join to a hub."""
    joining: dict[int, set[int]] = {}
    for head, relation, tail in set(triples):
        if head != tail and hub in (head, tail):
            other = tail if head == hub else head
            joining.setdefault(other, set()).add(relation << 1 | (head == hub))
    return Counter((one, other) for relations in joining.values() for one in relations for other in relations)


def bottom(digest: Sequence[int], seed: int, row: int, others: Iterable[int], limit: int) -> list[int]:
    """The `limit` others of the smallest hashes, ascending."""
    key = combine(seed, int(digest[row]))
    return sorted(sorted(others, key=lambda other: (combine(key, int(digest[other])), other))[:limit])


def reversed_graph(triples: Iterable[Triple]) -> list[Triple]:
    """Every triple the other way round: what was asked for heads is asked for tails."""
    return [(tail, relation, head) for head, relation, tail in triples]


@dataclass(frozen=True)
class SlowEvidence:
    """Of questions for tails; those for heads are asked of the reversed graph."""

    triples: frozenset[Triple]
    digest: Sequence[int]
    seed: int
    neighbours: int
    max_links: int
    max_walks: int
    paths: Counter[tuple[Path, Path]]

    @staticmethod
    def read(triples: Iterable[Triple], digest: Sequence[int], bounds: tuple[int, int, int, int]) -> SlowEvidence:
        """`bounds` are (seed, neighbours, links, walks)."""
        graph = frozenset(triples)
        return SlowEvidence(graph, digest, *bounds, together(graph, 2))

    @cached_property
    def simple(self) -> dict[int, set[int]]:
        return dict(neighbours(self.triples))

    def without(self, triple: Triple) -> SlowEvidence:
        """The graph without a triple, but for the counts of paths."""
        return replace(self, triples=self.triples - {triple})

    def sample(self, row: int) -> list[int]:
        """The neighbours that walks go on to: one more than the limit."""
        return bottom(self.digest, self.seed, row, self.simple.get(row, set()), self.neighbours + 1)

    def starts(self, entity: int, candidate: int) -> list[int]:
        """The neighbours that walks begin with: those besides the candidate, up to the limit."""
        others = self.simple.get(entity, set()) - {candidate}
        return bottom(self.digest, self.seed, entity, others, self.neighbours)

    def candidates(self, entity: int, relation: int, rows: int) -> dict[int, Values]:
        """Everybody with evidence, known answers and the entity itself left out."""
        found = {}
        for row in range(rows):
            if row != entity and (entity, relation, row) not in self.triples:
                values = self.of(entity, relation, row)
                if values != NOTHING:
                    found[row] = values
        return found

    def of(self, entity: int, relation: int, candidate: int) -> Values:
        """(link, company, similar, path, share) of one candidate, as if its triple were not there."""
        if candidate == entity:
            return NOTHING
        direct = {r for h, r, t in self.triples if (h, t) == (entity, candidate)}
        graph = self.without((entity, relation, candidate))
        starts = graph.starts(entity, candidate)
        known = [y for y in starts if (entity, relation, y) in graph.triples]
        link = graph.link(entity, relation, candidate) if candidate in graph.first_links(entity, relation) else 0.0
        spares = len(starts) == self.neighbours
        company = self.enough(graph.company(starts, entity, relation, candidate), len(starts) + spares)
        similar = self.enough(graph.similar(known, entity, candidate), len(known) + spares)
        path = self.enough(graph.path(starts, entity, relation, candidate, direct), len(starts) + spares)
        if not (link or company or similar or path):
            return NOTHING
        pairs = {(h, t) for h, r, t in graph.triples if r == relation and h != t}
        having = sum(t == candidate and h != entity for h, t in pairs)
        return link, company, similar, path, having / len(pairs) if pairs else 0.0

    def enough(self, found: tuple[float, Fraction], starts: int) -> float:
        strength, share = found
        return strength if share * self.max_walks >= starts else 0.0

    def company(self, starts: list[int], entity: int, relation: int, candidate: int) -> tuple[float, Fraction]:
        """entity – m – y → candidate: (strength, share of the walks)."""
        strength, share = 0.0, Fraction(0)
        for m in starts:
            others = [y for y in self.sample(m) if y != entity]
            for y in others:
                answers = [z for z in self.sample(y) if (y, relation, z) in self.triples]
                if candidate in answers:
                    strength += 1 / math.sqrt(len(self.sample(y)) + NEIGHBOUR_PRIOR) / (len(others) + NEIGHBOUR_PRIOR)
                    share += Fraction(1, len(others) * len(answers))
        return strength, share

    def similar(self, known: list[int], entity: int, candidate: int) -> tuple[float, Fraction]:
        """entity → y – m – candidate."""
        strength, share = 0.0, Fraction(0)
        for y in known:
            others = [m for m in self.sample(y) if m != entity]
            for m in others:
                near = [z for z in self.sample(m) if z != y]
                if candidate in near:
                    strength += 1 / math.sqrt(len(self.sample(y)) + NEIGHBOUR_PRIOR) / (len(near) + NEIGHBOUR_PRIOR)
                    share += Fraction(1, len(others) * len(near))
        return strength, share

    def path(
        self, starts: list[int], entity: int, relation: int, candidate: int, direct: set[int]
    ) -> tuple[float, Fraction]:
        """entity → m → candidate: the best confidence, and the share of the walks; `direct` relations join the two."""
        best, share = 0.0, Fraction(0)
        for m in starts:
            if candidate not in self.sample(m):
                continue
            steps = [
                (one, other)
                for h, one, t in self.triples if (h, t) == (entity, m)
                for h2, other, t2 in self.triples if (h2, t2) == (m, candidate)
            ]  # fmt: skip
            confidence = max((self.path_confidence(relation, step, direct) for step in steps), default=0.0)
            if confidence > 0:
                best = max(best, confidence)
                share += Fraction(1, len([y for y in self.sample(m) if y != entity]))
        return best, share

    def path_confidence(self, relation: int, step: Path, direct: set[int]) -> float:
        """How often a pair that the path joins is joined by the relation, the pair that is asked about left out."""
        by_relation = {left[0]: n for (left, right), n in self.paths.items() if right == step and len(left) == 1}
        support = by_relation.get(relation, 0) - (relation in direct)
        return support / (sum(by_relation.values()) - len(direct) + PATH_PRIOR) if support > 0 else 0.0

    @cached_property
    def counts(self) -> tuple[Counter[int], Counter[int], Counter[tuple[int, int, int]]]:
        return relation_counts(self.triples)

    def links(self, entity: int, candidate: int) -> list[tuple[int, int]]:
        """The relations that join the two, with direction."""
        ahead = [(r, SAME) for h, r, t in self.triples if (h, t) == (entity, candidate)]
        return ahead + [(r, OPPOSITE) for h, r, t in self.triples if (t, h) == (entity, candidate)]

    def first_links(self, entity: int, relation: int) -> list[int]:
        """Neighbours that are no known answers and that a supporting relation links: by confidence, then by hash."""
        pairs, _, joint = self.counts
        ranked = []
        for row in self.simple.get(entity, set()):
            best = max(joint[relation, *link] / pairs[link[0]] for link in self.links(entity, row))
            if best > 0 and (entity, relation, row) not in self.triples:
                hashed = combine(combine(self.seed, int(self.digest[entity])), int(self.digest[row]))
                ranked.append((int((1 - best) * 0xFFFF), hashed >> 16, row))
        return [row for *_, row in sorted(ranked)[: self.max_links]]

    def link(self, entity: int, relation: int, candidate: int) -> float:
        """The best of (n_t(a, r) + κ·conf) / (n_t(a) + κ), this pair left out of all counts."""
        pairs, _, joint = self.counts
        best = 0.0
        for other, direction in self.links(entity, candidate):
            shared = joint[relation, other, direction]
            if shared:
                confidence = shared / (pairs[other] - 1)
                ends = ((h, t) if direction == SAME else (t, h) for h, r, t in self.triples if r == other and h != t)
                joined = [x for x, y in ends if y == candidate and x != entity]
                both = [x for x in joined if (x, relation, candidate) in self.triples]
                best = max(best, (len(both) + LINK_PRIOR * confidence) / (len(joined) + LINK_PRIOR))
        return best


def combined(distance: float, evidence: float, near: float, by_heart: float) -> np.float32:
    """−f + E, for one candidate in 32 bits; what E lifts it by above −near counts 1 / by_heart."""
    left, bound = np.float32(distance) - np.float32(evidence), np.float32(near)
    if evidence <= 0 or left >= bound:
        return -left
    lifted = bound - (bound - left) / np.float32(by_heart)
    return -min(np.float32(distance), lifted)
