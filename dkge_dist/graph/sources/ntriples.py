"""RDF as N-Triples lines. In: one file, plain or compressed. Out: triples whose labels are canonical N-Triples terms.

A label is the term as N-Triples writes it: `<iri>`, `_:blank`, `"text"@en`, `"1"^^<datatype>`, escapes included. The
same term has the same label however the file spells it (`\\u00e9` or `é`, `@en-GB` or `@en-gb`, an explicit or implied
xsd:string), and blank nodes keep the names of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyoxigraph import RdfFormat, parse, serialize

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, TripleBatch
from dkge_dist.graph.sources.files import read_line_chunks
from dkge_dist.kernels.text import NEWLINE, split_statements

QUOTE = ord('"')


class NTriplesSource(Source):
    """Every term is an entity, literals too unless `literals` is off: then triples with a literal are skipped."""

    format = "ntriples"

    def __init__(self, path: Path, literals: bool = True) -> None:
        super().__init__(path)
        self.literals = literals
        self.bytes_total = path.stat().st_size if path.exists() else 0

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        line = 1
        for chunk in read_line_chunks(self.path, self, rejects):
            # A lone CR ends a line as well; with one kind of line end our line numbers are the parser's.
            text = chunk.data.tobytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            for statements in self._canonical(text, line, rejects):
                batch = self._batch(statements)
                if len(batch.head):
                    yield batch
            line += text.count(b"\n")

    def _canonical(self, text: bytes, first_line: int, rejects: Rejects) -> Iterator[bytes]:
        """The statements of `text` in canonical form, without the bad lines, which go to `rejects`."""
        while text:
            good, problem = _read_until_problem(text)
            yield good
            if problem is None:
                return
            begin = _line_start(text, problem.line)
            bad, _, text = text[begin:].partition(b"\n")
            rejects.add(self.path, first_line + problem.line - 1, problem.reason, bad.decode("utf-8"))
            first_line += problem.line

    def _batch(self, statements: bytes) -> TripleBatch:
        data = np.frombuffer(statements, np.uint8)
        start, stop = split_statements(data)
        if not self.literals:
            literal = data[start[:, 2]] == QUOTE
            self.counts["triples with a literal skipped"] += int(literal.sum())
            start, stop = start[~literal], stop[~literal]
        return TripleBatch(*(Labels(data, start[:, term], stop[:, term]) for term in range(3)))


class _Problem(NamedTuple):
    """The first line (from 1) of a text that is not N-Triples, and why."""

    line: int
    reason: str


def _serialized(text: bytes) -> bytes:
    """Parsing and writing in one go stays in compiled code: twice as fast as asking each term for its string."""
    written: bytes = serialize(parse(text, format=RdfFormat.N_TRIPLES), format=RdfFormat.N_TRIPLES)
    return written


def _read_until_problem(text: bytes) -> tuple[bytes, _Problem | None]:
    """The canonical form of all lines before the first bad one.

    The parser may notice a bad line only at the start of the next one (a missing dot), so the line that it names
    is the bad one only if everything before it can be read.
    """
    readable, line = text, text.count(b"\n") + 1
    problem = None
    while True:
        try:
            return _serialized(readable), problem
        except SyntaxError as error:
            named = error.lineno or 1
            line = min(named, line - 1)
            problem = _Problem(line, _reason(error, with_column=named == line))
            readable = text[: _line_start(text, line)]


def _reason(error: SyntaxError, with_column: bool) -> str:
    """What the parser says, without its own line numbers, which count from the start of the chunk."""
    reason = " ".join(error.msg.partition(": ")[2].split())
    return f"column {error.offset}: {reason}" if with_column else reason


def _line_start(text: bytes, line: int) -> int:
    """Where line number `line` (from 1) of `text` begins."""
    if line == 1:
        return 0
    return int(np.flatnonzero(np.frombuffer(text, np.uint8) == NEWLINE)[line - 2]) + 1
