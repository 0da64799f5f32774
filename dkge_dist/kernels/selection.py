"""Triples of given entities, sampled where they are many, at a cost that follows the sample."""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.csr import Adjacency, entry, locate
from dkge_dist.kernels.hashing import combine
from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.types import OFFSET, ROW, Array, Triples


@kernel
def _count(outgoing, incoming, rows, limit, indptr):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        total = np.int64(0)
        for side in range(2):
            adjacency = outgoing if side == 0 else incoming
            _, begin, end = locate(adjacency, rows[i])
            total += end - begin
        indptr[i + 1] = indptr[i] + min(total, limit)


@kernel
def _fill(outgoing, incoming, rows, seed, indptr, head, relation, tail):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out_patched, out_begin, out_end = locate(outgoing, rows[i])
        in_patched, in_begin, in_end = locate(incoming, rows[i])
        total = (out_end - out_begin) + (in_end - in_begin)
        wanted = indptr[i + 1] - indptr[i]
        # A random start and an even stride: every triple has the same probability, none is taken twice.
        first = np.int64(combine(seed, np.uint64(rows[i])) % np.uint64(max(total, 1)))
        for k in range(wanted):
            position = (first + (k * total) // wanted) % total
            at = indptr[i] + k
            if position < out_end - out_begin:
                code = entry(outgoing, out_patched, out_begin + position)
                head[at], tail[at] = rows[i], code >> 32
            else:
                code = entry(incoming, in_patched, in_begin + position - (out_end - out_begin))
                head[at], tail[at] = code >> 32, rows[i]
            relation[at] = code & 0xFFFFFFFF


def triples_of(outgoing: Adjacency, incoming: Adjacency, rows: Array, limit: int, seed: int) -> Triples:
    """The triples of each of `rows`, at most `limit` each. A triple of two of them may be in the result twice."""
    indptr = np.zeros(rows.shape[0] + 1, OFFSET)
    rows = as_readonly(rows, ROW)
    _count(outgoing, incoming, rows, limit, indptr)
    columns = Triples(*(np.empty(indptr[-1], ROW) for _ in range(3)))
    _fill(outgoing, incoming, rows, np.uint64(seed), as_readonly(indptr), *columns)
    return columns
