"""Batches of triples: distinct rows numbered, negatives sampled, known triples masked. Costs follow the batch.

Distinct rows are numbered with two arrays over all rows (`mark`, `number`) that live as long as the trainer. A row is
new to a batch if its mark is not the batch's stamp, so nothing has to be cleared between batches.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.csr import Adjacency, entries_to, entry, joins, locate, lower_bound
from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.types import OFFSET, ROW, Array, Triples


@kernel
def _number(rows, mark, number, stamp, distinct, inverse):  # type: ignore[no-untyped-def]
    count = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        if mark[row] != stamp:
            mark[row] = stamp
            number[row] = count
            distinct[count] = row
            count += 1
        inverse[i] = number[row]
    return count


class RowNumbering:
    """Numbers the distinct rows of a batch from 0, in order of appearance."""

    def __init__(self, rows: int) -> None:
        self.mark = np.zeros(rows, np.int32)
        self.numbers = np.empty(rows, ROW)
        self.stamp = 0

    def number(self, rows: Array) -> tuple[Array, Array]:
        """(distinct rows, number of each row)."""
        self.stamp += 1
        if self.stamp == np.iinfo(np.int32).max:
            self.mark[:] = 0
            self.stamp = 1
        distinct = np.empty(rows.shape[0], ROW)
        inverse = np.empty(rows.shape[0], ROW)
        count = _number(as_readonly(rows, ROW), self.mark, self.numbers, self.stamp, distinct, inverse)
        return distinct[:count], inverse

    def holds(self, rows: Array) -> Array:
        """For each row: is it in the batch that was numbered last?"""
        marked: Array = self.mark[rows] == self.stamp
        return marked


@kernel
def _links(out, one, other, count):  # type: ignore[no-untyped-def]
    for i in range(one.shape[0]):
        count[i] = 0
        for a, b in ((one[i], other[i]), (other[i], one[i])):
            _, first, last = entries_to(out, a, b)
            count[i] += last - first
            if one[i] == other[i]:
                break


def links(out: Adjacency, one: Array, other: Array) -> Array:
    """Number of triples between each pair of entities, in either direction."""
    count = np.empty(one.shape[0], OFFSET)
    _links(out, as_readonly(one, ROW), as_readonly(other, ROW), count)
    return count


@kernel
def _corrupt(out, triples, candidates, head_chance, draws, side, replaced):  # type: ignore[no-untyped-def]
    """One negative a triple: `side` 0 replaces the head. Known triples are drawn again, finally on the other side."""
    heads, relations, tails = triples
    tries = draws.shape[1] - 1
    for i in range(heads.shape[0]):
        side[i] = 0 if draws[i, tries] < head_chance[relations[i]] else 1
        replaced[i] = heads[i] if side[i] == 0 else tails[i]
        for turn in range(2 * tries):
            if turn == tries:
                side[i] = 1 - side[i]
            at = candidates[min(np.int64(draws[i, turn % tries] * candidates.shape[0]), candidates.shape[0] - 1)]
            head, tail = (at, tails[i]) if side[i] == 0 else (heads[i], at)
            if not joins(out, head, relations[i], tail):
                replaced[i] = at
                break


def corrupt(
    out: Adjacency, triples: Triples, candidates: Array, head_chance: Array, draws: Array
) -> tuple[Array, Array]:
    """Bernoulli negatives: (side, entity) for each triple, side 0 for the head.

    `draws` are uniform in [0, 1): one a try, and a last one that chooses the side.
    """
    side, replaced = np.empty(triples.count, np.int8), np.empty(triples.count, ROW)
    columns = Triples(*(as_readonly(column, ROW) for column in triples))
    _corrupt(out, columns, as_readonly(candidates, ROW), as_readonly(head_chance), as_readonly(draws), side, replaced)
    return side, replaced


SEARCHED = 16
"""A list that is longer than so many times the candidates is searched for each of them, and not walked."""


@kernel
def _mask_known(adjacency, rows, relations, candidates, place, numbers, known):  # type: ignore[no-untyped-def]
    mark, number, stamp, column = numbers
    for i in range(rows.shape[0]):
        patched, at, end = locate(adjacency, rows[i])
        if end - at > SEARCHED * candidates.shape[0]:
            for c in range(candidates.shape[0]):
                code = (np.int64(candidates[c]) << 32) | np.int64(relations[i])
                at = lower_bound(adjacency, patched, at, end, code)
                known[i, place[c]] = at < end and entry(adjacency, patched, at) == code
            continue
        for k in range(at, end):
            code = entry(adjacency, patched, k)
            other = code >> 32
            if code & 0xFFFFFFFF == relations[i] and mark[other] == stamp and column[number[other]] >= 0:
                known[i, column[number[other]]] = True


def known_among(
    adjacency: Adjacency, rows: Array, relations: Array, distinct: Array, shared: Array, numbers: RowNumbering
) -> Array:
    """Mask of (row, relation) by distinct `shared` numbers: which make a known triple. Walks lists, not all pairs.

    A question that many triples of a batch ask, such as those of a hub, is answered once.
    """
    if not shared.shape[0]:
        return np.zeros((rows.shape[0], 0), np.bool_)
    asked, question = np.unique((rows.astype(OFFSET) << 32) | relations, return_inverse=True)
    known = np.zeros((asked.shape[0], shared.shape[0]), np.bool_)
    column = np.full(distinct.shape[0], -1, ROW)
    column[shared] = np.arange(shared.shape[0])
    place = np.argsort(distinct[shared])
    _mask_known(
        adjacency, as_readonly(asked >> 32, ROW), as_readonly(asked & 0xFFFFFFFF, ROW),
        as_readonly(distinct[shared][place], ROW), as_readonly(place),
        (numbers.mark, numbers.numbers, numbers.stamp, as_readonly(column)), known,
    )  # fmt: skip
    answers: Array = known[question]
    return answers


def bernoulli_head_chance(head: Array, relation: Array, tail: Array, relations: int) -> Array:
    """tph / (tph + hpt) of every relation: the probability to corrupt the head that makes false negatives rare."""
    triples = np.bincount(relation, minlength=relations).astype(np.float64)
    heads = _distinct_per_relation(head, relation, relations)
    tails = _distinct_per_relation(tail, relation, relations)
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = (triples / heads) / (triples / heads + triples / tails)
    return np.nan_to_num(chance, nan=0.5)


def _distinct_per_relation(ends: Array, relation: Array, relations: int) -> Array:
    # Sorted, not hashed as by `np.unique`: a hash table of millions of values fits no cache.
    pairs = np.sort((relation.astype(OFFSET) << 32) | ends)
    fresh = np.ones(pairs.shape[0], bool)
    fresh[1:] = pairs[1:] != pairs[:-1]
    return np.bincount(pairs[fresh] >> 32, minlength=relations).astype(np.float64)
