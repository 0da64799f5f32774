"""Ranks and answers where the rows are: queries go to the shards, counts or the best rows come back."""

from __future__ import annotations

import functools

import numpy as np

from dkge_dist.cluster.calls import results
from dkge_dist.cluster.table import RayTable
from dkge_dist.evaluation.answers import Answers, merged
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.types import OFFSET, ROW, Array, Field


class ShardedJoint:
    """o* of entities in shards and of relations here; `candidates` (ascending rows) may be an answer."""

    def __init__(self, table: RayTable, relations: Array, candidates: Array) -> None:
        self.table, self.relations = table, relations
        dealt = table.plan.partition(candidates)
        self._places = [dealt.places[dealt.of(shard)] for shard in range(table.plan.shards)]

    @property
    def rows(self) -> int:
        """How many entity rows there are."""
        return self.table.plan.rows

    def vectors(self, rows: Array) -> Array:
        """o* of some entities, in their order."""
        distinct, number = np.unique(rows, return_inverse=True)
        return self.table.pull({Field.JOINT: distinct.astype(ROW)})[Field.JOINT][number]

    def count_closer(self, query_QD: Array, bound_Q: Array, filtered: FilteredCandidates) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""
        left_out = self._apart(filtered)
        calls = [
            self.table.call(shard, "count_closer", query_QD, bound_Q, self._places[shard], left_out[shard])
            for shard in range(self.table.plan.shards)
        ]
        counts = results(calls)
        closer, equal = np.array(counts, OFFSET).sum(0)
        return closer, equal

    def _apart(self, filtered: FilteredCandidates) -> list[FilteredCandidates]:
        """The rows that each query leaves out, by shard and place; they stay ascending."""
        dealt = self.table.plan.partition(filtered.rows)
        out = []
        for shard in range(self.table.plan.shards):
            mine = dealt.of(shard)
            indptr = np.searchsorted(dealt.order[mine], filtered.indptr)
            out.append(FilteredCandidates(indptr.astype(OFFSET), dealt.places[mine]))
        return out

    def nearest(self, query_QD: Array, top: int) -> Answers:
        """The rows nearest to each query, best first; among equals the smaller one."""
        calls = []
        for shard in range(self.table.plan.shards):
            alive = np.zeros(self.table.plan.size(shard), np.bool_)
            alive[self._places[shard]] = True
            calls.append(self.table.call(shard, "nearest", query_QD, alive, top))
        found: list[Answers] = results(calls)
        return functools.reduce(lambda one, other: merged(one, other, top), found)
