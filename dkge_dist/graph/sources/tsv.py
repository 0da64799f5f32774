"""Plain triples: `head<TAB>relation<TAB>tail` lines, in one file or in a folder with train, valid and test files.

A header is recognised, and then further columns and another order are too; without one there are three columns, unless
the user says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dkge_dist.graph.sources.base import Rejects, SplitFilesSource, TripleBatch
from dkge_dist.graph.sources.columns import Columns, layout_of
from dkge_dist.graph.sources.delimited import Table, read_table, usable
from dkge_dist.graph.sources.files import first_line
from dkge_dist.types import Split


class TsvSource(SplitFilesSource):
    """Labels are the bytes between the tabs: no quoting, no escapes, so every label round-trips exactly."""

    format = "tsv"

    def __init__(self, path: Path, files: dict[Split, Path] | None = None, columns: Columns | None = None) -> None:
        super().__init__(path, files)
        self.columns = columns

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        """Read the files one after the other."""
        for split, path in self.files.items():
            line, number = first_line(path)
            layout = layout_of(line.split("\t") if line is not None else None, self.columns, f"{path}:{number}")
            for table in read_table(path, layout.width, self, rejects):
                if layout.header and table.lines.shape[0] and table.lines[0] == number:
                    table = table.take(slice(1, None))
                    self.counts[layout.notice] += 1
                if layout.width != 3 or layout.places != (0, 1, 2):
                    # The first column stays in front: it tells where a line begins.
                    table = Table([table.columns[0], *(table.columns[c] for c in layout.places)], table.lines)
                head, relation, tail = usable(table, path, rejects).columns[-3:]
                yield TripleBatch(head, relation, tail, split)
