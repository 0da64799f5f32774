"""RDF as N-Triples or N-Quads lines. In: one file, plain or compressed. Out: triples, labels are canonical terms.

A label is the term as N-Triples writes it: `<iri>`, `_:blank`, `"text"@en`, `"1"^^<datatype>`, escapes included. The
same term has the same label however the file spells it (`\\u00e9` or `é`, `@en-GB` or `@en-gb`, an explicit or implied
xsd:string), and blank nodes keep the names of the file.

The grammar of N-Triples decides what is an error. IRIs and language tags that keep to it but not to their own
standards (a stray `%`, two `#`, no scheme, `@zh-classical`) are frequent in published dumps: they are kept and counted.
The graph of a quad is dropped and counted.

Statements that name their subject are display names and no triples (`rdf_names`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from pyoxigraph import DefaultGraph, Quad, RdfFormat, Triple, parse, serialize

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, TripleBatch
from dkge_dist.graph.sources.files import read_line_chunks
from dkge_dist.graph.sources.rdf_names import QUOTE, Statements, checked_language, split_names
from dkge_dist.kernels.text import NEWLINE, split_statements

WINDOW_LINES = 64
NAMED_GRAPHS = "triples of named graphs, whose names are dropped"

_IRI = r"<[^\x00-\x20<>\"{}|^`\\]*>"
_LITERAL = rf'"(?:[^"\\\n]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^{_IRI})?'
_STATEMENT = re.compile(rf"(?:{_IRI}|_:\S+) {_IRI} (?:{_IRI}|_:\S+|{_LITERAL}) \.\n")


class NTriplesSource(Source):
    """Every term is an entity, literals too unless `literals` is off: then triples with a literal are skipped."""

    format = "ntriples"
    syntax: ClassVar[RdfFormat] = RdfFormat.N_TRIPLES

    def __init__(self, path: Path, literals: bool = True, label_language: str = "en") -> None:
        super().__init__(path)
        self.literals = literals
        self.label_language = checked_language(label_language)
        self.bytes_total = path.stat().st_size if path.exists() else 0

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        line = 1
        for chunk in read_line_chunks(self.path, self, rejects):
            # A lone CR ends a line as well; with one kind of line end our line numbers are the parser's.
            text = chunk.data.tobytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            batch = batch_of_statements(
                self._canonical(text, line, rejects), self.literals, self.label_language, self.counts
            )
            if len(batch.head) or batch.names is not None:
                yield batch
            line += text.count(b"\n")

    def _canonical(self, text: bytes, first_line: int, rejects: Rejects) -> bytes:
        """The statements of `text` in canonical form, without the bad lines, which go to `rejects`."""
        begin = _line_starts(text)
        lines = len(begin) - 1
        pieces = []
        line, window = 0, lines
        while line < lines:
            stop = min(line + window, lines)
            good, problem = _read_until_problem(text[begin[line] : begin[stop]], self.syntax)
            pieces.append(self._noted(good))
            if problem is None:
                line, window = stop, 2 * window
                continue
            bad = line + problem.line - 1
            statement = text[begin[bad] : begin[bad + 1]]
            relaxed = _read_relaxed(statement, self.syntax)
            if relaxed is None:
                rejects.add(self.path, first_line + bad, problem.reason, statement.decode("utf-8").rstrip("\n"))
            else:
                self.counts["lines with an invalid IRI or language tag kept"] += 1
                pieces.append(self._noted(relaxed))
            # The next lines may be bad too, and each of them would cost a parse of all that follows.
            line, window = bad + 1, WINDOW_LINES
        return b"".join(pieces)

    def _noted(self, canonical: Canonical) -> bytes:
        if canonical.named:
            self.counts[NAMED_GRAPHS] += canonical.named
        return canonical.text


class NQuadsSource(NTriplesSource):
    """Lines with a fourth term, the graph, or without one."""

    format = "nquads"
    syntax = RdfFormat.N_QUADS


class Canonical(NamedTuple):
    """Canonical N-Triples, and how many of them come from a named graph."""

    text: bytes
    named: int = 0


def batch_of_statements(text: bytes, literals: bool, label_language: str, counts: Counter[str]) -> TripleBatch:
    """Canonical N-Triples as labels and display names; without `literals` triples with a literal are skipped."""
    data = np.frombuffer(text, np.uint8)
    start, stop = split_statements(data)
    every = Statements(*(Labels(data, start[:, column], stop[:, column]) for column in range(3)))
    triples, names = split_names(every, label_language, counts)
    if not literals:
        literal = data[triples.term.start] == QUOTE
        if literal.any():
            counts["triples with a literal skipped"] += int(literal.sum())
        triples = triples.take(~literal)
    return TripleBatch(*triples, names=names)


def statements_of(quads: Iterable[Quad]) -> Canonical:
    """Quads without their graphs, in canonical form."""
    named = 0

    def triples() -> Iterator[Triple]:
        nonlocal named
        for quad in quads:
            named += not isinstance(quad.graph_name, DefaultGraph)
            yield quad.triple

    return Canonical(written(triples()), named)


def written(statements: Iterable[Quad] | Iterable[Triple]) -> bytes:
    """The canonical form. Parsing and writing in compiled code is twice as fast as a Python string per term."""
    text = serialize(statements, format=RdfFormat.N_TRIPLES)
    assert text is not None  # it is None only when the text goes to a file
    return text


class _Problem(NamedTuple):
    """The first line (from 1) of a text that is not N-Triples, and why."""

    line: int
    reason: str


def _serialized(text: bytes, syntax: RdfFormat, lenient: bool = False) -> Canonical:
    quads = parse(text, format=syntax, lenient=lenient)
    return Canonical(written(quads)) if syntax == RdfFormat.N_TRIPLES else statements_of(quads)


def _read_relaxed(line: bytes, syntax: RdfFormat) -> Canonical | None:
    """The canonical form of one line that follows the grammar, even with invalid IRIs; None if it does not.

    The lenient parser also accepts terms that would break the lines of its output, hence the check afterwards.
    """
    try:
        statement = _serialized(line, syntax, lenient=True)
    except SyntaxError:
        return None
    return statement if _STATEMENT.fullmatch(statement.text.decode("utf-8")) else None


def _read_until_problem(text: bytes, syntax: RdfFormat) -> tuple[Canonical, _Problem | None]:
    """The canonical form of all lines before the first bad one.

    The parser may notice a bad line only at the start of the next one (a missing dot), so the line that it names
    is the bad one only if everything before it can be read.
    """
    readable, line = text, text.count(b"\n") + 1
    problem = None
    while True:
        try:
            return _serialized(readable, syntax), problem
        except SyntaxError as error:
            named = error.lineno or 1
            line = min(named, line - 1)
            problem = _Problem(line, reason_of(error, with_column=named == line))
            readable = text[: _line_starts(text)[line - 1]]


def reason_of(error: SyntaxError, with_column: bool) -> str:
    """The parser's message without its line number, which counts from the start of the chunk."""
    reason = " ".join((error.msg.partition(": ")[2] or error.msg).split())
    return f"column {error.offset}: {reason}" if with_column else reason


def _line_starts(text: bytes) -> list[int]:
    """Where each line of `text` begins, and the end of the last one."""
    return [0, *(np.flatnonzero(np.frombuffer(text, np.uint8) == NEWLINE) + 1).tolist()]
