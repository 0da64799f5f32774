"""Which shard holds a row, and where in it. Pure: the same store serves any number of shards, or none.

Blocks of rows are dealt to the shards in turn. Within a shard they lie one after the other, so that places rise with
rows: a sorted list stays sorted when it is taken apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.partition import partition
from dkge_dist.types import ROW, Array


class Partitioned(NamedTuple):
    """Rows taken apart by shard: `order[begin[s]:begin[s + 1]]` are the numbers of those of shard s, in their order.

    `places` says where each of them lies in its shard, in that same order.
    """

    order: Array
    places: Array
    begin: Array

    def of(self, shard: int) -> slice:
        """Where the rows of a shard are in `order` and `places`."""
        return slice(int(self.begin[shard]), int(self.begin[shard + 1]))

    def shards(self) -> list[int]:
        """The shards that hold any of the rows."""
        return [int(shard) for shard in np.flatnonzero(np.diff(self.begin))]


class ShardPlan(NamedTuple):
    """`rows` of a table in blocks of `block_rows` (a power of two), dealt to `shards`."""

    rows: int
    block_rows: int
    shards: int

    def partition(self, rows: Array) -> Partitioned:
        """Take rows apart by the shard that holds them."""
        return Partitioned(*partition(rows, self.block_rows, self.shards))

    def blocks(self, shard: int) -> Array:
        """The blocks of a shard, ascending."""
        return np.arange(shard, -(-self.rows // self.block_rows), self.shards)

    def size(self, shard: int) -> int:
        """How many rows a shard holds."""
        return sum(self.block_size(int(block)) for block in self.blocks(shard))

    def block_size(self, block: int) -> int:
        """How many rows a block has: all but the last one are full."""
        return min(self.block_rows, self.rows - block * self.block_rows)

    def held(self, shard: int) -> Array:
        """The rows of a shard by place."""
        spans = [np.arange(self.block_size(int(b)), dtype=ROW) + ROW(b * self.block_rows) for b in self.blocks(shard)]
        return np.concatenate(spans) if spans else np.empty(0, ROW)
