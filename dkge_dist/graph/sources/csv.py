"""Triples as comma- or semicolon-separated values with the quoting of RFC 4180, in one file or in files by split.

Columns are found as in TSV files. Labels are what is between the quotes, to the byte: nothing is trimmed, and no word
(`NA`, `null`) is taken for a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, SourceError, SplitFilesSource, TripleBatch
from dkge_dist.graph.sources.columns import ROLES, Columns, Layout, layout_of
from dkge_dist.graph.sources.files import MAX_LINE_BYTES, START_BYTES, line_text, read_lines, read_start
from dkge_dist.graph.sources.sniff import first_record
from dkge_dist.kernels.text import BLANK_BEFORE_QUOTE, TEXT_AFTER_QUOTE, QuotedFields, split_quoted
from dkge_dist.types import Array, Split

EMPTY_LINES = (b"\n", b"\r\n")
FLAWS = {
    TEXT_AFTER_QUOTE: "text after the closing quote of a field",
    BLANK_BEFORE_QUOTE: "a blank before the opening quote of a field",
}


class CsvSource(SplitFilesSource):
    """A record may span lines; errors name the one where it begins."""

    format = "csv"

    def __init__(self, path: Path, files: dict[Split, Path] | None = None, columns: Columns | None = None) -> None:
        super().__init__(path, files)
        self.columns = columns

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        """Read the files one after the other."""
        for split, path in self.files.items():
            delimiter, first = first_record(read_start(path, START_BYTES))
            layout = layout_of(first, self.columns, f"{path}:1")
            yield from self._file(path, split, delimiter, layout, rejects)

    def _file(
        self, path: Path, split: Split, delimiter: str, layout: Layout, rejects: Rejects
    ) -> Iterator[TripleBatch]:
        header = layout.header
        rest, rest_line, open_field = b"", 1, -1
        for whole, line in read_lines(path, self):
            first_line = rest_line if rest else line
            text = rest + whole
            fields = split_quoted(np.frombuffer(text, np.uint8), layout.width, delimiter)
            rest, rest_line = text[fields.begin[-1] :], first_line + int(fields.line[-1])
            open_field = fields.open_field
            if len(rest) > MAX_LINE_BYTES:
                break
            skipped = -1
            if header and (skipped := _first_filled(text, fields)) >= 0:
                header = None
                self.counts[layout.notice] += 1
            good = self._good_records(path, text, fields, layout, first_line, rejects)
            good = good[good != skipped]
            head, relation, tail = (
                Labels(fields.data, fields.start[good, c], fields.stop[good, c]) for c in layout.places
            )
            yield TripleBatch(head, relation, tail, split)
        if rest:
            raise SourceError(
                f"{path}:{rest_line}: a quote opens field {open_field + 1} and is not closed"
                " (if quotes are plain text here, write the file as TSV, which has no quoting)"
            )

    def _good_records(
        self, path: Path, text: bytes, fields: QuotedFields, layout: Layout, first_line: int, rejects: Rejects
    ) -> Array:
        """The numbers of the records that can be used; the others go to `rejects`, empty lines are counted."""
        reasons: dict[int, str] = {}
        for i in np.flatnonzero(fields.found != layout.width).tolist():
            reasons[i] = f"{fields.found[i]} columns instead of {layout.width}"
        for i in np.flatnonzero(fields.flaw).tolist():
            reasons[i] = FLAWS[int(fields.flaw[i])]
        for role, column in zip(ROLES, layout.places, strict=True):
            for i in np.flatnonzero(fields.start[:, column] == fields.stop[:, column]).tolist():
                reasons.setdefault(i, f"empty {role}")
        reasons |= _broken(text, fields)
        good = np.ones(fields.found.shape[0], bool)
        for i in sorted(reasons):
            good[i] = False
            begin, end = int(fields.begin[i]), int(fields.begin[i + 1])
            if text[begin:end] in EMPTY_LINES:
                self.counts["empty lines skipped"] += 1
            else:
                shown = line_text(np.frombuffer(text, np.uint8), begin)
                rejects.add(path, first_line + int(fields.line[i]), reasons[i], shown)
        return np.flatnonzero(good)


def _first_filled(text: bytes, fields: QuotedFields) -> int:
    """The first record that is not an empty line; -1 if all are."""
    bounds = zip(fields.begin[:-1].tolist(), fields.begin[1:].tolist(), strict=True)
    return next((i for i, (begin, end) in enumerate(bounds) if text[begin:end] not in EMPTY_LINES), -1)


def _broken(text: bytes, fields: QuotedFields) -> dict[int, str]:
    """The records whose UTF-8 is invalid."""
    try:
        text[: fields.begin[-1]].decode("utf-8")
        return {}
    except UnicodeDecodeError:
        pass
    found = {}
    for i, (begin, end) in enumerate(zip(fields.begin[:-1].tolist(), fields.begin[1:].tolist(), strict=True)):
        try:
            text[begin:end].decode("utf-8")
        except UnicodeDecodeError as error:
            found[i] = f"broken UTF-8 at byte {error.start + 1} of the record"
    return found
