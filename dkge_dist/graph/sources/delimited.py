"""Delimited lines as columns of labels, for all readers of such files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source
from dkge_dist.graph.sources.files import LineChunk, line_text, read_line_chunks
from dkge_dist.kernels.text import NEWLINE, split_fields
from dkge_dist.types import OFFSET, Array

CARRIAGE_RETURN = 13
NO_PROBLEMS: Mapping[str, Array] = {}


class Table(NamedTuple):
    """Some lines of a delimited file: `Labels` by column, and the line number of each row."""

    columns: list[Labels]
    lines: Array

    def take(self, where: Array | slice) -> Table:
        """The rows at `where`."""
        return Table([column.take(where) for column in self.columns], self.lines[where])


def read_table(path: Path, columns: int, source: Source, rejects: Rejects, delimiter: str = "\t") -> Iterator[Table]:
    """The lines of `path` split into exactly `columns` fields; other lines go to `rejects`, empty ones are skipped.

    Nothing is quoted or escaped: a field is whatever is between two delimiters. Line ends are CRLF if the first usable
    line has one; otherwise a CR at the end of a line is part of its last field, and counted.
    """
    crlf: bool | None = None
    for chunk in read_line_chunks(path, source, rejects):
        start, stop, found = split_fields(chunk.data, columns, delimiter)
        lines = np.arange(chunk.first_line, chunk.first_line + found.shape[0], dtype=OFFSET)
        good = found == columns
        if not good.all():
            _reject_lines(chunk, lines[~good], f"instead of {columns}", found[~good], path, source, rejects)
            start, stop, lines = start[good], stop[good], lines[good]
        last = stop[:, -1]
        returned = (last > start[:, -1]) & (chunk.data[last - 1] == CARRIAGE_RETURN)
        if crlf is None and lines.shape[0]:
            crlf = bool(returned[0])
        if crlf:
            last -= returned
        elif returned.any():
            source.counts["last fields that end in a carriage return"] += int(returned.sum())
        yield Table([Labels(chunk.data, start[:, c], stop[:, c]) for c in range(columns)], lines)


def _reject_lines(
    chunk: LineChunk, lines: Array, wanted: str, found: Array, path: Path, source: Source, rejects: Rejects
) -> None:
    """Lines with a wrong number of columns: empty ones are counted, the others rejected."""
    # Their fields have no positions: find the beginnings of lines by the newlines.
    begins = np.append(0, np.flatnonzero(chunk.data == NEWLINE) + 1)
    for line, columns in zip(lines.tolist(), found.tolist(), strict=True):
        text = line_text(chunk.data, int(begins[line - chunk.first_line]))
        if text:
            rejects.add(path, line, f"{columns} columns {wanted}", text)
        elif line not in chunk.emptied:
            source.counts["empty lines skipped"] += 1


def usable(table: Table, path: Path, rejects: Rejects, problems: Mapping[str, Array] = NO_PROBLEMS) -> Table:
    """The rows with a label in each of the last three columns and none of `problems` (by reason, a flag a row).

    The others go to `rejects`. An empty label is an error: no entity or relation has it.
    """
    names = ("head", "relation", "tail")
    empty = {f"empty {name}": c.start == c.stop for name, c in zip(names, table.columns[-3:], strict=True)}
    return without(table, path, rejects, {**problems, **empty})


def without(table: Table, path: Path, rejects: Rejects, problems: Mapping[str, Array]) -> Table:
    """The rows with none of `problems` (by reason, a flag a row); the others go to `rejects`."""
    bad = np.any(list(problems.values()), axis=0)
    if not bad.any():
        return table
    for i in np.flatnonzero(bad).tolist():
        reason = next(reason for reason, where in problems.items() if where[i])
        first = table.columns[0]
        rejects.add(path, int(table.lines[i]), reason, line_text(first.data, int(first.start[i])))
    return table.take(~bad)
