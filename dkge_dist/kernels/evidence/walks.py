"""Walks for evidence: the candidates of a question and what speaks for each, and the same for given candidates.

Known answers of a question are no candidates of its walk; as given candidates they are treated as if their triple were
not there, and so is everything that they compete with. Who is a candidate is decided one by one: by a share of the
walks of at least 1 / `limits.walks`, and among more than `limits.links` linked ones by confidence, then by hash. So a
given candidate needs no walk to others, and the number of candidates is bounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.buffers import with_room
from dkge_dist.kernels.csr import advance, entries_to, entry, joins, linked, locate
from dkge_dist.kernels.evidence.links import clear_joint, fill_joint, first_links, is_first_link, leave_out
from dkge_dist.kernels.evidence.lists import (
    EvidenceCounts,
    EvidenceGraph,
    EvidenceLimits,
    frequency,
    is_neighbour,
    link_strength,
    skipped,
    spare,
)
from dkge_dist.kernels.evidence.paths import has_paths
from dkge_dist.kernels.evidence.steps import (
    COMPANY_SHARE,
    MET,
    MET_COMPANY,
    MET_LINKED,
    MET_PATH,
    MET_SIMILAR,
    PATH_SHARE,
    SIMILAR_SHARE,
    meet_company,
    meet_nobody,
    meet_paths,
    meet_similar,
    place_of,
    slots_for,
    walk_company,
    walk_paths,
    walk_similar,
)
from dkge_dist.kernels.jit import as_readonly, kernel, subkernel
from dkge_dist.types import ROW, Array

LINK, COMPANY, SIMILAR, PATH, SHARE = range(5)
"""Columns of what is found: the strength of the best link, of the company, of similar known answers and of the best
path, each 0 if there is none; and the share of the asked relation's other pairs that have the candidate."""

COLUMNS = 5

ROUNDING = 1e-9

KEPT = 1 << 14


class Found(NamedTuple):
    """Question i has the candidates `rows[indptr[i]:indptr[i + 1]]`, ascending, with `values` by column."""

    indptr: Array
    rows: Array
    values: Array


@subkernel
def _starts(neighbours, limits, entity, candidate):  # type: ignore[no-untyped-def]
    """How many neighbours walks start with: those of the entity besides the candidate, up to the limit."""
    _, begin, end = locate(neighbours, entity)
    return min(limits.neighbours, end - begin - (1 if is_neighbour(neighbours, entity, candidate) else 0))


@subkernel
def _known_starts(thin, ahead, question, left_out):  # type: ignore[no-untyped-def]
    """How many neighbours in the entity's sample, but for one, are known answers."""
    entity, relation = question
    patched, begin, end = locate(thin, entity)
    count = 0
    for k in range(begin, end):
        y = np.int64(entry(thin, patched, k))
        if y != left_out and joins(ahead, entity, relation, y):
            count += 1
    return count


@subkernel
def _is_enough(share, limits, starts):  # type: ignore[no-untyped-def]
    """Is it at least 1 / `limits.walks` of what all starts together bring?

    Shares are added up in the order of rows, and must not depend on it: what differs by rounding counts as equal.
    """
    return share * limits.walks + ROUNDING >= starts


@subkernel
def _choose(met, limits, starts, known_starts, out):  # type: ignore[no-untyped-def]
    """Fill `out` with what is strong enough of company, similar answers and paths; False if nothing and no link is."""
    out[:] = 0.0
    # Where the sample is full, the spare may bring some too. So no kind brings more than `limits.walks` + 1 candidates:
    # every start brings 1 in all, and only neighbours, without themselves, are asked for one start less.
    spares = 1 if starts == limits.neighbours else 0
    if _is_enough(met[COMPANY_SHARE], limits, starts + spares):
        out[COMPANY] = met[MET_COMPANY]
    if _is_enough(met[SIMILAR_SHARE], limits, known_starts + spares):
        out[SIMILAR] = met[MET_SIMILAR]
    if _is_enough(met[PATH_SHARE], limits, starts + spares):
        out[PATH] = met[MET_PATH]
    return met[MET_LINKED] > 0 or out[COMPANY] > 0 or out[SIMILAR] > 0 or out[PATH] > 0


@subkernel
def _may_be_chosen(met, limits, starts, known_starts):  # type: ignore[no-untyped-def]
    """Could `_choose` take it with so many starts, or more? Asks nothing of the candidate."""
    if met[MET_LINKED] > 0 or _is_enough(max(met[COMPANY_SHARE], met[PATH_SHARE]), limits, starts):
        return True
    return met[SIMILAR_SHARE] > 0 and _is_enough(met[SIMILAR_SHARE], limits, known_starts)


@subkernel
def _walk_question(graph, counts, limits, question, scratch, met):  # type: ignore[no-untyped-def]
    """Meet all candidates of a question; how many."""
    entity, relation = question
    joint, heap = scratch
    run = fill_joint(counts, relation, joint)
    linked = first_links(graph, counts, limits, question, joint, heap)
    clear_joint(counts, run, joint)
    count = 0
    for k in range(linked):
        at, count = place_of(met, count, np.int64(heap[1][k]))
        met[3][at, MET_LINKED] = 1.0
    only_spare = spare(graph.thin, graph.digest, limits, entity)
    by_path = has_paths(counts, relation)
    patched, begin, end = locate(graph.thin, entity)
    for k in range(begin, end):
        m = np.int64(entry(graph.thin, patched, k))
        count = walk_company(graph.thin, graph.thin_ahead, question, m, m == only_spare, met, count)
        if joins(graph.ahead, entity, relation, m):
            count = walk_similar(graph.thin, entity, m, m == only_spare, met, count)
        if by_path:
            count = walk_paths(graph, counts, question, m, m == only_spare, met, count)
    return count


@kernel
def _walk(graph, counts, limits, questions, slots, room):  # type: ignore[no-untyped-def]
    rows, values = np.empty(room, np.int64), np.empty((room, MET))
    met = slots, np.zeros(1, np.int64), rows, values
    meet_nobody(met)
    order = np.empty(room, np.int64)
    heap = np.empty(limits.links, np.uint64), np.empty(limits.links, np.int32)
    scratch = np.zeros(2 * counts.pairs.shape[0], np.int64), heap
    # `frequency` is the same for all who ask by a relation and do not have the candidate: the last ones are kept.
    asked, others = np.full(KEPT, -1, np.int64), np.empty(KEPT, np.int64)
    indptr = np.zeros(questions[0].shape[0] + 1, np.int64)
    found, weights, total = np.empty(1024, np.int32), np.empty((1024, COLUMNS), np.float32), 0
    for q in range(questions[0].shape[0]):
        entity, relation = question = np.int64(questions[0][q]), np.int64(questions[1][q])
        count = _walk_question(graph, counts, limits, question, scratch, met)
        only_spare = spare(graph.thin, graph.digest, limits, entity)
        known = _known_starts(graph.thin, graph.ahead, question, only_spare)
        spare_known = 1 if only_spare >= 0 and joins(graph.ahead, entity, relation, only_spare) else 0
        # Where the sample is everything, a neighbour has one start less than others: itself is left out.
        size, left = _starts(graph.neighbours, limits, entity, entity), 0
        for k in range(count):
            if _may_be_chosen(values[k], limits, size - 1, known):
                order[left] = (rows[k] << 32) | k
                left += 1
        meet_nobody(met)
        order[:left].sort()
        found, weights = with_room(found, total + left), with_room(weights, total + left)
        # Candidates ascend, and so do the lists that they are looked up in. In this loop a call that is handed the
        # whole graph would cost more than all the rest.
        start_patched, start, last_start = locate(graph.thin, entity)
        patched, answer, last_answer = locate(graph.ahead, entity)
        pairs = counts.pairs[relation]
        for k in range(left):
            row, at = order[k] >> 32, order[k] & 0xFFFFFFFF
            code = (row << 32) | relation
            answer = advance(graph.ahead, patched, answer, last_answer, code)
            if answer < last_answer and entry(graph.ahead, patched, answer) == code:
                continue
            # A candidate in the sample itself is left out of it, and the spare steps in.
            start = advance(graph.thin, start_patched, start, last_start, row)
            is_start = start < last_start and entry(graph.thin, start_patched, start) == row
            starts = size - (1 if is_start and only_spare < 0 else 0)
            known_starts = known + (spare_known if is_start else 0)
            line = weights[total]
            if not _choose(values[at], limits, starts, known_starts, line):
                continue
            slot = row & (KEPT - 1)
            if asked[slot] != code:
                asked[slot] = code
                others[slot] = frequency(graph, counts.hubs, question, row)
            if values[at, MET_LINKED] > 0:
                line[LINK] = link_strength(graph, counts, question, row, 0)
            line[SHARE] = others[slot] / pairs if pairs > 0 else 0.0
            found[total] = row
            total += 1
        indptr[q + 1] = total
    return indptr, found[:total].copy(), weights[:total].copy()


@subkernel
def _is_linked(graph, counts, limits, question, joint, candidate, known):  # type: ignore[no-untyped-def]
    """Does a link bring the candidate, to a walk that knows nothing of the triple?"""
    run = fill_joint(counts, question[1], joint)
    if known:
        leave_out(graph, question, candidate, joint)
    linked = is_first_link(graph, counts, limits, question, joint, candidate, known)
    clear_joint(counts, run, joint)
    return linked


@subkernel
def _meet(graph, counts, limits, question, joint, candidate, known, left_out, met):  # type: ignore[no-untyped-def]
    """Fill `met` as a walk that knows nothing of the triple would, for one candidate."""
    entity, relation = question
    met[:] = 0.0
    if _is_linked(graph, counts, limits, question, joint, candidate, known):
        met[MET_LINKED] = 1.0
    by_path = has_paths(counts, relation)
    patched, begin, end = locate(graph.thin, entity)
    for k in range(begin, end):
        m = np.int64(entry(graph.thin, patched, k))
        if m == left_out:
            continue
        meet_company(graph.thin, (graph.thin_ahead, graph.behind), question, m, candidate, met)
        if joins(graph.ahead, entity, relation, m):
            meet_similar(graph.thin, entity, m, candidate, met)
        # To hand the whole graph on takes longer than to see that no path leads over m.
        if by_path and linked(graph.ahead, entity, m) and linked(graph.thin_ahead, m, candidate):
            meet_paths(graph, counts, question, m, candidate, known, met)


@kernel
def _weigh_pairs(graph, counts, limits, questions, candidates, out):  # type: ignore[no-untyped-def]
    met, joint = np.empty(MET), np.zeros(2 * counts.pairs.shape[0], np.int64)
    for i in range(candidates.shape[0]):
        question = np.int64(questions[0][i]), np.int64(questions[1][i])
        candidate = np.int64(candidates[i])
        out[i] = 0.0
        if candidate == question[0]:
            continue
        known = 1 if joins(graph.ahead, question[0], question[1], candidate) else 0
        left_out = skipped(graph.thin, graph.digest, limits, question[0], candidate)
        _meet(graph, counts, limits, question, joint, candidate, known, left_out, met)
        starts = _starts(graph.neighbours, limits, question[0], candidate)
        known_starts = _known_starts(graph.thin, graph.ahead, question, left_out)
        if _choose(met, limits, starts, known_starts, out[i]):
            pairs = counts.pairs[question[1]] - known
            if met[MET_LINKED] > 0:
                out[i, LINK] = link_strength(graph, counts, question, candidate, known)
            out[i, SHARE] = frequency(graph, counts.hubs, question, candidate) / pairs if pairs > 0 else 0.0


@subkernel
def _joining(ahead, behind, entity, candidate):  # type: ignore[no-untyped-def]
    """How many triples join the two."""
    _, first, last = entries_to(ahead, entity, candidate)
    _, begin, end = entries_to(behind, entity, candidate)
    return last - first + end - begin


@kernel
def _link_pairs(graph, counts, limits, questions, candidates, out):  # type: ignore[no-untyped-def]
    joint = np.zeros(2 * counts.pairs.shape[0], np.int64)
    for i in range(candidates.shape[0]):
        question = np.int64(questions[0][i]), np.int64(questions[1][i])
        candidate = np.int64(candidates[i])
        out[i] = 0.0
        if candidate == question[0]:
            continue
        known = 1 if joins(graph.ahead, question[0], question[1], candidate) else 0
        # In many graphs hardly any pair is joined by another relation, and all else takes ten times as long to tell.
        if _joining(graph.ahead, graph.behind, question[0], candidate) == known:
            continue
        if _is_linked(graph, counts, limits, question, joint, candidate, known):
            out[i] = link_strength(graph, counts, question, candidate, known)


class WalkInputs(NamedTuple):
    """What walks read: the graph as one side sees it, the counts, and the limits."""

    graph: EvidenceGraph
    counts: EvidenceCounts
    limits: EvidenceLimits


def walk(inputs: WalkInputs, entity: Array, relation: Array) -> Found:
    """The candidates of questions, known answers left out."""
    entities, width = inputs.graph.digest.shape[0], inputs.limits.neighbours + 1
    room = min(entities, 2 * width**3 + width**2 + inputs.limits.links)
    questions = as_readonly(entity, ROW), as_readonly(relation, ROW)
    return Found(*_walk(*inputs, questions, slots_for(room), room))


def weigh_pairs(inputs: WalkInputs, entity: Array, relation: Array, candidates: Array) -> Array:
    """What speaks for candidate i of question i, by column, as a walk would find it were the triple not in train."""
    out = np.empty((candidates.shape[0], COLUMNS), np.float32)
    questions = as_readonly(entity, ROW), as_readonly(relation, ROW)
    _weigh_pairs(*inputs, questions, as_readonly(candidates, ROW), out)
    return out


def link_pairs(inputs: WalkInputs, entity: Array, relation: Array, candidates: Array) -> Array:
    """The column LINK of `weigh_pairs` alone, without a walk."""
    out = np.empty(candidates.shape[0], np.float32)
    questions = as_readonly(entity, ROW), as_readonly(relation, ROW)
    _link_pairs(*inputs, questions, as_readonly(candidates, ROW), out)
    return out
