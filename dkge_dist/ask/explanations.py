"""Why an answer: its evidence in words, with names. In: one question and one candidate. Out: reasons, strongest first.

Everything is looked up where the scores come from: the same sampled neighbours, the same counts, the own triple of a
known answer left out. Single looks in Python, because people ask for a few answers at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np

from dkge_dist.evidence.features import FEATURES, features
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import GraphEvidence
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.kernels.csr import Adjacency, list_of
from dkge_dist.kernels.evidence.lists import sample_without
from dkge_dist.kernels.evidence.paths import PATH_PRIOR, path_codes
from dkge_dist.kernels.evidence.steps import NEIGHBOUR_PRIOR
from dkge_dist.kernels.evidence.walks import COMPANY, LINK, PATH, SIMILAR

EXAMPLES = 3
"""That a sentence names of each kind; of the others it says how many."""

KINDS = {
    "link": ("link", "confidence"),
    "company": ("company", "company_linked"),
    "similar": ("similar", "similar_linked"),
    "path": ("path",),
}
"""Which features are the weight of a kind of reasons; the rest is told by `REST`."""

REST = "for being connected at all, and for how common it is"

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
        "link": look.links() if values[0, LINK] > 0 else "",
        "company": look.company() if values[0, COMPANY] > 0 else "",
        "similar": look.similar() if values[0, SIMILAR] > 0 else "",
        "path": look.paths() if values[0, PATH] > 0 else "",
    }
    reasons = []
    for kind, text in found.items():
        if text:
            weight = sum(weight_of.pop(feature) for feature in KINDS[kind])
            reasons.append({"kind": kind, "weight": round(weight, 6), "text": text})
    reasons.sort(key=lambda reason: -reason["weight"])
    if not reasons:
        return [{"kind": "vectors", "weight": 0.0, "text": "nothing in the graph says so: by its vector alone"}]
    rest = sum(weight_of.values())
    return [*reasons, {"kind": "other", "weight": round(rest, 6), "text": REST}]


class _Shared:
    """Who has what is asked, and the neighbours by which they are near: each with all that it adds to the evidence."""

    def __init__(self) -> None:
        self.having: dict[int, float] = defaultdict(float)
        self.shared: dict[int, float] = defaultdict(float)

    def add(self, having: int, shared: int, strength: float) -> None:
        """One of them and one neighbour."""
        self.having[having] += strength
        self.shared[shared] += strength


def _listed(names: list[str], count: int | None = None) -> str:
    """The first few, and how many more there are of `count`."""
    shown = names[:EXAMPLES]
    more = (len(names) if count is None else count) - len(shown)
    *others, last = [*shown, f"{more} more"] if more else shown
    return f"{', '.join(others)} and {last}" if others else last


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

    def links(self) -> str:
        """The relations that join the two besides the asked one, the most reliable first and with its record."""
        found = []
        for lists, back, forward in ((self.ahead, self.behind, True), (self.behind, self.ahead, False)):
            for other in self._relations(lists, self.entity, self.candidate):
                if forward and other == self.relation:
                    continue
                # The others of the candidate that this relation joins to it, and those that the asked one joins too.
                joined = self._others(back, self.candidate, other) - {self.entity, self.candidate}
                both = joined & self._others(self.behind, self.candidate, self.relation)
                share = (len(both) + 1) / (len(joined) + 2)
                fact = self._fact(self.entity, other, self.candidate, forward == self.asks_tail)
                found.append((-share, fact, self._record(len(both), len(joined))))
        found.sort()
        if not found:
            return ""
        (_, best, record), *others = found
        also = f"; also {_listed([fact for _, fact, _ in others])}" if others else ""
        return f"{best}{record}{also}"

    def _record(self, both: int, joined: int) -> str:
        """How often a link of the candidate to somebody else goes along with the asked relation."""
        if not joined:
            return ""
        others = "1 other" if joined == 1 else f"{joined} others"
        asked = self.names[1].called(self.relation)
        told = f"{both} {'has' if both == 1 else 'have'} {asked} with it too" if both else f"none has {asked} with it"
        return f", {'and' if both else 'but'} of {others} so linked to {self._called(self.candidate)} {told}"

    def company(self) -> str:
        """Who shares a neighbour with the entity and has this answer."""
        having = self._others(self.behind, self.candidate, self.relation) - {self.entity, self.candidate}
        having = {y for y in having if self.candidate in self._others(self.thin_ahead, y, self.relation)}
        found = _Shared()
        for m in self._starts():
            near = self._sample(m, self.entity)
            for y in near:
                if y in having:
                    found.add(y, m, self._vote(y) / (len(near) + NEIGHBOUR_PRIOR))
        if not found.having:
            return ""
        share, have = ("shares", "has") if len(found.having) == 1 else ("share", "have")
        others, shared = self._list(found.having), self._list(found.shared)
        return f"{others} {share} {shared} with {self._called(self.entity)} and {have} this answer"

    def similar(self) -> str:
        """Known answers that share a neighbour with this one."""
        found, known = _Shared(), self._others(self.ahead, self.entity, self.relation)
        for y in self._starts():
            if y not in known:
                continue
            for m in self._sample(y, self.entity):
                if self.candidate in self._sample(m, y):
                    found.add(y, m, self._vote(y) / (len(self._sample(m, y)) + NEIGHBOUR_PRIOR))
        if not found.having:
            return ""
        noun, share = ("answer", "shares") if len(found.having) == 1 else ("answers", "share")
        others, shared = self._list(found.having), self._list(found.shared)
        return f"the known {noun} {others} {share} {shared} with {self._called(self.candidate)}"

    def paths(self) -> str:
        """Ways of two steps to the candidate that support the relation: the most reliable, and how many more."""
        found = []
        for m in self._starts():
            for one in self._relations(self.ahead, self.entity, m):
                for other in self._relations(self.thin_ahead, m, self.candidate):
                    if confidence := self._confidence(one, other):
                        found.append((confidence, one, m, other))
        if not found:
            return ""
        _, one, m, other = max(found, key=lambda path: path[0])
        first = self._fact(self.entity, one, m, self.asks_tail)
        second = self._fact(m, other, self.candidate, self.asks_tail)
        more = len(found) - 1
        also = f" (and {more} more such {'way' if more == 1 else 'ways'})" if more else ""
        return f"{first}, and {second}{also}"

    def _confidence(self, one: int, other: int) -> float:
        """How often a path goes along with the asked relation, as walks count it: without the pair itself."""
        steps = (one, other) if self.asks_tail else (other, one)
        code = path_codes(*(np.array([relation]) for relation in (self.relation, *steps)))[0]
        paths = self.graph.paths
        at = int(np.searchsorted(paths.codes, code))
        if at == paths.codes.shape[0] or paths.codes[at] != code:
            return 0.0
        direct = self._relations(self.ahead, self.entity, self.candidate)
        support = int(paths.support[at]) - (self.relation in direct)
        return max(0.0, support / (int(paths.total[at]) - len(direct) + PATH_PRIOR))

    def _vote(self, row: int) -> float:
        """The weight of what a row has, as walks have it: less if it is joined to many."""
        return 1.0 / math.sqrt(list_of(self.thin.neighbours, row).shape[0] + NEIGHBOUR_PRIOR)

    def _list(self, weights: dict[int, float]) -> str:
        """The heaviest by name, and how many more there are."""
        rows = sorted(weights, key=lambda row: -weights[row])
        return _listed([self._called(row) for row in rows[:EXAMPLES]], len(rows))

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
