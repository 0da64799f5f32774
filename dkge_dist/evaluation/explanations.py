"""Why an answer: its evidence in words, with names. In: one question and one candidate. Out: reasons, strongest first.

Everything is looked up where the scores come from: the same sampled neighbours, the same counts, the own triple of a
known answer left out. Single looks in Python, because people ask for a few answers at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dkge_dist.evidence.features import FEATURES, features
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import GraphEvidence
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.kernels.csr import Adjacency, list_of
from dkge_dist.kernels.evidence.lists import sample_without
from dkge_dist.kernels.evidence.walks import COMPANY, LINK, PATH, SIMILAR

EXAMPLES = 3
"""Of others that are named in a reason."""

KINDS = {
    "link": ("link", "confidence"),
    "company": ("company", "company_linked"),
    "similar": ("similar", "similar_linked"),
    "path": ("path",),
}
"""Which features are the weight of a kind of reasons; the rest is that of having evidence at all."""

Names = tuple[Dictionary, Dictionary]


def explain(evidence: Evidence, question: Questions, candidate: int, names: Names) -> list[dict[str, Any]]:
    """The reasons for one candidate of one question, each with its weight: they add up to E."""
    entity, relation = int(question.entity[0]), int(question.relation[0])
    if candidate == entity:
        weight = float(evidence.of_own(question)[0])
        loops = evidence.other_loops(question)[0]
        text = f"{loops} entities have {names[1].called(relation)} to themselves"
        return [{"kind": "self", "weight": round(weight, 6), "text": text}]
    values = evidence.graph.of_pairs(question, np.array([candidate]))
    parts = evidence.weights.of(question.relation, question.asks_tail)[0] * features(values)[0]
    weight_of = dict(zip(FEATURES, parts.tolist(), strict=True))
    look = _Look(evidence.graph, entity, relation, bool(question.asks_tail[0]), candidate, names)
    found = {
        "link": look.links() if values[0, LINK] > 0 else iter(()),
        "company": look.company() if values[0, COMPANY] > 0 else iter(()),
        "similar": look.similar() if values[0, SIMILAR] > 0 else iter(()),
        "path": look.paths() if values[0, PATH] > 0 else iter(()),
    }
    reasons = []
    for kind, texts in found.items():
        words = list(texts)
        if words:
            weight = sum(weight_of.pop(feature) for feature in KINDS[kind])
            reasons.append({"kind": kind, "weight": round(weight, 6), "text": "; ".join(words)})
    reasons.sort(key=lambda reason: -reason["weight"])
    if not reasons:
        return [{"kind": "vectors", "weight": 0.0, "text": "nothing in the graph says so: by its vector alone"}]
    rest = sum(weight_of.values())
    return [*reasons, {"kind": "other", "weight": round(rest, 6), "text": "having evidence at all"}]


class _Look:
    """Looks at the graph around one question and one candidate."""

    def __init__(
        self, graph: GraphEvidence, entity: int, relation: int, asks_tail: bool, candidate: int, names: Names
    ) -> None:
        self.graph, self.entity, self.relation, self.candidate = graph, entity, relation, candidate
        self.asks_tail, self.names = asks_tail, names
        full, self.thin = graph.graph.full, graph.graph.thin
        self.ahead, self.behind = (full.outgoing, full.incoming) if asks_tail else (full.incoming, full.outgoing)
        self.thin_ahead = self.thin.outgoing if asks_tail else self.thin.incoming

    def links(self) -> Iterator[str]:
        """The relations that join the two besides the asked one, the most reliable first."""
        mine = self._called(self.candidate)
        lines = []
        for lists, back, forward in ((self.ahead, self.behind, True), (self.behind, self.ahead, False)):
            for other in self._relations(lists, self.entity, self.candidate):
                if forward and other == self.relation:
                    continue
                # The others of the candidate that this relation joins to it, and those that the asked one joins too.
                joined = self._others(back, self.candidate, other) - {self.entity, self.candidate}
                both = joined & self._others(self.behind, self.candidate, self.relation)
                share = (len(both) + 1) / (len(joined) + 2)
                fact = self._fact(self.entity, other, self.candidate, forward == self.asks_tail)
                asked = self.names[1].called(self.relation)
                record = f"{len(both)} of {len(joined)} others that {mine} has so have {asked} with it too"
                lines.append((share, f"{fact}, and {record}"))
        for _, line in sorted(lines, reverse=True):
            yield line

    def company(self) -> Iterator[str]:
        """Who shares a neighbour with the entity and has this answer."""
        having = self._others(self.behind, self.candidate, self.relation) - {self.entity, self.candidate}
        yield from self._examples(
            (y, m)
            for m in self._starts()
            for y in self._sample(m, self.entity)
            if y in having and self.candidate in self._others(self.thin_ahead, y, self.relation)
        )

    def _examples(self, pairs: Iterator[tuple[int, int]]) -> Iterator[str]:
        shown = []
        for y, m in pairs:
            shown.append(
                f"{self._called(y)} shares {self._called(m)} with {self._called(self.entity)} and has this answer"
            )
            if len(shown) == EXAMPLES:
                break
        yield from shown

    def similar(self) -> Iterator[str]:
        """Known answers that share a neighbour with this one."""
        count = 0
        for y in self._starts():
            if y not in self._others(self.ahead, self.entity, self.relation):
                continue
            for m in self._sample(y, self.entity):
                if self.candidate in self._sample(m, y) and count < EXAMPLES:
                    count += 1
                    yield f"known answer {self._called(y)} shares {self._called(m)} with {self._called(self.candidate)}"

    def paths(self) -> Iterator[str]:
        """Ways of two steps that lead to the candidate."""
        count = 0
        for m in self._starts():
            for one in self._relations(self.ahead, self.entity, m):
                for other in self._relations(self.thin_ahead, m, self.candidate):
                    if count < EXAMPLES:
                        count += 1
                        first = self._fact(self.entity, one, m, self.asks_tail)
                        yield f"{first}, {self._fact(m, other, self.candidate, self.asks_tail)}"

    def _starts(self) -> list[int]:
        """The neighbours of the entity that walks for the candidate start with."""
        limits = self.graph.kernel_limits
        starts = sample_without(self.thin.neighbours, self.graph.digest, limits, self.entity, self.candidate)
        return [int(row) for row in starts]

    def _sample(self, row: int, left_out: int) -> list[int]:
        """The neighbours of a row that walks go on to, but for where they came from."""
        rows: list[int] = list_of(self.thin.neighbours, row).tolist()
        return [other for other in rows if other != left_out]

    def _others(self, lists: Adjacency, row: int, relation: int) -> set[int]:
        codes = list_of(lists, row)
        return set((codes[(codes & 0xFFFFFFFF) == relation] >> 32).tolist())

    def _relations(self, lists: Adjacency, row: int, other: int) -> list[int]:
        codes = list_of(lists, row)
        found: list[int] = (codes[(codes >> 32) == other] & 0xFFFFFFFF).tolist()
        return found

    def _fact(self, one: int, relation: int, other: int, forward: bool) -> str:
        head, tail = (one, other) if forward else (other, one)
        return f"{self._called(head)} {self.names[1].called(relation)} {self._called(tail)}"

    def _called(self, row: int) -> str:
        return self.names[0].called(row)
