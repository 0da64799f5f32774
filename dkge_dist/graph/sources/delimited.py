"""Tab-separated lines as columns of labels; the part that every reader of such files shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source
from dkge_dist.graph.sources.files import line_text, read_line_chunks
from dkge_dist.kernels.text import split_fields
from dkge_dist.types import OFFSET, Array

import numpy as np


class Table(NamedTuple):
    """Some lines of a delimited file: one `Labels` per column, and the line number of each row."""

    columns: list[Labels]
    lines: Array


def read_table(path: Path, columns: int, source: Source, rejects: Rejects, delimiter: str = "\t") -> Iterator[Table]:
    """The lines of `path` split into exactly `columns` fields; other lines go to `rejects`, empty ones are skipped.

    Nothing is quoted or escaped: a field is whatever stands between two delimiters. A file whose first line ends in
    CRLF has CRLF line ends throughout.
    """
    line_end = 1
    for chunk in read_line_chunks(path, source, rejects):
        if chunk.first_line == 1:
            line_end = 2 if line_text(chunk.data, 0).endswith("\r") else 1
        start, stop, found = split_fields(chunk.data, columns, delimiter, line_end)
        lines = np.arange(chunk.first_line, chunk.first_line + found.shape[0], dtype=OFFSET)
        good = found == columns
        if not good.all():
            # Bad lines have no usable positions; a line begins after the end of the one before it.
            begins = np.flatnonzero(chunk.data == 10)
            for i in np.flatnonzero(~good):
                text = line_text(chunk.data, 0 if i == 0 else int(begins[i - 1]) + 1)
                if text.rstrip("\r"):
                    rejects.add(path, int(lines[i]), f"{found[i]} columns instead of {columns}", text)
                else:
                    source.counts["empty lines skipped"] += 1
            start, stop, lines = start[good], stop[good], lines[good]
        yield Table([Labels(chunk.data, start[:, c], stop[:, c]) for c in range(columns)], lines)
