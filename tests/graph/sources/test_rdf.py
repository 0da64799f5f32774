"""Turtle, TriG and RDF/XML give the labels that N-Triples gives, the same at every ingest."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dkge_dist.graph.sources import files, rdf
from dkge_dist.graph.sources.base import Rejects, SourceOptions
from dkge_dist.graph.sources.rdf import NQuadsSource, NTriplesSource, RdfXmlSource, TrigSource, TurtleSource
from tests.graph.sources.reading import refusal, triples, written

PREFIX = "@prefix x: <http://x/> .\n"
NAMED = "triples of named graphs, whose names are dropped"
XML = (
    '<?xml version="1.0"?>\n{}<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/">\n'
    '<rdf:Description rdf:about="http://x/a"><x:p rdf:resource="http://x/b"/><x:q xml:lang="en">{}</x:q>'
    "</rdf:Description>\n</rdf:RDF>\n"
)


def test_turtle_with_prefixes(tmp_path: Path) -> None:
    content = PREFIX + 'x:a x:p x:b , "é"@EN ;\n  x:q 1 .\n_:n x:p x:a .\n'
    found = triples(TurtleSource(written(tmp_path / "graph.ttl", "\ufeff" + content)))
    assert found == [
        ("<http://x/a>", "<http://x/p>", "<http://x/b>"),
        ("<http://x/a>", "<http://x/p>", '"é"@en'),
        ("<http://x/a>", "<http://x/q>", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        ("_:n", "<http://x/p>", "<http://x/a>"),
    ]


@pytest.mark.parametrize("chunk", [7, 1 << 20])
def test_the_labels_are_those_of_ntriples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(rdf, "BATCH_TRIPLES", 3)
    lines = "".join(
        f"<http://x/{i}> <http://x/p{i % 3}> {term} .\n"
        for i, term in enumerate(['"a\\nb"', '"\\u00e9"@en-GB', "_:b1", "<http://x/é>", '"1"^^<http://x/int>'] * 3)
    )
    path = written(tmp_path / "graph", gzip.compress(lines.encode()))
    expected = triples(NTriplesSource(path))
    assert len(expected) == 15
    for reader in (TurtleSource, TrigSource, NQuadsSource):
        source = reader(path)
        assert triples(source) == expected
        assert source.bytes_read == source.bytes_total


def test_nodes_without_a_name_are_numbered_by_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.ttl", PREFIX + "x:a x:p [ x:q x:b ] , [ x:q x:c ] .\n")
    found = triples(TurtleSource(path))
    assert {label for h, _, t in found for label in (h, t)} == {
        "<http://x/a>", "<http://x/b>", "<http://x/c>", "_:anonymous1", "_:anonymous2"
    }  # fmt: skip
    assert triples(TurtleSource(path)) == found
    many = written(tmp_path / "many.ttl", PREFIX + "x:a x:p [] .\n" * 5000)
    tails = [tail for _, _, tail in triples(TurtleSource(many))]
    assert tails == [f"_:anonymous{number}" for number in range(1, 5001)], "also those that the parser names shortly"
    own = TurtleSource(written(tmp_path / "own.ttl", PREFIX + "_:anonymous1 x:p x:b .\n"))
    assert "blank node _:anonymous1 is named as those are that have no name" in refusal(own)


def test_literals_can_be_left_out(tmp_path: Path) -> None:
    source = TurtleSource(
        written(tmp_path / "graph.ttl", PREFIX + 'x:a x:p x:b, "text" .\n'), SourceOptions(literals=False)
    )
    assert triples(source) == [("<http://x/a>", "<http://x/p>", "<http://x/b>")]
    assert source.counts == {"triples with a literal skipped": 1}


def test_names_of_graphs_are_dropped_and_counted(tmp_path: Path) -> None:
    trig = TrigSource(written(tmp_path / "a.trig", PREFIX + "x:g { x:a x:p x:b . x:a x:p x:c } x:a x:p x:d .\n"))
    assert [tail for _, _, tail in triples(trig)] == ["<http://x/b>", "<http://x/c>", "<http://x/d>"]
    assert trig.counts == {NAMED: 2}
    lines = '<x:a> <x:p> "b c" <x:g> .\n<x:a> <x:p> <x:d> .\nbad\n<x:a> <x:p> <x:%> _:g .\n'
    quads = NQuadsSource(written(tmp_path / "a.nq", lines))
    assert refusal(quads).startswith(f"{quads.path}:3: ")
    quads = NQuadsSource(quads.path)
    assert [tail for _, _, tail in triples(quads, Rejects(limit=1))] == ['"b c"', "<x:d>", "<x:%>"]
    assert quads.counts == {NAMED: 2, "lines with an invalid IRI or language tag kept": 1}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("x:a x:p x:b .\n\nx:a x:p y:b .\n", 4, "column 9: The prefix y: has not been declared"),
        ("x:a x:p <b> .\n", 2, "No scheme found in an absolute IRI; declare an @base in the file"),
        ("x:a x:p x:b", 2, "Unexpected end"),
        ("x:a x:p <http://a b> .\n", 2, "Invalid IRI"),
    ],
)
def test_errors_name_the_line_and_end_reading(tmp_path: Path, text: str, line: int, problem: str) -> None:
    bad = TurtleSource(written(tmp_path / "graph.ttl", PREFIX + text))
    message = refusal(bad, Rejects(limit=9))
    assert message.startswith(f"{bad.path}:{line}: not turtle: ")
    assert problem in message


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole = gzip.compress((PREFIX + "x:a x:p x:b .\n" * 1000).encode())
    assert "damaged or truncated" in refusal(TurtleSource(written(tmp_path / "a.ttl.gz", whole[:-9])))


def test_rdf_xml(tmp_path: Path) -> None:
    entity = '<!DOCTYPE rdf:RDF [ <!ENTITY y "http://y/" > ]>\n'
    source = RdfXmlSource(written(tmp_path / "graph.rdf", XML.format(entity, "&y;text")))
    assert triples(source) == [
        ("<http://x/a>", "<http://x/p>", "<http://x/b>"),
        ("<http://x/a>", "<http://x/q>", '"http://y/text"@en'),
    ]


@pytest.mark.parametrize("chunk", [30, 1 << 20])
@pytest.mark.parametrize(
    "entities",
    [
        '<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">',
        '<!ENTITY a "&#38;a;">',
        '<!ENTITY a SYSTEM "/etc/passwd">',
        '<!ENTITY % a "x">',
        f'<!ENTITY a "{"x" * 2000}">',
    ],
)
def test_entities_that_may_expand_to_anything_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, entities: str
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    source = RdfXmlSource(written(tmp_path / "graph.rdf", XML.format(f"<!DOCTYPE r [ {entities} ]>", "&a;")))
    assert "an entity that is not a short plain text is declared" in refusal(source)


def test_other_xml_is_refused(tmp_path: Path) -> None:
    assert "not rdfxml: " in refusal(RdfXmlSource(written(tmp_path / "a.rdf", "<html><body/></html>")))
    wide = RdfXmlSource(written(tmp_path / "b.rdf", XML.format("", "x").encode("utf-16")))
    assert "not UTF-8; convert it" in refusal(wide)
