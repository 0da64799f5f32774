"""Lines of delimited fields: TSV, CSV, change files and files of display names; plain or compressed.

TSV has no quoting and no escapes: a label is whatever bytes are between two tabs. CSV has the quoting of RFC 4180: a
label is what is between the quotes, to the byte. Nothing is trimmed, and no word (`NA`, `null`) stands for a missing
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.columns import ROLES, first_record, layout_of
from dkge_dist.graph.sources.files import (
    MAX_LINE_BYTES,
    first_rows,
    line_text,
    read_line_chunks,
    read_lines,
    utf8_problem,
)
from dkge_dist.kernels.text import BLANK_BEFORE_QUOTE, CARRIAGE_RETURN, TEXT_AFTER_QUOTE, split_fields, split_quoted
from dkge_dist.types import OFFSET, Array

PLUS, MINUS = ord("+"), ord("-")
FLAWS = {
    TEXT_AFTER_QUOTE: "text after the closing quote of a field",
    BLANK_BEFORE_QUOTE: "a blank before the opening quote of a field",
}


class Table(NamedTuple):
    """Some rows of a file: `Labels` by column, the line where each row begins, and its place in the bytes `text`."""

    columns: list[Labels]
    lines: Array
    text: Array
    begin: Array

    def take(self, where: Array | slice) -> Table:
        """The rows at `where`."""
        return Table([column.take(where) for column in self.columns], self.lines[where], self.text, self.begin[where])

    def without(self, bad: Mapping[str, Array], path: Path, rejects: Rejects) -> Table:
        """The rows with none of the problems `bad` (by reason, a flag a row); the others go to `rejects`."""
        wrong = np.any(list(bad.values()), axis=0)
        if not wrong.any():
            return self
        for i in np.flatnonzero(wrong).tolist():
            reason = next(reason for reason, where in bad.items() if where[i])
            rejects.add(path, int(self.lines[i]), reason, line_text(self.text, int(self.begin[i])))
        return self.take(~wrong)

    def labelled(self, path: Path, rejects: Rejects, bad: Mapping[str, Array] | None = None) -> Table:
        """The rows without problems whose last three columns, head, relation and tail, are labels: none is empty."""
        columns = zip(ROLES, self.columns[-3:], strict=True)
        empty = {f"empty {role}": column.start == column.stop for role, column in columns}
        return self.without({**(bad or {}), **empty}, path, rejects)


def _well_formed(
    table: Table, reasons: dict[int, str], path: Path, source: Source, rejects: Rejects, emptied: frozenset[int]
) -> Table:
    """The rows without `reasons` against them. Of the others empty lines are counted; the rest goes to `rejects`."""
    if not reasons:
        return table
    good = np.ones(len(table.lines), np.bool_)
    for i, reason in sorted(reasons.items()):
        good[i] = False
        line, text = int(table.lines[i]), line_text(table.text, int(table.begin[i]))
        if text:
            rejects.add(path, line, reason, text)
        elif line not in emptied:
            source.counts["empty lines skipped"] += 1
    return table.take(good)


def _wrong_width(found: Array, wanted: int) -> dict[int, str]:
    return {i: f"{found[i]} columns instead of {wanted}" for i in np.flatnonzero(found != wanted).tolist()}


def read_table(path: Path, columns: int, source: Source, rejects: Rejects, delimiter: str = "\t") -> Iterator[Table]:
    """The lines of `path` split into exactly `columns` fields; other lines go to `rejects`, empty ones are skipped.

    Nothing is quoted or escaped: a field is whatever is between two delimiters. Line ends are CRLF if the first usable
    line has one; otherwise a CR at the end of a line is part of its last field, and counted.
    """
    crlf: bool | None = None
    for chunk in read_line_chunks(path, source, rejects):
        start, stop, found = split_fields(chunk.data, columns, delimiter)
        lines = np.arange(chunk.first_line, chunk.first_line + found.shape[0], dtype=OFFSET)
        # The first field of a line begins with it, however many there are.
        fields = [Labels(chunk.data, start[:, c], stop[:, c]) for c in range(columns)]
        table = Table(fields, lines, chunk.data, start[:, 0])
        table = _well_formed(table, _wrong_width(found, columns), path, source, rejects, chunk.emptied)
        last = table.columns[-1]
        returned = (last.stop > last.start) & (chunk.data[last.stop - 1] == CARRIAGE_RETURN)
        if crlf is None and returned.shape[0]:
            crlf = bool(returned[0])
        if crlf:
            table.columns[-1] = Labels(last.data, last.start, last.stop - returned)
        elif returned.any():
            source.counts["last fields that end in a carriage return"] += int(returned.sum())
        yield table


def read_quoted(path: Path, columns: int, source: Source, rejects: Rejects, delimiter: str) -> Iterator[Table]:
    """The same for records with the quoting of RFC 4180, which may span lines."""
    rest, line, open_field = b"", 1, -1
    for whole, _ in read_lines(path, source):
        text = rest + whole
        fields = split_quoted(np.frombuffer(text, np.uint8), columns, delimiter)
        reasons = _wrong_width(fields.found, columns)
        reasons |= {i: FLAWS[int(fields.flaw[i])] for i in np.flatnonzero(fields.flaw).tolist()}
        if utf8_problem(text[: fields.begin[-1]]):
            for i, (begin, end) in enumerate(zip(fields.begin[:-1], fields.begin[1:], strict=True)):
                if problem := utf8_problem(text[begin:end]):
                    reasons[i] = f"{problem} of the record"
        labels = [Labels(fields.data, fields.start[:, c], fields.stop[:, c]) for c in range(columns)]
        table = Table(labels, fields.line[:-1] + line, np.frombuffer(text, np.uint8), fields.begin[:-1])
        yield _well_formed(table, reasons, path, source, rejects, frozenset())
        rest, line, open_field = text[fields.begin[-1] :], line + int(fields.line[-1]), fields.open_field
        if len(rest) > MAX_LINE_BYTES:
            break
    if rest:
        raise SourceError(
            f"{path}:{line}: a quote opens field {open_field + 1} and is not closed"
            " (if quotes are plain text here, write the file as TSV, which has no quoting)"
        )


class TsvSource(Source):
    """Triples in one file, or in a folder with train, valid and test files.

    A header is recognised, and with it further columns and another order. Without one there are three columns, unless
    the user says which.
    """

    format = "tsv"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for split, path in self.files.items():
            start, number = first_rows(path)
            first, read = self._dialect(start)
            layout = layout_of(first, self.options.columns, f"{path}:{number}")
            for table in read(path, layout.width, self, rejects):
                if layout.header and table.lines.shape[0] and table.lines[0] == number:
                    table = table.take(slice(1, None))
                    self.counts[layout.notice] += 1
                table = table._replace(columns=[table.columns[place] for place in layout.places])
                head, relation, tail = table.labelled(path, rejects).columns
                yield TripleBatch(head, relation, tail, split)

    def _dialect(self, start: bytes) -> tuple[list[str] | None, partial[Iterator[Table]]]:
        """The fields of the first row, and what reads all rows."""
        line = start.partition(b"\n")[0].removesuffix(b"\r").decode("utf-8", "replace")
        return line.split("\t") if start else None, partial(read_table)


class CsvSource(TsvSource):
    """The same with quotes; errors name the line where a record begins."""

    format = "csv"

    def _dialect(self, start: bytes) -> tuple[list[str] | None, partial[Iterator[Table]]]:
        delimiter, first = first_record(start)
        return first, partial(read_quoted, delimiter=delimiter)


class ChangeSource(Source):
    """Triples to add (`+<TAB>head<TAB>relation<TAB>tail`) and to delete (`-`). The last line about a triple counts.

    `glued`: the sign is right before the head, without a tab, as the first line shows.
    """

    format = "changes"
    is_change = True

    @property
    def glued(self) -> bool:
        """Does the first line have three fields, the first of them longer than a sign?"""
        first = first_rows(self.path)[0].partition(b"\n")[0]
        return first.count(b"\t") == 2 and first[1:2] != b"\t"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        glued = self.glued
        for table in read_table(self.path, 3 if glued else 4, self, rejects):
            if glued:
                first, *others = table.columns
                cut = np.minimum(first.start + 1, first.stop)
                sign, head = Labels(first.data, first.start, cut), Labels(first.data, cut, first.stop)
                table = table._replace(columns=[sign, head, *others])
            sign_byte = _single_bytes(table.columns[0])
            unsigned = (sign_byte != PLUS) & (sign_byte != MINUS)
            table = table.labelled(self.path, rejects, {"the line opens with neither + nor -": unsigned})
            sign, head, relation, tail = table.columns
            yield TripleBatch(head, relation, tail, deleted=_single_bytes(sign) == MINUS)


def _single_bytes(labels: Labels) -> Array:
    """The byte of each label that is one byte long, 0 for all others."""
    single = labels.stop == labels.start + 1
    return np.where(single, labels.data[np.where(single, labels.start, 0)], np.uint8(0))


class LabelFileSource(Source):
    """Display names of entities and relations: `label<TAB>name` lines. The last line about a label counts.

    Names are the bytes after the tab. An empty name removes the one that a label had.
    """

    format = "labels"
    is_change = is_names = True

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        for table in read_table(self.path, 2, self, rejects):
            label, _ = table.columns
            label, name = table.without({"empty label": label.start == label.stop}, self.path, rejects).columns
            yield TripleBatch.of_names(NameBatch(label, name))
