"""Two-step relation paths as evidence: how often a pair that a path joins is joined by the asked relation.

The counts are those that relation contexts keep: `support` pairs have both the path and the relation, and `total` adds
this up over all relations. They are sorted by code: (relation, first step, second step), from head to tail.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.csr import entries_to, entry
from dkge_dist.kernels.jit import subkernel
from dkge_dist.types import Array

PATH_PRIOR = 20.0
"""Added to the total: few pairs say little."""

_BITS = 21


def path_codes(relation: Array, first: Array, second: Array) -> Array:
    """One sortable code of (relation, first step, second step)."""
    return (relation.astype(np.int64) << 2 * _BITS) | (first.astype(np.int64) << _BITS) | second.astype(np.int64)


def split_path_codes(codes: Array) -> tuple[Array, Array, Array]:
    """(relation, first step, second step) of some codes."""
    mask = (1 << _BITS) - 1
    return codes >> 2 * _BITS, (codes >> _BITS) & mask, codes & mask


@subkernel
def has_paths(counts, relation):  # type: ignore[no-untyped-def]
    """Does any path support the relation?"""
    at = np.searchsorted(counts.path_codes, np.int64(relation) << (2 * _BITS))
    return at < counts.path_codes.shape[0] and counts.path_codes[at] >> (2 * _BITS) == relation


@subkernel
def _confidence(counts, code, direct, known):  # type: ignore[no-untyped-def]
    """Of one path, without one pair that `direct` relations join, the asked one among them if it is known."""
    at = np.searchsorted(counts.path_codes, code)
    if at == counts.path_codes.shape[0] or counts.path_codes[at] != code:
        return 0.0
    support = counts.path_support[at] - known
    if support <= 0:
        return 0.0
    return support / (counts.path_total[at] - direct + PATH_PRIOR)


@subkernel
def best_path(graph, counts, question, m, candidate, known):  # type: ignore[no-untyped-def]
    """The best confidence over the paths from the question's entity over m to the candidate."""
    entity, relation = question
    near_patched, near, near_end = entries_to(graph.ahead, entity, m)
    far_patched, far, far_end = entries_to(graph.thin_ahead, m, candidate)
    if near == near_end or far == far_end:
        return 0.0
    _, direct, direct_end = entries_to(graph.ahead, entity, candidate)
    best = 0.0
    for i in range(near, near_end):
        one = entry(graph.ahead, near_patched, i) & 0xFFFFFFFF
        for j in range(far, far_end):
            other = entry(graph.thin_ahead, far_patched, j) & 0xFFFFFFFF
            first, second = (one, other) if graph.side == 0 else (other, one)
            code = (np.int64(relation) << (2 * _BITS)) | (first << _BITS) | second
            best = max(best, _confidence(counts, code, direct_end - direct, known))
    return best
