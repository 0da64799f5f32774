"""Triples that can be removed so that every entity and relation still has another triple."""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.types import OFFSET, Array


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
