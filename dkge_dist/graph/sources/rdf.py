"""RDF as a document: Turtle, TriG and RDF/XML. In: one file, plain or compressed. Out: triples, labelled as N-Triples.

A document is read in a stream but as one: after an error nobody knows where the next statement begins, so it ends
reading, whatever number of bad lines is allowed. Blank nodes that have no name in the file are numbered in the order of
the file (the parser would give them random names, and every ingest of a file would be another graph).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from pyoxigraph import BlankNode, Quad, RdfFormat, parse

from dkge_dist.graph.sources.base import Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.files import UTF8_MARK, read_blocks
from dkge_dist.graph.sources.ntriples import NAMED_GRAPHS, batch_of_statements, reason_of, statements_of
from dkge_dist.graph.sources.rdf_names import checked_language

BATCH_TRIPLES = 100_000
READ_BYTES = 1 << 18
NUMBERED = "anonymous"
# 128 random bits in hexadecimal digits without leading zeros, hence rarely a few less than 32 digits.
_GIVEN_BY_PARSER = re.compile(r"[a-f][0-9a-f]{19,31}")
_NUMBERED = re.compile(NUMBERED + r"[0-9]+")

_ENTITY = b"<!ENTITY"
# Short, and without a reference: the parser expands entities within entities, and ten lines could be a terabyte.
_PLAIN_ENTITY = re.compile(_ENTITY + rb"\s+[^\s%\"'&]+\s+(?:\"[^\"&]{0,1000}\"|'[^'&]{0,1000}')\s*>")


class RdfDocumentSource(Source):
    """Every term is an entity, literals too unless `literals` is off; names of graphs are dropped and counted."""

    syntax: ClassVar[RdfFormat]

    def __init__(self, path: Path, literals: bool = True, label_language: str = "en") -> None:
        super().__init__(path)
        self.literals = literals
        self.label_language = checked_language(label_language)
        self.numbered: dict[str, BlankNode] = {}
        """Nodes without a name, by the one that the parser gave them; shared by files that are read as one source."""
        self.bytes_total = path.stat().st_size if path.exists() else 0

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        quads = self._quads()
        while True:
            statements = statements_of(islice(quads, BATCH_TRIPLES))
            if not statements.text:
                return
            if statements.named:
                self.counts[NAMED_GRAPHS] += statements.named
            batch = batch_of_statements(statements.text, self.literals, self.label_language, self.counts)
            if len(batch.head) or batch.names is not None:
                yield batch

    def _quads(self) -> Iterator[Quad]:
        stream = io.BufferedReader(_Stream(self._blocks()), READ_BYTES)
        try:
            for quad in parse(stream, format=self.syntax):
                subject, term = quad.subject, quad.object
                if isinstance(subject, BlankNode) or isinstance(term, BlankNode):
                    quad = Quad(self._named(subject), quad.predicate, self._named(term), quad.graph_name)
                yield quad
        except SyntaxError as error:
            place = f":{error.lineno}" if error.lineno else ""
            hint = "; declare an @base in the file" if "No scheme found" in error.msg else ""
            reason = reason_of(error, with_column=bool(error.offset))
            raise SourceError(f"{self.path}{place}: not {self.format}: {reason}{hint}") from None

    def _blocks(self) -> Iterator[bytes]:
        return read_blocks(self.path, self)

    def _named(self, node: Any) -> Any:
        if not isinstance(node, BlankNode):
            return node
        if _GIVEN_BY_PARSER.fullmatch(node.value):
            return self.numbered.setdefault(node.value, BlankNode(f"{NUMBERED}{len(self.numbered) + 1}"))
        if _NUMBERED.fullmatch(node.value):
            raise SourceError(f"{self.path}: the blank node {node} is named as those are that have no name; rename it")
        return node


class TurtleSource(RdfDocumentSource):
    """Turtle."""

    format = "turtle"
    syntax = RdfFormat.TURTLE


class TrigSource(RdfDocumentSource):
    """TriG: Turtle with named graphs."""

    format = "trig"
    syntax = RdfFormat.TRIG


class RdfXmlSource(RdfDocumentSource):
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


class _Stream(io.RawIOBase):
    """Blocks of bytes as a file, without the byte order mark."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest: memoryview | None = None

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes; 0 at the end."""
        if not self._rest:
            block = next(self._blocks, b"")
            self._rest = memoryview(block.removeprefix(UTF8_MARK) if self._rest is None else block)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
