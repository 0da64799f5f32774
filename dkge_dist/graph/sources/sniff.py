"""The format of a file by its beginning and its name. Pure: bytes and a name in, a format out.

Imports no reader and no kernel: what is no source at all is said before anything is compiled.
"""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import PurePath

from dkge_dist.graph.sources.columns import usual_ends
from dkge_dist.graph.sources.files import START_BYTES, UTF8_MARK

DELIMITERS = (",", ";")
ENDINGS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".nt": "ntriples",
    ".nq": "nquads",
    ".ttl": "turtle",
    ".trig": "trig",
    ".rdf": "rdfxml",
    ".owl": "rdfxml",
    ".parquet": "parquet",
    ".changes": "changes",
}
"""What a name says, where the content does not."""

CONVERSIONS = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook: unpack it, or save the sheet as CSV (UTF-8)"),
    (b"\xff\xfe", "UTF-16: `iconv -f UTF-16 -t UTF-8` converts it"),
    (b"\xfe\xff", "UTF-16: `iconv -f UTF-16 -t UTF-8` converts it"),
    (b"BZh", "bzip2: `bunzip2` unpacks it"),
    (b"\x28\xb5\x2f\xfd", "zstd: `zstd -d` unpacks it"),
    (b"<", "XML or HTML that is not RDF/XML"),
    (b"{", "a JSON document, not JSON lines: `jq -c` writes one object a line"),
    (b"[", "a JSON document, not JSON lines: `jq -c '.[]'` writes one item a line"),
)
NO_TEXT = tuple(magic for magic, _ in CONVERSIONS if not magic.isalpha() and len(magic) > 1)
ANY_FORMAT = "triples as lines of head, relation and tail, with tabs between, can be read whatever they are"

# Subject and predicate, then whatever the object is, up to the graph and the dot. Between them blanks or tabs. What was
# matched is never given up again (`*+`): otherwise a crafted line would take time that grows with its length squared.
_ENDS = rb"\s*+(?:<[^>]*+>|_:[^\s<]++)\s*+<[^>]*+>\s*+"
_OBJECT = rb"(?:<[^>]*+>|_:[^\s.]++(?:\.++[^\s.]++)*+|\"(?:[^\"\\]|\\.)*+\"(?:@[\w-]++|\^\^<[^>]*+>)?+)\s*+"
_GRAPH = rb"(?:<[^>]*+>|_:[^\s.]++(?:\.++[^\s.]++)*+)\s*+"
_DOT = rb"\.\s*+(?:#.*+)?+"
_TRIPLE, _QUAD = re.compile(_ENDS + _OBJECT + _DOT), re.compile(_ENDS + _OBJECT + _GRAPH + _DOT)
_DIRECTIVE = re.compile(rb"\s*+(?:@prefix|@base|prefix|base)\s", re.IGNORECASE)
_GRAPH_BLOCK = re.compile(rb"(?:GRAPH\s+)?(?:<[^>]*+>|_:\S++|[\w.-]*+:[\w.-]*+)?\s*+\{", re.IGNORECASE)


def content_lines(head: bytes) -> list[bytes]:
    """The lines of the beginning of a file that are not blank; the last one may be cut."""
    return [line for line in head.split(b"\n") if line.strip()]


def is_packages(name: str) -> bool:
    """Is this the name of a list of Debian packages?"""
    stem = name.split(".")[0] if name.startswith("Packages") else name.rsplit("_", 1)[-1].split(".")[0]
    return stem == "Packages"


def sniff(head: bytes, name: str, columns_said: bool = False) -> str | None:
    """The format of a file that is not empty and opens with `head`; None if it is not known."""
    suffixes = [suffix.lower() for suffix in PurePath(name).suffixes]
    by_name = next((ENDINGS[suffix] for suffix in reversed(suffixes) if suffix in ENDINGS), None)
    if head.startswith(b"PAR1") or by_name == "parquet":
        return "parquet"
    if head.startswith(NO_TEXT):
        return None
    lines = content_lines(head)
    if is_packages(name) or lines[0].startswith(b"Package: "):
        return "debian"
    if by_name in ("ntriples", "nquads", "trig", "rdfxml", "jsonl", "changes"):
        return by_name
    rdf = _sniff_rdf(lines)
    # Dumps of N-Triples lines are often named as Turtle, and the reader of lines forgives more.
    if by_name == "turtle":
        return rdf if rdf == "ntriples" and all(map(_TRIPLE.fullmatch, _statements(lines)[:-1])) else "turtle"
    if rdf is not None:
        return rdf
    if lines[0][:2] in (b"+\t", b"-\t") and lines[0].count(b"\t") == 3:
        return "changes"
    if _is_json_row(lines[0]):
        return "jsonl"
    return _sniff_delimited(head, lines, columns_said) or by_name


def hint_for(head: bytes) -> str:
    """How a file of no known format may be converted."""
    return next((hint for magic, hint in CONVERSIONS if head.lstrip(b" \t\r\n").startswith(magic)), ANY_FORMAT)


def _statements(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith(b"#")]


def _sniff_rdf(lines: list[bytes]) -> str | None:
    statements = _statements(lines)
    first = statements[0] if statements else b""
    if _QUAD.fullmatch(first):
        return "nquads"
    if _TRIPLE.fullmatch(first):
        return "nquads" if any(map(_QUAD.fullmatch, statements)) else "ntriples"
    if _DIRECTIVE.match(first):
        return "trig" if any(map(_GRAPH_BLOCK.match, statements)) else "turtle"
    opening = first.lstrip()
    if opening.startswith((b"<?xml", b"<!DOCTYPE", b"<rdf:RDF")):
        return "rdfxml" if any(b"<rdf:RDF" in line for line in lines) else None
    return None


def _is_json_row(line: bytes) -> bool:
    """An object, or an array that is more than the beginning of one."""
    if line[:1] not in (b"{", b"["):
        return False
    try:
        return len(json.loads(line)) > 0
    except (ValueError, RecursionError):
        return False


def _sniff_delimited(head: bytes, lines: list[bytes], columns_said: bool) -> str | None:
    fields = lines[0].rstrip(b"\r").decode("utf-8", "replace").split("\t")
    if len(fields) == 3 or (len(fields) > 3 and (columns_said or usual_ends(fields) is not None)):
        return "tsv"
    for delimiter in DELIMITERS if len(fields) == 1 else ():
        records = sniffed_records(head, delimiter)
        if not records or len({len(record) for record in records}) != 1:
            continue
        width = len(records[0])
        if width == 3 or (width > 3 and (columns_said or usual_ends(records[0]) is not None)):
            return "csv"
    return None


def first_record(start: bytes) -> tuple[str, list[str] | None]:
    """The delimiter of a file that opens with `start`, and the fields of its first record (None if it is too long).

    Commas, unless semicolons alone give a header or three fields.
    """
    found = {delimiter: next(iter(sniffed_records(start, delimiter)), None) for delimiter in DELIMITERS}
    for delimiter, fields in found.items():
        if fields is not None and usual_ends(fields) is not None:
            return delimiter, fields
    comma, semicolon = found.values()
    if semicolon is not None and len(semicolon) > 2 and (comma is None or len(comma) < 3):
        return ";", semicolon
    return ",", comma


def sniffed_records(start: bytes, delimiter: str) -> list[list[str]]:
    """The records at the beginning of a file that are whole, without empty lines."""
    text = start.removeprefix(UTF8_MARK)
    if len(text) + len(UTF8_MARK) >= START_BYTES:
        text = text[: text.rfind(b"\n") + 1]
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text.decode("utf-8", "replace"), newline=""), delimiter=delimiter):
            if row:
                rows.append(row)
    except csv.Error:
        pass  # a very long field, or a NUL: the reader of the whole file says what is wrong
    return rows
