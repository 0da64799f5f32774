"""The steps of walks for evidence, from a question to all candidates and, step for step the same, to a given one.

Company: q – m – y → c. Similar: q → y – m – c. Paths: q → m → c. q is the question's entity, → the asked relation (in
paths any one), – any relation in any direction. The first step goes to the neighbours of q besides c, up to the limit.
Everything is added up in the order of the lists, so that both ways give the same bits.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.csr import entries_to, entry, hashed, joins, locate
from dkge_dist.kernels.evidence.lists import is_neighbour
from dkge_dist.kernels.evidence.paths import best_path
from dkge_dist.kernels.jit import subkernel
from dkge_dist.types import ROW, Array

NEIGHBOUR_PRIOR = 3.0
"""Added to numbers of neighbours: one of one says less than ten of ten."""

MET_LINKED, MET_COMPANY, COMPANY_SHARE, MET_SIMILAR, SIMILAR_SHARE, MET_PATH, PATH_SHARE = range(7)
"""Columns of what a walk meets: strengths, and shares of the walks, by which candidates are chosen."""

MET = 7
FIRST_SLOTS = 4096


@subkernel
def _slot(slots, used, rows, row):  # type: ignore[no-untyped-def]
    """The hash slot that holds a candidate, or the free one where it would be."""
    mask = np.uint64(used[0] - 1)
    at = hashed(row, mask)
    while slots[at] > 0 and rows[slots[at] - 1] != row:
        at = (at + np.uint64(1)) & mask
    return at


@subkernel
def place_of(met, count, row):  # type: ignore[no-untyped-def]
    """The place of a candidate among the `count` met so far, a new one for a new candidate; (place, count).

    `met` are slots of a hash table, places counted from 1, of which the first `used[0]` are in use; rows; and values.
    """
    slots, used, rows, values = met
    slot = _slot(slots, used, rows, row)
    if slots[slot] > 0:
        return np.int64(slots[slot] - 1), count
    if 2 * count >= used[0]:
        slots[: used[0]] = 0
        used[0] *= 2
        for k in range(count):
            slots[_slot(slots, used, rows, rows[k])] = k + 1
        slot = _slot(slots, used, rows, row)
    slots[slot] = count + 1
    rows[count] = row
    for column in range(MET):
        values[count, column] = 0.0
    return count, count + 1


@subkernel
def meet_nobody(met):  # type: ignore[no-untyped-def]
    """Forget all candidates. What a question costs follows whom it meets, and not the number of entities."""
    slots, used, _, _ = met
    slots[: used[0]] = 0
    used[0] = min(FIRST_SLOTS, slots.shape[0])


def slots_for(candidates: int) -> Array:
    """Slots for so many candidates at most, all free. The system gives memory only to those that are written to."""
    return np.zeros(1 << max(2 * candidates, 2).bit_length(), ROW)


@subkernel
def _size(thin, row, left_out):  # type: ignore[no-untyped-def]
    """How many neighbours a row has in its sample besides one."""
    _, begin, end = locate(thin, row)
    return end - begin - (1 if is_neighbour(thin, row, left_out) else 0)


@subkernel
def _vote(thin, y):  # type: ignore[no-untyped-def]
    """The weight of what y has: less if y is joined to many."""
    _, begin, end = locate(thin, y)
    return 1.0 / np.sqrt(end - begin + NEIGHBOUR_PRIOR)


@subkernel
def _answers(ahead, y, relation):  # type: ignore[no-untyped-def]
    """How many answers y has under the asked relation, itself left out."""
    patched, first, last = locate(ahead, y)
    answers = 0
    for i in range(first, last):
        code = entry(ahead, patched, i)
        if code & 0xFFFFFFFF == relation and code >> 32 != y:
            answers += 1
    return answers


@subkernel
def walk_company(thin, ahead, question, m, is_spare, met, count):  # type: ignore[no-untyped-def]
    """Meet what those who share m with the entity have under the asked relation.

    A spare first step counts only for candidates that stand in the sample themselves, and are left out of it.
    """
    entity, relation = question
    values = met[3]
    others = _size(thin, m, entity)
    patched, begin, end = locate(thin, m)
    for k in range(begin, end):
        y = np.int64(entry(thin, patched, k))
        answers = 0 if y == entity else _answers(ahead, y, relation)
        if answers == 0:
            continue
        vote, share = _vote(thin, y) / (others + NEIGHBOUR_PRIOR), 1.0 / (others * answers)
        y_patched, first, last = locate(ahead, y)
        for i in range(first, last):
            code = entry(ahead, y_patched, i)
            c = code >> 32
            if code & 0xFFFFFFFF != relation or c in (y, entity, m):
                continue
            if not is_spare or is_neighbour(thin, entity, c):
                at, count = place_of(met, count, c)
                values[at, MET_COMPANY] += vote
                values[at, COMPANY_SHARE] += share
    return count


@subkernel
def meet_company(thin, lists, question, m, candidate, met):  # type: ignore[no-untyped-def]
    """The same for one candidate; `lists` are (thinned ahead, behind)."""
    entity, relation = question
    ahead, behind = lists
    others = _size(thin, m, entity)
    patched, begin, end = locate(thin, m)
    for k in range(begin, end):
        y = np.int64(entry(thin, patched, k))
        # The candidate's list is asked first: it is read again and again, and soon cached.
        if y in (entity, candidate) or not joins(behind, candidate, relation, y):
            continue
        if joins(ahead, y, relation, candidate):
            met[MET_COMPANY] += _vote(thin, y) / (others + NEIGHBOUR_PRIOR)
            met[COMPANY_SHARE] += 1.0 / (others * _answers(ahead, y, relation))


@subkernel
def walk_similar(thin, entity, y, is_spare, met, count):  # type: ignore[no-untyped-def]
    """Meet what shares a neighbour with the known answer y."""
    values = met[3]
    others, vote = _size(thin, y, entity), _vote(thin, y)
    patched, begin, end = locate(thin, y)
    for k in range(begin, end):
        m = np.int64(entry(thin, patched, k))
        if m == entity:
            continue
        near = _size(thin, m, y)
        strength, share = vote / (near + NEIGHBOUR_PRIOR), 1.0 / (others * max(near, 1))
        m_patched, first, last = locate(thin, m)
        for i in range(first, last):
            c = np.int64(entry(thin, m_patched, i))
            if c != y and c != entity and (not is_spare or is_neighbour(thin, entity, c)):
                at, count = place_of(met, count, c)
                values[at, MET_SIMILAR] += strength
                values[at, SIMILAR_SHARE] += share
    return count


@subkernel
def meet_similar(thin, entity, y, candidate, met):  # type: ignore[no-untyped-def]
    """The same for one candidate."""
    others, vote = _size(thin, y, entity), _vote(thin, y)
    patched, begin, end = locate(thin, y)
    for k in range(begin, end):
        m = np.int64(entry(thin, patched, k))
        if m != entity and is_neighbour(thin, m, candidate):
            near = _size(thin, m, y)
            met[MET_SIMILAR] += vote / (near + NEIGHBOUR_PRIOR)
            met[SIMILAR_SHARE] += 1.0 / (others * max(near, 1))


@subkernel
def walk_paths(graph, counts, question, m, is_spare, met, count):  # type: ignore[no-untyped-def]
    """Meet what supporting paths over m lead to."""
    entity, _ = question
    values = met[3]
    _, one, one_end = entries_to(graph.ahead, entity, m)
    if one == one_end:
        return count
    others = _size(graph.thin, m, entity)
    patched, first, last = locate(graph.thin_ahead, m)
    before = np.int64(-1)
    for i in range(first, last):
        c = entry(graph.thin_ahead, patched, i) >> 32
        if c in (before, m, entity) or (is_spare and not is_neighbour(graph.thin, entity, c)):
            continue
        before = c
        conf = best_path(graph, counts, question, m, c, 0)
        if conf > 0:
            at, count = place_of(met, count, c)
            values[at, MET_PATH] = max(values[at, MET_PATH], conf)
            values[at, PATH_SHARE] += 1.0 / others
    return count


@subkernel
def meet_paths(graph, counts, question, m, candidate, known, met):  # type: ignore[no-untyped-def]
    """The same for one candidate, whose triple does not count if it is known."""
    entity, _ = question
    conf = best_path(graph, counts, question, m, candidate, known)
    if conf > 0:
        met[MET_PATH] = max(met[MET_PATH], conf)
        met[PATH_SHARE] += 1.0 / _size(graph.thin, m, entity)
