"""RDF, plain or compressed: N-Triples and N-Quads lines; Turtle, TriG and RDF/XML documents.

A label is the term as N-Triples writes it: `<iri>`, `_:blank`, `"text"@en`, `"1"^^<datatype>`, escapes included. The
same term has the same label however the file spells it (`\\u00e9` or `é`, `@en-GB` or `@en-gb`, an explicit or implied
xsd:string), and blank nodes keep the names of the file. The graph of a quad is dropped and counted.

*Lines*: the grammar of N-Triples decides what is an error. IRIs and language tags that keep to it but not to their own
standards (a stray `%`, two `#`, no scheme, `@zh-classical`) are frequent in published dumps: they are kept and counted.

*Documents* are read in a stream but as one: after an error it is not known where the next statement begins, so it ends
reading, whatever number of bad lines is allowed. Blank nodes that have no name in the file are numbered in the order of
the file (the parser would give them random names, and every ingest of a file would be another graph).

*Display names*: statements with `rdfs:label`, `skos:prefLabel` or `schema:name` and a literal are names and no triples:
a literal that nothing else has tells a model nothing. Of several names of a subject the language decides first (the
wanted one, then a variant of it such as `en-gb`, then none), then the property. Names in other languages are counted
and left out.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pyoxigraph import BlankNode, DefaultGraph, Quad, RdfFormat, Triple, parse, serialize

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.files import UTF8_MARK, BlockStream, read_blocks, read_line_chunks
from dkge_dist.kernels.text import NEWLINE, QUOTE, equal_to, last_byte, split_statements
from dkge_dist.types import Array, UsageError

WINDOW_LINES = 64
BATCH_TRIPLES = 100_000
READ_BYTES = 1 << 18
NUMBERED = "anonymous"
BACKSLASH, AT = ord("\\"), ord("@")

_IRI = r"<[^\x00-\x20<>\"{}|^`\\]*>"
_LITERAL = rf'"(?:[^"\\\n]|\\.)*"(?:@[A-Za-z0-9-]+|\^\^{_IRI})?'
_STATEMENT = re.compile(rf"(?:{_IRI}|_:\S+) {_IRI} (?:{_IRI}|_:\S+|{_LITERAL}) \.\n")
# 128 random bits in hexadecimal digits without leading zeros, hence rarely a few less than 32 digits.
_GIVEN_BY_PARSER = re.compile(r"[a-f][0-9a-f]{19,31}")
_NUMBERED = re.compile(NUMBERED + r"[0-9]+")
_ENTITY = b"<!ENTITY"
# Short, and without a reference: the parser expands entities within entities, and ten lines could be a terabyte.
_PLAIN_ENTITY = re.compile(_ENTITY + rb"\s+[^\s%\"'&]+\s+(?:\"[^\"&]{0,1000}\"|'[^'&]{0,1000}')\s*>")

NAME_PROPERTIES = (
    "<http://www.w3.org/2000/01/rdf-schema#label>",
    "<http://www.w3.org/2004/02/skos/core#prefLabel>",
    "<http://schema.org/name>",
    "<https://schema.org/name>",
)
"""Best first."""
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*", re.ASCII)
_WANTED, _VARIANT, _UNTAGGED, _FOREIGN = range(4)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


class Canonical(NamedTuple):
    """Canonical N-Triples, and how many of them come from a named graph."""

    text: bytes
    named: int = 0

    @staticmethod
    def of(quads: Iterable[Quad]) -> Canonical:
        """Without their graphs. Writing in compiled code is twice as fast as a Python string per term."""
        named = 0

        def triples() -> Iterator[Triple]:
            nonlocal named
            for quad in quads:
                named += not isinstance(quad.graph_name, DefaultGraph)
                yield quad.triple

        return Canonical(_serialized(triples()), named)


def _serialized(statements: Iterable[Quad] | Iterable[Triple]) -> bytes:
    text = serialize(statements, format=RdfFormat.N_TRIPLES)
    assert text is not None  # it is None only when the text goes to a file
    return text


class RdfSource(Source):
    """Every term is an entity, literals too unless `literals` is off: then triples with a literal are skipped."""

    syntax: ClassVar[RdfFormat]

    def prepare(self) -> None:
        language = self.options.label_language
        if not _LANGUAGE.fullmatch(language):
            raise UsageError(f"--label-language {language!r}: no language tag such as en or pt-br")
        self.label_language = language.lower()

    def _batch(self, statements: Canonical) -> Iterator[TripleBatch]:
        """The labels and display names of some statements, if there are any."""
        if statements.named:
            self.counts["triples of named graphs, whose names are dropped"] += statements.named
        data = np.frombuffer(statements.text, np.uint8)
        start, stop = split_statements(data)
        every = Statements(*(Labels(data, start[:, column], stop[:, column]) for column in range(3)))
        triples, names = split_names(every, self.label_language, self.counts)
        literal = data[triples.term.start] == QUOTE
        if not self.options.literals and literal.any():
            self.counts["triples with a literal skipped"] += int(literal.sum())
            triples = triples.take(~literal)
        if len(triples.term) or names is not None:
            yield TripleBatch(*triples, names=names)


class NTriplesSource(RdfSource):
    """Lines, each of which is a statement."""

    format = "ntriples"
    syntax = RdfFormat.N_TRIPLES

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        line = 1
        for chunk in read_line_chunks(self.path, self, rejects):
            # A lone CR ends a line as well; with one kind of line end our line numbers are the parser's.
            text = chunk.data.tobytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield from self._batch(self._canonical(text, line, rejects))
            line += text.count(b"\n")

    def _canonical(self, text: bytes, first_line: int, rejects: Rejects) -> Canonical:
        """The statements of `text` in canonical form, without the bad lines, which go to `rejects`."""
        begin = _line_starts(text)
        lines = len(begin) - 1
        pieces: list[Canonical] = []
        line, window = 0, lines
        while line < lines:
            stop = min(line + window, lines)
            good, problem = _read_until_problem(text[begin[line] : begin[stop]], self.syntax)
            pieces.append(good)
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
                pieces.append(relaxed)
            # The next lines may be bad too, and each of them would cost a parse of all that follows.
            line, window = bad + 1, WINDOW_LINES
        return Canonical(b"".join(piece.text for piece in pieces), sum(piece.named for piece in pieces))


class NQuadsSource(NTriplesSource):
    """Lines with a fourth term, the graph, or without one."""

    format = "nquads"
    syntax = RdfFormat.N_QUADS


class _Problem(NamedTuple):
    """The first line (from 1) of a text that is not N-Triples, and why."""

    line: int
    reason: str


def _parsed(text: bytes, syntax: RdfFormat, lenient: bool = False) -> Canonical:
    quads = parse(text, format=syntax, lenient=lenient)
    return Canonical(_serialized(quads)) if syntax == RdfFormat.N_TRIPLES else Canonical.of(quads)


def _read_relaxed(line: bytes, syntax: RdfFormat) -> Canonical | None:
    """The canonical form of one line that follows the grammar, even with invalid IRIs; None if it does not.

    The lenient parser also accepts terms that would break the lines of its output, hence the check afterwards.
    """
    try:
        statement = _parsed(line, syntax, lenient=True)
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
            return _parsed(readable, syntax), problem
        except SyntaxError as error:
            named = error.lineno or 1
            line = min(named, line - 1)
            problem = _Problem(line, _reason_of(error, with_column=named == line))
            readable = text[: _line_starts(text)[line - 1]]


def _reason_of(error: SyntaxError, with_column: bool) -> str:
    """The parser's message without its line number, which counts from the start of the chunk."""
    reason = " ".join((error.msg.partition(": ")[2] or error.msg).split())
    return f"column {error.offset}: {reason}" if with_column else reason


def _line_starts(text: bytes) -> list[int]:
    """Where each line of `text` begins, and the end of the last one."""
    return [0, *(np.flatnonzero(np.frombuffer(text, np.uint8) == NEWLINE) + 1).tolist()]


class TurtleSource(RdfSource):
    """A document in Turtle."""

    format = "turtle"
    syntax = RdfFormat.TURTLE

    def prepare(self) -> None:
        super().prepare()
        self.numbered: dict[str, BlankNode] = {}
        """Nodes without a name, by the one that the parser gave them."""

    def continue_from(self, first: Source) -> None:
        """Nodes without a name are different ones in every file."""
        assert isinstance(first, TurtleSource)
        self.numbered = first.numbered

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        quads = self._quads()
        while (statements := Canonical.of(islice(quads, BATCH_TRIPLES))).text:
            yield from self._batch(statements)

    def _quads(self) -> Iterator[Quad]:
        stream = io.BufferedReader(BlockStream(self._blocks()), READ_BYTES)
        try:
            for quad in parse(stream, format=self.syntax):
                subject, term = quad.subject, quad.object
                if isinstance(subject, BlankNode) or isinstance(term, BlankNode):
                    quad = Quad(self._named(subject), quad.predicate, self._named(term), quad.graph_name)
                yield quad
        except SyntaxError as error:
            place = f":{error.lineno}" if error.lineno else ""
            hint = "; declare an @base in the file" if "No scheme found" in error.msg else ""
            reason = _reason_of(error, with_column=bool(error.offset))
            raise SourceError(f"{self.path}{place}: not {self.format}: {reason}{hint}") from None

    def _blocks(self) -> Iterator[bytes]:
        blocks = read_blocks(self.path, self)
        yield next(blocks, b"").removeprefix(UTF8_MARK)
        yield from blocks

    def _named(self, node: Any) -> Any:
        if not isinstance(node, BlankNode):
            return node
        if _GIVEN_BY_PARSER.fullmatch(node.value):
            return self.numbered.setdefault(node.value, BlankNode(f"{NUMBERED}{len(self.numbered) + 1}"))
        if _NUMBERED.fullmatch(node.value):
            raise SourceError(f"{self.path}: the blank node {node} is named as those are that have no name; rename it")
        return node


class TrigSource(TurtleSource):
    """TriG: Turtle with named graphs."""

    format = "trig"
    syntax = RdfFormat.TRIG


class RdfXmlSource(TurtleSource):
    """RDF/XML in UTF-8. Entities may stand for plain text alone."""

    format = "rdfxml"
    syntax = RdfFormat.RDF_XML

    def _blocks(self) -> Iterator[bytes]:
        """The bytes of the file, once its entities are seen to be harmless. They are declared at its beginning."""
        before = b""
        for number, block in enumerate(super()._blocks()):
            if number == 0 and b"\x00" in block[:4]:
                raise SourceError(f"{self.path}: not UTF-8; convert it with `iconv -t UTF-8`")
            text = before + block
            plain = len(_PLAIN_ENTITY.findall(text)) if number == 0 else 0
            if text.count(_ENTITY) > plain:
                raise SourceError(f"{self.path}: an entity that is not a short plain text is declared; write it out")
            before = text[-len(_ENTITY) + 1 :]
            yield block


class Statements(NamedTuple):
    """Some statements as columns of canonical terms."""

    subject: Labels
    predicate: Labels
    term: Labels

    def take(self, where: Array) -> Statements:
        """Those at `where`."""
        return Statements(*(column.take(where) for column in self))


def split_names(statements: Statements, language: str, counts: Counter[str]) -> tuple[Statements, NameBatch | None]:
    """The statements that are triples, and the names that the others give."""
    _, predicate, term = statements
    property_rank = np.full(len(term), len(NAME_PROPERTIES), np.uint8)
    for rank, iri in enumerate(NAME_PROPERTIES):
        property_rank[equal_to(predicate.data, predicate.start, predicate.stop, iri)] = rank
    naming = (property_rank < len(NAME_PROPERTIES)) & (term.data[term.start] == QUOTE)
    if not naming.any():
        return statements, None
    subject, _, term = statements.take(naming)
    end = last_byte(term.data, term.start, term.stop, QUOTE)
    language_rank = _language_ranks(Labels(term.data, end + 1, term.stop), language)
    foreign = language_rank == _FOREIGN
    if foreign.any():
        counts["names in other languages left out (--label-language)"] += int(foreign.sum())
    kept = ~foreign & (end > term.start + 1)
    rank = (language_rank * len(NAME_PROPERTIES) + property_rank[naming])[kept].astype(np.uint8)
    text = _unescaped(Labels(term.data, term.start[kept] + 1, end[kept]))
    return statements.take(~naming), NameBatch(subject.take(kept), text, rank)


def _language_ranks(suffix: Labels, language: str) -> Array:
    """How well what follows each text (`@en`, a datatype or nothing) fits the wanted language."""
    some = suffix.stop > suffix.start
    tagged = np.zeros(len(suffix), bool)
    tagged[some] = suffix.data[suffix.start[some]] == AT
    rank = np.where(tagged, _FOREIGN, _UNTAGGED)
    wanted, variant = f"@{language}", f"@{language}-"
    rank[equal_to(suffix.data, suffix.start, suffix.stop, wanted)] = _WANTED
    begin = np.minimum(suffix.start + len(variant), suffix.stop)
    rank[equal_to(suffix.data, suffix.start, begin, variant)] = _VARIANT
    return rank


def _unescaped(text: Labels) -> Labels:
    """Without the escapes of N-Triples. Few texts have any, so these are Python strings."""
    escaped = np.flatnonzero(last_byte(text.data, text.start, text.stop, BACKSLASH) >= 0)
    plain = Labels.from_strings(_ESCAPE.sub(_character, text[int(i)]) for i in escaped)
    return text.replaced(escaped, plain) if len(plain) else text


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    return chr(int(digits, 16)) if digits else _ESCAPED.get(escape[3], escape[3])
