"""Display names: `label<TAB>name` lines in one file, plain or compressed. Labels are of entities and of relations.

An empty name takes away the one that a label had.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, TripleBatch
from dkge_dist.graph.sources.delimited import read_table, without


class LabelFileSource(Source):
    """Names are the bytes after the tab: no quoting, no escapes. The last line about a label counts."""

    format = "labels"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_change = self.is_names = True
        self.bytes_total = path.stat().st_size if path.exists() else 0

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for table in read_table(self.path, 2, self, rejects):
            label, name = table.columns
            label, name = without(table, self.path, rejects, {"empty label": label.start == label.stop}).columns
            yield TripleBatch.of_names(NameBatch(label, name))
