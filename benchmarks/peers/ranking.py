"""Ranks by the scores of any system, with the package's own rules: candidates, filters, ties, metrics.

`rank_scores` has to give what `dkge_dist.evaluation` gives where the scores are −f; a test compares the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.peers.protocol import Graph, Peer
from dkge_dist.ask.ranks import PROTOCOLS, Protocol, Ranks, filter_known, known_triples, metrics
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.kernels.triples import contains
from dkge_dist.measure.fidelity import NightTriples, Replaced
from dkge_dist.types import Array, Triples

SCORES_AT_ONCE = 16_000_000
"""Numbers of a block of scores: 64 MB."""
VALIDATED = 500
"""Validation triples that a training is stopped by, a sample."""
SCORES_TO_VALIDATE = 100_000_000
"""On a large graph they are fewer: a validation has so many scores at most."""

Filters = tuple[FilteredCandidates, FilteredCandidates]


class NotANumberError(Exception):
    """A system gave NaN as a score: it has diverged."""


def filters_of(graph: Graph, triples: Triples, protocol: Protocol) -> Filters:
    """The candidates that a protocol removes on either side."""
    known = known_triples(graph.splits, protocol)
    return filter_known(triples, outgoing(known, graph.entity_rows), incoming(known, graph.entity_rows))


def rank_scores(peer: Peer, graph: Graph, triples: Triples, filters: dict[str, Filters]) -> dict[str, Ranks]:
    """Ranks of both sides under several filters, by one pass over the scores."""
    found: dict[str, list[Array]] = {name: [] for name in filters}
    for side, asks_tail in enumerate((True, False)):
        entity, true = (triples.head, triples.tail) if asks_tail else (triples.tail, triples.head)
        ranks = _rank_side(
            peer, graph, (entity, triples.relation, true), asks_tail, {n: f[side] for n, f in filters.items()}
        )
        for name, values in ranks.items():
            found[name].append(values)
    return {name: Ranks(*sides) for name, sides in found.items()}


def _rank_side(
    peer: Peer,
    graph: Graph,
    asked: tuple[Array, Array, Array],
    asks_tail: bool,
    filters: dict[str, FilteredCandidates],
) -> dict[str, Array]:
    entity, relation, true = asked
    place = np.searchsorted(graph.candidates, true)
    ranks = {name: np.empty(true.shape[0]) for name in filters}
    step = max(1, SCORES_AT_ONCE // max(1, graph.candidates.shape[0]))
    for begin in range(0, true.shape[0], step):
        end = min(begin + step, true.shape[0])
        score_QC = peer.scores(entity[begin:end], relation[begin:end], asks_tail)
        if np.isnan(score_QC).any():
            raise NotANumberError(f"scores of {int(np.isnan(score_QC).sum())} candidates are no numbers")
        own_Q1 = score_QC[np.arange(end - begin), place[begin:end]][:, None]
        above_QC, equal_QC = score_QC > own_Q1, score_QC == own_Q1
        for name, removed in filters.items():
            question, candidate = _removed(removed, begin, end, graph.candidates)
            # The true one is among those removed, so that it does not count as a tie of itself.
            above = above_QC.sum(1) - np.bincount(question, above_QC[question, candidate], end - begin)
            equal = equal_QC.sum(1) - np.bincount(question, equal_QC[question, candidate], end - begin)
            ranks[name][begin:end] = 1 + above + equal / 2
    return ranks


def _removed(removed: FilteredCandidates, begin: int, end: int, candidates: Array) -> tuple[Array, Array]:
    """(question, place among the candidates) of those removed from some questions; dead ones are no candidates."""
    rows = removed.rows[removed.indptr[begin] : removed.indptr[end]]
    question = np.repeat(np.arange(end - begin), np.diff(removed.indptr[begin : end + 1]))
    place = np.minimum(np.searchsorted(candidates, rows), candidates.shape[0] - 1)
    alive = candidates[place] == rows
    return question[alive], place[alive]


def validation_hits(peer: Peer, graph: Graph, seed: int = 0) -> float:
    """Hits@10 on a sample of validation under protocol `paper`: what settings are chosen and trainings stopped by."""
    if not graph.valid.count:
        return 0.0
    rng = np.random.default_rng(seed)
    affordable = max(50, SCORES_TO_VALIDATE // (2 * graph.candidates.shape[0]))
    chosen = rng.choice(graph.valid.count, min(VALIDATED, affordable, graph.valid.count), replace=False)
    triples = graph.valid.take(np.sort(chosen))
    ranks = rank_scores(peer, graph, triples, {"paper": filters_of(graph, triples, "paper")})["paper"]
    return metrics(ranks.both)["hits@10"]


def measure_held_out(peer: Peer, graph: Graph, triples: Triples) -> dict[str, Any]:
    """Metrics under both protocols, of all triples and of those that do not stand in train."""
    filters = {protocol: filters_of(graph, triples, protocol) for protocol in PROTOCOLS}
    apart = ~contains(graph.train, triples)
    found: dict[str, Any] = {"triples": triples.count, "leaked": int((~apart).sum())}
    for protocol, ranks in rank_scores(peer, graph, triples, filters).items():
        found[protocol] = {**metrics(ranks.both), "without_train": metrics(ranks.take(apart).both)}
    return found


def measure_fidelity(peer: Peer, graph: Graph, night: NightTriples) -> dict[str, float]:
    """MRR of the groups of a night, train filtered; of `replaced` the share of new answers above the old."""
    found = {}
    for name, triples in night.groups().items():
        if triples.count:
            ranks = rank_scores(peer, graph, triples, {"": filters_of(graph, triples, "paper")})[""]
            found[name] = metrics(ranks.both)["mrr"]
    if night.replaced.new.count:
        found["replaced"] = float(_new_above_old(peer, graph, night.replaced).mean())
    return found


def _new_above_old(peer: Peer, graph: Graph, replaced: Replaced) -> Array:
    above = np.zeros(replaced.new.count, bool)
    for asks_tail in (True, False):
        where = np.flatnonzero(replaced.asks_tail == asks_tail)
        new, old = replaced.new.take(where), replaced.old.take(where)
        entity, answers = (new.head, (new.tail, old.tail)) if asks_tail else (new.tail, (new.head, old.head))
        for number, at in enumerate(where):
            score_C = peer.scores(entity[number : number + 1], new.relation[number : number + 1], asks_tail)[0]
            mine, theirs = (score_C[np.searchsorted(graph.candidates, answer[number])] for answer in answers)
            above[at] = mine > theirs
    return above
