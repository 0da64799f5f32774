"""Which shard holds a row, and at which local row. Pure: the same store serves any number of shards, or none.

Blocks of rows go to the shards round robin, so that new entities never move existing rows. Within a shard they lie one
after the other, so that local rows rise with rows: a sorted list stays sorted when it is partitioned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.rows import partition
from dkge_dist.tables.checkpoint import Span
from dkge_dist.types import ROW, Array


class Partitioned(NamedTuple):
    """Rows by shard: `order[begin[s]:begin[s + 1]]` are the positions of those of shard s, in their order.

    `local` gives the local row of each, in that same order.
    """

    order: Array
    local: Array
    begin: Array

    def of(self, shard: int) -> slice:
        """Where the rows of a shard are in `order` and `local`."""
        return slice(int(self.begin[shard]), int(self.begin[shard + 1]))

    def shards(self) -> list[int]:
        """The shards that hold any of the rows."""
        return [int(shard) for shard in np.flatnonzero(np.diff(self.begin))]


class ShardPlan(NamedTuple):
    """`rows` of a table in blocks of `block_rows` (a power of two), on `shards` shards."""

    rows: int
    block_rows: int
    shards: int

    def partition(self, rows: Array) -> Partitioned:
        """Rows by the shard that holds them."""
        return Partitioned(*partition(rows, self.block_rows, self.shards))

    def blocks(self, shard: int) -> Array:
        """The blocks of a shard, ascending."""
        return np.arange(shard, -(-self.rows // self.block_rows), self.shards)

    def block_size(self, block: int) -> int:
        """How many rows a block has: all but the last one are full."""
        return min(self.block_rows, self.rows - block * self.block_rows)

    def spans(self, shard: int) -> list[Span]:
        """The blocks of a shard as runs of rows."""
        return [
            Span(number * self.block_rows, int(block) * self.block_rows, self.block_size(int(block)))
            for number, block in enumerate(self.blocks(shard))
        ]

    def size(self, shard: int) -> int:
        """How many rows a shard holds."""
        return sum(span.size for span in self.spans(shard))

    def held(self, shard: int) -> Array:
        """The rows of a shard by local row."""
        runs = [np.arange(span.first, span.first + span.size, dtype=ROW) for span in self.spans(shard)]
        return np.concatenate(runs) if runs else np.empty(0, ROW)
