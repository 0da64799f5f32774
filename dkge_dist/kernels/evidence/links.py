"""Linked candidates: neighbours of a question's entity that another relation joins to it, one that supports the asked.

Many of them are taken in order: by the confidence of their best relation in steps, then by hash.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.contexts import bottom_k_offer
from dkge_dist.kernels.csr import entries_to, entry, locate
from dkge_dist.kernels.evidence.counts import OPPOSITE, SAME
from dkge_dist.kernels.evidence.lists import priority
from dkge_dist.kernels.jit import subkernel
from dkge_dist.types import MAX_ROWS

_LINK_BITS = 33


@subkernel
def fill_joint(counts, relation, joint):  # type: ignore[no-untyped-def]
    """Spread the pairs that the asked relation shares with others over `joint`, by `other << 1 | direction`."""
    begin = np.searchsorted(counts.codes, np.int64(relation) << _LINK_BITS)
    end = np.searchsorted(counts.codes, np.int64(relation + 1) << _LINK_BITS)
    for i in range(begin, end):
        joint[counts.codes[i] & ((np.int64(1) << _LINK_BITS) - 1)] = counts.joint[i]
    return begin, end


@subkernel
def clear_joint(counts, run, joint):  # type: ignore[no-untyped-def]
    """Undo `fill_joint`."""
    for i in range(run[0], run[1]):
        joint[counts.codes[i] & ((np.int64(1) << _LINK_BITS) - 1)] = 0


@subkernel
def leave_out(graph, question, absent, joint):  # type: ignore[no-untyped-def]
    """Take what the triple of a known answer adds out of `joint`."""
    entity, relation = question
    for direction in (SAME, OPPOSITE):
        lists = graph.ahead if direction == SAME else graph.behind
        patched, first, last = entries_to(lists, entity, absent)
        for k in range(first, last):
            other = entry(lists, patched, k) & 0xFFFFFFFF
            if direction == OPPOSITE or other != relation:
                joint[(other << 1) | direction] -= 2 if other == relation else 1


@subkernel
def _next_neighbour(lists, at, relation, joint, pairs, asked_pairs):  # type: ignore[no-untyped-def]
    """The next neighbour in both lists: (row, is it a known answer?, its best confidence, the places after it)."""
    ahead, behind = lists
    (a_patched, a, a_end), (b_patched, b, b_end) = at
    row = np.int64(MAX_ROWS)
    if a < a_end:
        row = min(row, entry(ahead, a_patched, a) >> 32)
    if b < b_end:
        row = min(row, entry(behind, b_patched, b) >> 32)
    known, best = False, 0.0
    while a < a_end and entry(ahead, a_patched, a) >> 32 == row:
        other = entry(ahead, a_patched, a) & 0xFFFFFFFF
        if other == relation:
            known = True
        elif joint[other << 1] > 0:
            best = max(best, joint[other << 1] / pairs[other])
        a += 1
    while b < b_end and entry(behind, b_patched, b) >> 32 == row:
        other = entry(behind, b_patched, b) & 0xFFFFFFFF
        if joint[(other << 1) | 1] > 0:
            best = max(best, joint[(other << 1) | 1] / (asked_pairs if other == relation else pairs[other]))
        b += 1
    return row, known, best, ((a_patched, a, a_end), (b_patched, b, b_end))


@subkernel
def _rank(digest, limits, entity, x, confidence):  # type: ignore[no-untyped-def]
    step = np.uint64((1.0 - confidence) * 0xFFFF)
    return (step << np.uint64(48)) | (priority(digest, limits.seed, entity, x) >> np.uint64(16))


@subkernel
def first_links(graph, counts, limits, question, joint, heap):  # type: ignore[no-untyped-def]
    """Put the linked candidates into the heap (priorities, rows), the first of them if they are many; how many."""
    entity, relation = question
    priorities, rows = heap
    lists = graph.ahead, graph.behind
    at = locate(graph.ahead, entity), locate(graph.behind, entity)
    size = 0
    while at[0][1] < at[0][2] or at[1][1] < at[1][2]:
        x, known, best, at = _next_neighbour(lists, at, relation, joint, counts.pairs, counts.pairs[relation])
        if x != entity and not known and best > 0:
            rank = _rank(graph.digest, limits, entity, x, best)
            size = bottom_k_offer(priorities, rows, size, limits.links, x, rank, False)
    return size


@subkernel
def is_first_link(graph, counts, limits, question, joint, candidate, known):  # type: ignore[no-untyped-def]
    """Is the candidate one of `first_links`? A known answer counts as unknown, and `joint` is without its triple."""
    entity, relation = question
    lists, asked_pairs = (graph.ahead, graph.behind), counts.pairs[relation] - known
    one = entries_to(graph.ahead, entity, candidate), entries_to(graph.behind, entity, candidate)
    _, _, confidence, _ = _next_neighbour(lists, one, relation, joint, counts.pairs, asked_pairs)
    _, begin, end = locate(graph.neighbours, entity)
    if confidence == 0 or end - begin <= limits.links:
        return confidence > 0
    own = _rank(graph.digest, limits, entity, candidate, confidence)
    at = locate(graph.ahead, entity), locate(graph.behind, entity)
    before = 0
    while at[0][1] < at[0][2] or at[1][1] < at[1][2]:
        x, is_known, best, at = _next_neighbour(lists, at, relation, joint, counts.pairs, asked_pairs)
        if x in (entity, candidate) or is_known or best == 0:
            continue
        rank = _rank(graph.digest, limits, entity, x, best)
        if rank < own or (rank == own and x < candidate):
            before += 1
            if before == limits.links:
                return False
    return True
