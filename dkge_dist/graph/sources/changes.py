"""Change files: triples to add and to delete, as lines that begin with `+` or `-`.

`+<TAB>head<TAB>relation<TAB>tail`, or with the sign right before the head. The last line about a triple counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, TripleBatch
from dkge_dist.graph.sources.delimited import Table, read_table, usable
from dkge_dist.types import Array

PLUS, MINUS = ord("+"), ord("-")


class ChangeSource(Source):
    """`glued`: the sign is right before the head, without a tab."""

    format = "changes"

    def __init__(self, path: Path, glued: bool = False) -> None:
        super().__init__(path)
        self.glued = glued
        self.is_change = True
        self.bytes_total = path.stat().st_size if path.exists() else 0

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        """Read the file in order."""
        for table in read_table(self.path, 3 if self.glued else 4, self, rejects):
            signed = _unglued(table) if self.glued else table
            sign = _single_bytes(signed.columns[0])
            unsigned = (sign != PLUS) & (sign != MINUS)
            signed = usable(signed, self.path, rejects, {"the line opens with neither + nor -": unsigned})
            mark, head, relation, tail = signed.columns
            yield TripleBatch(head, relation, tail, deleted=_single_bytes(mark) == MINUS)


def _unglued(table: Table) -> Table:
    """The table with the first byte of its first column as a column of its own."""
    first, *others = table.columns
    cut = np.minimum(first.start + 1, first.stop)
    columns = [Labels(first.data, first.start, cut), Labels(first.data, cut, first.stop), *others]
    return Table(columns, table.lines)


def _single_bytes(labels: Labels) -> Array:
    """The byte of each label that is one byte long, 0 for all others."""
    single = labels.stop == labels.start + 1
    return np.where(single, labels.data[np.where(single, labels.start, 0)], np.uint8(0))
