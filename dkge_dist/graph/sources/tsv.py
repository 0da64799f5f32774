"""Plain triples: `head<TAB>relation<TAB>tail` lines, in one file or in a folder with train, valid and test files."""

from __future__ import annotations

from collections.abc import Iterator

from dkge_dist.graph.sources.base import Rejects, SplitFilesSource, TripleBatch
from dkge_dist.graph.sources.delimited import read_table, usable


class TsvSource(SplitFilesSource):
    """Labels are the bytes between the tabs: no quoting, no escapes, so every label round-trips exactly."""

    format = "tsv"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        """Read the files one after the other."""
        for split, path in self.files.items():
            for table in read_table(path, 3, self, rejects):
                head, relation, tail = usable(table, path, rejects).columns
                yield TripleBatch(head, relation, tail, split)
