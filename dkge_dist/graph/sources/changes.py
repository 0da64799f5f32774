"""Change files: what to add to and to delete from the graph, as lines that open with `+` or `-`.

`+<TAB>head<TAB>relation<TAB>tail`, or with the sign right before the head. The last line about a triple holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, TripleBatch
from dkge_dist.graph.sources.delimited import read_table
from dkge_dist.types import Array

PLUS, MINUS = ord("+"), ord("-")


class ChangeSource(Source):
    """`glued`: the sign stands right before the head, without a tab."""

    format = "changes"

    def __init__(self, path: Path, glued: bool = False) -> None:
        super().__init__(path)
        self.glued = glued
        self.is_change = True
        self.bytes_total = path.stat().st_size if path.exists() else 0

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for table in read_table(self.path, 3 if self.glued else 4, self, rejects):
            sign = table.columns[0]
            filled = sign.stop > sign.start
            byte = np.where(filled, sign.data[np.where(filled, sign.start, 0)], 0)
            good = (byte == PLUS) | (byte == MINUS)
            if not self.glued:
                good &= sign.stop == sign.start + 1
            for i in np.flatnonzero(~good):
                rejects.add(self.path, int(table.lines[i]), "the line opens with neither + nor -", sign[i])
            head = Labels(sign.data, sign.start + 1, sign.stop) if self.glued else table.columns[1]
            columns = [head, *table.columns[-2:]]
            yield TripleBatch(*(column.take(good) for column in columns), deleted=_is(byte[good], MINUS))


def _is(values: Array, value: int) -> Array:
    return values == value
