"""Steps that evidence is made of: who joins whom, by what, and what a candidate's own pairs say.

A question asks for the other end of a relation. `ahead` are the lists that lead from its entity along the relation
(outgoing if the tail is asked for, incoming if the head is), `behind` the others; everything else is the same for both
sides. Thinned lists keep one neighbour more than the limit: the *spare*, which counts only where another one is left
out. So the sample of a row as seen without some neighbour is the bottom-k of its other neighbours, whether that
neighbour is there or not, and nothing that a triple says about itself can leak into its own evidence.

Kernels hand single lists to their inner loops, never the whole graph: a tuple of forty arrays is slow to pass on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.csr import Adjacency, entries_to, entry, has, joins, locate
from dkge_dist.kernels.evidence.counts import OPPOSITE, SAME, joint_code, joint_count
from dkge_dist.kernels.evidence.hubs import HubCounts, hub_count, hub_place
from dkge_dist.kernels.hashing import combine
from dkge_dist.kernels.jit import as_readonly, kernel, subkernel
from dkge_dist.types import ROW, Array

LINK_PRIOR = 5.0
"""κ: as many pairs of a candidate as the confidence over all pairs weighs."""


class EvidenceGraph(NamedTuple):
    """The graph as the questions of one side (0: tails, 1: heads) see it, in full and thinned; digests of labels."""

    side: int
    ahead: Adjacency
    behind: Adjacency
    neighbours: Adjacency
    thin_ahead: Adjacency
    thin: Adjacency
    digest: Array


class EvidenceCounts(NamedTuple):
    """Counts by relation, of paths and of hubs: see `evidence.counts`."""

    pairs: Array
    codes: Array
    joint: Array
    path_codes: Array
    path_support: Array
    path_total: Array
    hubs: HubCounts


class EvidenceLimits(NamedTuple):
    """Bounds of a walk. They belong to the model version, as the sampling of contexts does."""

    seed: int
    neighbours: int
    links: int
    walks: int


@subkernel
def priority(digest, seed, row, neighbour):  # type: ignore[no-untyped-def]
    """The rank of a neighbour in the sample of a row."""
    return combine(combine(np.uint64(seed), digest[row]), digest[neighbour])


@subkernel
def spare(thin, digest, limits, row):  # type: ignore[no-untyped-def]
    """The neighbour that is in the sample only when another one is left out; -1 if the sample is everything."""
    patched, begin, end = locate(thin, row)
    if end - begin <= limits.neighbours:
        return np.int64(-1)
    last, last_priority = np.int64(-1), np.uint64(0)
    for k in range(begin, end):
        neighbour = np.int64(entry(thin, patched, k))
        rank = priority(digest, limits.seed, row, neighbour)
        if last < 0 or rank > last_priority or (rank == last_priority and neighbour > last):
            last, last_priority = neighbour, rank
    return last


@subkernel
def is_neighbour(neighbours, row, other):  # type: ignore[no-untyped-def]
    """Is `other` in the simple list of `row`?"""
    patched, begin, end = locate(neighbours, row)
    return has(neighbours, patched, begin, end, other)


@subkernel
def skipped(thin, digest, limits, row, left_out):  # type: ignore[no-untyped-def]
    """Which neighbour of the thinned list of `row` does not count when `left_out` is left out; -1: none."""
    if is_neighbour(thin, row, left_out):
        return np.int64(left_out)
    return spare(thin, digest, limits, row)


@kernel
def _sample(thin, digest, limits, row, left_out):  # type: ignore[no-untyped-def]
    patched, begin, end = locate(thin, row)
    out, count, gone = np.empty(end - begin, np.int64), 0, skipped(thin, digest, limits, row, left_out)
    for k in range(begin, end):
        if entry(thin, patched, k) != gone:
            out[count] = entry(thin, patched, k)
            count += 1
    return out[:count]


def sample_without(thin: Adjacency, digest: Array, limits: EvidenceLimits, row: int, left_out: int) -> Array:
    """The neighbours that walks from `row` start with when one of them is left out."""
    found: Array = _sample(thin, as_readonly(digest), limits, row, left_out)
    return found


@subkernel
def frequency(graph, hubs, question, candidate):  # type: ignore[no-untyped-def]
    """How many others have the candidate under the asked relation."""
    entity, relation = question
    place = hub_place(hubs, candidate)
    if place >= 0:
        asked = (relation << 1) | graph.side
        return hub_count(hubs, place, asked, asked) - (1 if joins(graph.behind, candidate, relation, entity) else 0)
    patched, begin, end = locate(graph.behind, candidate)
    count = np.int64(0)
    for k in range(begin, end):
        code = entry(graph.behind, patched, k)
        if code & 0xFFFFFFFF == relation and code >> 32 != entity and code >> 32 != candidate:
            count += 1
    return count


@subkernel
def _record_of_hub(graph, hubs, place, question, candidate, link):  # type: ignore[no-untyped-def]
    """`record` of a hub: its counts, less what the question's entity itself adds to them."""
    entity, relation = question
    other, direction = link
    asked, directed = (relation << 1) | graph.side, (other << 1) | (graph.side ^ direction)
    joined, both = hub_count(hubs, place, directed, directed), hub_count(hubs, place, asked, directed)
    if joins(graph.behind if direction == SAME else graph.ahead, candidate, other, entity):
        joined -= 1
        both -= 1 if joins(graph.behind, candidate, relation, entity) else 0
    return joined, both


@subkernel
def record(graph, hubs, question, candidate, link):  # type: ignore[no-untyped-def]
    """What the candidate's own pairs say about a link (other relation, direction), the question's entity left out.

    (pairs that the other relation joins, those of them that the asked one joins too)
    """
    place = hub_place(hubs, candidate)
    if place >= 0:
        return _record_of_hub(graph, hubs, place, question, candidate, link)
    entity, relation = question
    other, direction = link
    lists = graph.behind if direction == SAME else graph.ahead
    patched, begin, end = locate(lists, candidate)
    joined, both = np.int64(0), np.int64(0)
    for k in range(begin, end):
        code = entry(lists, patched, k)
        x = code >> 32
        if code & 0xFFFFFFFF == other and x != entity and x != candidate:
            joined += 1
            both += 1 if joins(graph.behind, candidate, relation, x) else 0
    return joined, both


@subkernel
def _confidence(counts, relation, link, known):  # type: ignore[no-untyped-def]
    """conf(other → relation) without one pair that `other` joins, and that `relation` joins too if it is known.

    A reversed triple of the asked relation itself makes the pair count in both orders.
    """
    other, direction = link
    itself = direction == OPPOSITE and other == relation
    joint = joint_count(counts.codes, counts.joint, joint_code(relation, other, direction))
    joint -= 2 * known if itself else known
    if joint <= 0:
        return 0.0
    return joint / (counts.pairs[other] - 1 - (known if itself else 0))


@subkernel
def link_strength(graph, counts, question, candidate, known):  # type: ignore[no-untyped-def]
    """The best of (n_t(a, r) + κ·conf) / (n_t(a) + κ) over the relations a that join the two; 0 if none supports."""
    entity, relation = question
    best = 0.0
    for direction in (SAME, OPPOSITE):
        lists = graph.ahead if direction == SAME else graph.behind
        patched, first, last = entries_to(lists, entity, candidate)
        for k in range(first, last):
            link = entry(lists, patched, k) & 0xFFFFFFFF, direction
            if direction == SAME and link[0] == relation:
                continue
            conf = _confidence(counts, relation, link, known)
            if conf > 0:
                joined, both = record(graph, counts.hubs, question, candidate, link)
                best = max(best, (both + LINK_PRIOR * conf) / (joined + LINK_PRIOR))
    return best


@kernel
def _joined_by(lists, rows, relations, others, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = joins(lists, rows[i], relations[i], others[i])


def joined_by(lists: Adjacency, rows: Array, relations: Array, others: Array) -> Array:
    """Does the labelled list of each row hold its other one, under its relation?"""
    out = np.empty(rows.shape[0], np.bool_)
    _joined_by(lists, as_readonly(rows, ROW), as_readonly(relations, ROW), as_readonly(others, ROW), out)
    return out
