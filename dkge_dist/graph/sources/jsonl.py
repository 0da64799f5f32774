"""JSON lines: an object or an array of three a line. Columns are keys; labels are strings, or integers as decimals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dkge_dist.graph.sources.base import Rejects, SplitFilesSource, TripleBatch
from dkge_dist.graph.sources.columns import Columns
from dkge_dist.graph.sources.files import read_line_chunks
from dkge_dist.graph.sources.rows import RowError, RowReader, batch_of
from dkge_dist.types import Split


class JsonLinesSource(SplitFilesSource):
    """Every line is read by itself, so that a bad one is named; other keys are ignored."""

    format = "jsonl"

    def __init__(self, path: Path, files: dict[Split, Path] | None = None, columns: Columns | None = None) -> None:
        super().__init__(path, files)
        self.columns = columns

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for split, path in self.files.items():
            reader = RowReader(self.columns)
            for chunk in read_line_chunks(path, self, rejects):
                rows = []
                lines = chunk.data.tobytes().decode("utf-8").split("\n")
                for number, line in enumerate(lines[:-1], chunk.first_line):
                    if not line or line.isspace():
                        self.counts["empty lines skipped"] += number not in chunk.emptied
                        continue
                    try:
                        rows.append(reader.read(_value(line)))
                    except RowError as error:
                        rejects.add(path, number, str(error), line.rstrip("\r"))
                batch = batch_of(rows)
                yield TripleBatch(batch.head, batch.relation, batch.tail, split)


def _value(line: str) -> Any:
    try:
        return _DECODER.decode(line)
    except json.JSONDecodeError as error:
        raise RowError(f"column {error.colno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise RowError(f"not JSON that can be read: {str(error).partition(';')[0]}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one that has a key twice would silently lose a value."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RowError("an object has a key twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object)
