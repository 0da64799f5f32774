"""Sets of triples as sorted int64 arrays. Pure, but for `collect`, which draws with the caller's generator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dkge_dist.types import ROW, Array, Triples

_RELATION_BITS = 4
_ENTITY_BITS = 28
_ENTITY_MASK = (1 << _ENTITY_BITS) - 1
_BATCH = 1 << 21  # draws at a time, so that memory follows the graph and not the number of draws
_MAX_ROUNDS = 200


def pack(head: Array, relation: Array | int, tail: Array) -> Array:
    """One int64 a triple, which sorts by (head, tail, relation)."""
    ends = head.astype(np.int64) << _ENTITY_BITS | tail.astype(np.int64)
    return np.asarray(ends << _RELATION_BITS | relation)


def unpack(keys: Array) -> Triples:
    """The triples of packed keys."""
    head = keys >> (_ENTITY_BITS + _RELATION_BITS)
    tail = keys >> _RELATION_BITS & _ENTITY_MASK
    relation = keys & ((1 << _RELATION_BITS) - 1)
    return Triples(head.astype(ROW), relation.astype(ROW), tail.astype(ROW))


def questions(keys: Array) -> Array:
    """The question (head, relation, ?) that each key answers: the key without its tail."""
    return np.asarray(keys & ~np.int64(_ENTITY_MASK << _RELATION_BITS))


def contains(keys: Array, wanted: Array) -> Array:
    """Which of `wanted` are among the sorted `keys`."""
    if keys.size == 0:
        return np.zeros(wanted.shape, np.bool_)
    where = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.asarray(keys[where] == wanted)


def distinct(keys: Array) -> Array:
    """`keys` sorted and distinct (`np.unique` builds a hash table for this, 50 times slower)."""
    ordered = np.sort(keys)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if ordered.size else ordered


def union(*parts: Array) -> Array:
    """The union of `parts`, sorted and distinct."""
    return distinct(np.concatenate(parts))


def count_before(groups: Array) -> Array:
    """For each element, the number of equal ones before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_first = np.ones(groups.size, np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    position = np.arange(groups.size)
    before = np.empty(groups.size, np.int64)
    before[order] = position - np.maximum.accumulate(np.where(is_first, position, 0))
    return before


def collect(rng: np.random.Generator, count: int, draw: Callable[[int], Array], taken: Array) -> Array:
    """Exactly `count` distinct keys from `draw`, none of them among the sorted `taken`; sorted.

    `draw(n)` makes about n keys, duplicates among them. A surplus is thinned at random, so that no key is favoured.
    """
    found = np.empty(0, np.int64)
    for _ in range(_MAX_ROUNDS):
        missing = count - found.size
        if missing <= 0:
            break
        fresh = distinct(draw(min(missing + missing // 4 + 16, _BATCH)))
        found = union(found, fresh[~contains(taken, fresh)])
    if found.size < count:
        raise ValueError(f"only {found.size} of {count} distinct triples could be drawn: the graph is too small")
    return np.sort(rng.choice(found, count, replace=False))
