"""Sorted triples as sets: canonical order, membership, difference, and changes.

Canonical triples are distinct and sorted by (head, tail, relation). That order makes the heads' neighbour lists
contiguous and sorted, so that canonical triples are also the outgoing adjacency.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.buffers import sort_range
from dkge_dist.kernels.jit import as_readonly, kernel, parallel_kernel, prange, subkernel
from dkge_dist.kernels.sets import distinct, runs
from dkge_dist.types import OFFSET, ROW, Array, Triples


@kernel
def _group(rows, codes, offset, out):  # type: ignore[no-untyped-def]
    """Stable counting sort of `codes` by `rows`; `offset` (rows + 2, zeroed) ends as the start of every group."""
    for i in range(rows.shape[0]):
        offset[rows[i] + 2] += 1
    for row in range(1, offset.shape[0]):
        offset[row] += offset[row - 1]
    for i in range(rows.shape[0]):
        at = offset[rows[i] + 1]
        out[at] = codes[i]
        offset[rows[i] + 1] = at + 1


def group(rows: Array, codes: Array, row_count: int) -> tuple[Array, Array]:
    """`codes` grouped by row, in their given order: (indptr of row_count + 1, grouped codes)."""
    offset = np.zeros(row_count + 2, OFFSET)
    out = np.empty(codes.shape[0], codes.dtype)
    _group(as_readonly(rows), as_readonly(codes), offset, out)
    return offset[:-1], out


@parallel_kernel
def _sort_groups(indptr, codes, distinct):  # type: ignore[no-untyped-def]
    """Sort every group and move its distinct codes to its front; `distinct` gets their number."""
    for row in prange(indptr.shape[0] - 1):
        begin, end = indptr[row], indptr[row + 1]
        sort_range(codes, begin, end)
        kept = begin
        for i in range(begin, end):
            if i == begin or codes[i] != codes[i - 1]:
                codes[kept] = codes[i]
                kept += 1
        distinct[row] = kept - begin


@kernel
def _unpack_groups(indptr, codes, target, out):  # type: ignore[no-untyped-def]
    head, relation, tail = out.head, out.relation, out.tail
    for row in range(indptr.shape[0] - 1):
        begin = target[row]
        for k in range(target[row + 1] - begin):
            code = codes[indptr[row] + k]
            head[begin + k] = row
            tail[begin + k] = code >> 32
            relation[begin + k] = code & 0xFFFFFFFF


def _readonly(triples: Triples) -> Triples:
    return Triples(*(as_readonly(column, ROW) for column in triples))


def pack(first: Array, second: Array) -> Array:
    """Two non-negative 32-bit columns as one sortable 64-bit code."""
    return (first.astype(np.int64) << 32) | second.astype(np.int64)


def distinct_rows(values: Array) -> Array:
    """The distinct rows of `values`, ascending; by counting where they are many, by sorting where they are few."""
    if values.shape[0] > 1 << 20:
        return np.flatnonzero(np.bincount(values)).astype(ROW)
    return distinct(values)


def canonical(triples: Triples) -> Triples:
    """Sorted and distinct: by comparison for few triples of a large graph, by counting sort for many."""
    if triples.count == 0:
        return Triples.empty()
    row_count = int(triples.head.max()) + 1
    if triples.count < row_count // 8:
        return _canonical_by_comparison(triples)
    indptr, codes = group(triples.head, pack(triples.tail, triples.relation), row_count)
    distinct = np.empty(row_count, OFFSET)
    _sort_groups(indptr, codes, distinct)
    target = np.zeros(row_count + 1, OFFSET)
    np.cumsum(distinct, out=target[1:])
    out = Triples(*(np.empty(target[-1], ROW) for _ in range(3)))
    _unpack_groups(as_readonly(indptr), as_readonly(codes), as_readonly(target), out)
    return out


def _canonical_by_comparison(triples: Triples) -> Triples:
    order = np.lexsort((triples.relation, triples.tail, triples.head))
    ordered = Triples(*(column[order].astype(ROW, copy=False) for column in triples))
    fresh = np.ones(ordered.count, bool)
    fresh[1:] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
    return ordered.take(fresh)


@subkernel
def compare(one, i, other, j):  # type: ignore[no-untyped-def]
    """Sign of triple i of `one` against triple j of `other` in canonical order."""
    if one.head[i] != other.head[j]:
        return -1 if one.head[i] < other.head[j] else 1
    if one.tail[i] != other.tail[j]:
        return -1 if one.tail[i] < other.tail[j] else 1
    if one.relation[i] != other.relation[j]:
        return -1 if one.relation[i] < other.relation[j] else 1
    return 0


@parallel_kernel
def _positions(triples, queries, out):  # type: ignore[no-untyped-def]
    for q in prange(out.shape[0]):
        low, high = 0, triples.head.shape[0]
        found = -1
        while low < high:
            middle = (low + high) >> 1
            sign = compare(queries, q, triples, middle)
            if sign == 0:
                found = middle
                break
            if sign < 0:
                high = middle
            else:
                low = middle + 1
        out[q] = found


def positions(triples: Triples, queries: Triples) -> Array:
    """Position of each query in canonical `triples`, or -1. Costs log(count) per query."""
    out = np.empty(queries.count, OFFSET)
    _positions(_readonly(triples), _readonly(queries), out)
    return out


@kernel
def _are_sound(triples, entities, relations):  # type: ignore[no-untyped-def]
    """No exit and no branches, so that the loops are vectorised; unsigned, one maximum finds negative rows too."""
    head, relation, tail = triples.head, triples.relation, triples.tail
    ends, between = np.uint32(0), np.uint32(0)
    for i in range(head.shape[0]):
        ends = max(ends, max(np.uint32(head[i]), np.uint32(tail[i])))
        between = max(between, np.uint32(relation[i]))
    misplaced = 0
    for i in range(1, head.shape[0]):
        same_head, same_tail = head[i] == head[i - 1], tail[i] == tail[i - 1]
        by_tail = (tail[i] < tail[i - 1]) | (same_tail & (relation[i] <= relation[i - 1]))
        misplaced += (head[i] < head[i - 1]) | (same_head & by_tail)
    return head.shape[0] == 0 or (ends < entities and between < relations and misplaced == 0)


@kernel
def _first_unsound(triples, entities, relations):  # type: ignore[no-untyped-def]
    head, relation, tail = triples.head, triples.relation, triples.tail
    for i in range(head.shape[0]):
        if not (0 <= head[i] < entities and 0 <= relation[i] < relations and 0 <= tail[i] < entities):
            return i
        if i and compare(triples, i - 1, triples, i) >= 0:
            return i
    return -1


def first_unsound(triples: Triples, entities: int, relations: int) -> int:
    """Where the first triple stands whose rows are not below these counts, or that is not after the one before.

    -1 for canonical triples.
    """
    given = _readonly(triples)
    return -1 if _are_sound(given, entities, relations) else int(_first_unsound(given, entities, relations))


def contains(triples: Triples, queries: Triples) -> Array:
    """For each query: is it in canonical `triples`?"""
    return positions(triples, queries) >= 0


def beginning(triples: Triples, rows: Array) -> Array:
    """Where the canonical `triples` stand whose head is among ascending `rows`. Costs log(count) per row."""
    # Of the type of the column: numpy would convert all of it to another one.
    wanted = rows.astype(ROW)
    first = np.searchsorted(triples.head, wanted)
    return runs(first, np.searchsorted(triples.head, wanted, side="right") - first)


def touching(triples: Triples, rows: Array, row_count: int) -> Triples:
    """The canonical `triples` with an end among ascending `rows`, which are below `row_count`. One pass over tails."""
    if not rows.shape[0]:
        return Triples.empty()
    is_wanted = np.zeros(row_count, np.bool_)
    is_wanted[rows] = True
    return triples.take(distinct(beginning(triples, rows), np.flatnonzero(is_wanted[triples.tail])))


@kernel
def _mark_differences(a, b, only_a, only_b):  # type: ignore[no-untyped-def]
    i, j = 0, 0
    while i < only_a.shape[0] and j < only_b.shape[0]:
        sign = compare(a, i, b, j)
        if sign == 0:
            only_a[i] = False
            only_b[j] = False
        if sign <= 0:
            i += 1
        if sign >= 0:
            j += 1


def differences(old: Triples, new: Triples) -> tuple[Triples, Triples]:
    """(deleted, added) between two canonical sets, in one pass over both."""
    only_old = np.ones(old.count, bool)
    only_new = np.ones(new.count, bool)
    _mark_differences(_readonly(old), _readonly(new), only_old, only_new)
    return old.take(only_old), new.take(only_new)


def minus(triples: Triples, others: Triples) -> Triples:
    """Canonical `triples` that are not in canonical `others`, at a cost that follows the first alone."""
    if others.count == 0:
        return triples
    return triples.take(~contains(others, triples))


def union(triples: Triples, others: Triples) -> Triples:
    """Canonical union of two small sets."""
    return canonical(Triples.concat([triples, others]))


@kernel
def _merge(a, b, out):  # type: ignore[no-untyped-def]
    i, j = 0, 0
    for k in range(out.head.shape[0]):
        if j == b.head.shape[0] or (i < a.head.shape[0] and compare(a, i, b, j) < 0):
            out.head[k], out.relation[k], out.tail[k] = a.head[i], a.relation[i], a.tail[i]
            i += 1
        else:
            out.head[k], out.relation[k], out.tail[k] = b.head[j], b.relation[j], b.tail[j]
            j += 1


def apply_change(triples: Triples, added: Triples, deleted: Triples) -> Triples:
    """Canonical `triples` without `deleted` and with `added` (both canonical; deleted are in, added are not)."""
    if deleted.count:
        keep = np.ones(triples.count, bool)
        keep[positions(triples, deleted)] = False
        triples = triples.take(keep)
    if not added.count:
        return triples
    out = Triples(*(np.empty(triples.count + added.count, ROW) for _ in range(3)))
    _merge(_readonly(triples), _readonly(added), out)
    return out


@kernel
def _removable_triples(head, relation, tail, entity_degree, relation_degree, out):  # type: ignore[no-untyped-def]
    taken = 0
    for i in range(head.shape[0]):
        if taken == out.shape[0]:
            break
        # A self loop counts twice in the degree of its entity.
        least = 2 if head[i] == tail[i] else 1
        if entity_degree[head[i]] > least and entity_degree[tail[i]] > least and relation_degree[relation[i]] > 1:
            entity_degree[head[i]] -= 1
            entity_degree[tail[i]] -= 1
            relation_degree[relation[i]] -= 1
            out[taken] = i
            taken += 1
    return taken


def removable_triples(
    head: Array, relation: Array, tail: Array, entity_degree: Array, relation_degree: Array, count: int
) -> Array:
    """Positions of the first `count` triples that can be removed in order, with every degree staying at least one."""
    out = np.empty(count, OFFSET)
    columns = [as_readonly(column, OFFSET) for column in (head, relation, tail)]
    degrees = [np.array(degree, OFFSET) for degree in (entity_degree, relation_degree)]
    taken = _removable_triples(columns[0], columns[1], columns[2], degrees[0], degrees[1], out)
    return out[:taken]
