"""Plain triples: `head<TAB>relation<TAB>tail` lines, in one file or in a folder with train, valid and test files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dkge_dist.graph.sources.base import Rejects, Source, TripleBatch
from dkge_dist.graph.sources.delimited import read_table, usable
from dkge_dist.types import Split


class TsvSource(Source):
    """Labels are the bytes between the tabs: no quoting, no escapes, so every label round-trips exactly."""

    format = "tsv"

    def __init__(self, path: Path, files: dict[Split, Path] | None = None) -> None:
        super().__init__(path)
        self.files = files or {Split.TRAIN: path}
        self.brings_splits = files is not None and len(files) > 1
        self.bytes_total = sum(file.stat().st_size for file in self.files.values() if file.exists())

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        """Read the files one after the other."""
        for split, path in self.files.items():
            for table in read_table(path, 3, self, rejects):
                head, relation, tail = usable(table, path, rejects).columns
                yield TripleBatch(head, relation, tail, split)
