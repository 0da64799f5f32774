"""RDF: labels are canonical terms, the same in every syntax and at every ingest; names are no triples."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode, Quad, RdfFormat, serialize

from dkge_dist.graph.sources import files, rdf
from dkge_dist.graph.sources.base import Rejects, SourceError, SourceOptions
from dkge_dist.graph.sources.rdf import (
    NAME_PROPERTIES,
    NQuadsSource,
    NTriplesSource,
    RdfXmlSource,
    TrigSource,
    TurtleSource,
)
from dkge_dist.types import UsageError
from tests.graph.sources.reading import names, refusal, triples, written

Triple = tuple[str, str, str]

STATEMENT = "<http://x/a> <http://x/p> <http://x/b> .\n"
LABELS = ("<http://x/a>", "<http://x/p>", "<http://x/b>")


def in_file(folder: Path, text: str | bytes) -> Path:
    path = folder / "graph.nt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def objects(path: Path) -> list[str]:
    return [tail for _, _, tail in triples(NTriplesSource(path))]


def with_object(term: str) -> str:
    return f"<http://x/a> <http://x/p> {term} .\n"


@pytest.mark.parametrize(
    ("spelling", "label"),
    [
        ('"plain"', '"plain"'),
        ('"NA"', '"NA"'),
        ('""', '""'),
        ('"a \\"quoted\\" word"', '"a \\"quoted\\" word"'),
        ('"tab\\tline\\nback\\\\slash"@en', '"tab\\tline\\nback\\\\slash"@en'),
        ('"raw\ttab"', '"raw\\ttab"'),
        ('"caf\\u00E9"', '"café"'),
        ('"\\U0001F600"', '"😀"'),
        ('"a\u2028b"', '"a\u2028b"'),
        ('"dots . and <brackets> # no comment"', '"dots . and <brackets> # no comment"'),
        ('"1"^^<http://www.w3.org/2001/XMLSchema#integer>', '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        ('"1"^^<http://www.w3.org/2001/XMLSchema#string>', '"1"'),
        ("<http://x/caf\\u00E9>", "<http://x/café>"),
        ("_:node.1-b", "_:node.1-b"),
    ],
)
def test_labels_are_canonical_terms(tmp_path: Path, spelling: str, label: str) -> None:
    assert objects(in_file(tmp_path, with_object(spelling))) == [label]


def test_comments_empty_lines_and_blanks_are_skipped(tmp_path: Path) -> None:
    text = "# a comment\n\n \t\n" + STATEMENT + "  _:s\t<http://x/p>_:o.  # trailing\n" + STATEMENT.rstrip("\n")
    assert triples(NTriplesSource(in_file(tmp_path, text))) == [LABELS, ("_:s", "<http://x/p>", "_:o"), LABELS]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends_end_statements(tmp_path: Path, end: str) -> None:
    path = in_file(tmp_path, (STATEMENT * 2 + "nonsense\n" + STATEMENT).replace("\n", end))
    rejects = Rejects(limit=1)
    assert triples(NTriplesSource(path), rejects) == [LABELS] * 3
    assert rejects.lines[0].startswith(f"{path}:3\t")


def test_literals_can_be_left_out(tmp_path: Path) -> None:
    path = in_file(tmp_path, with_object('"x"@en') + STATEMENT + with_object('"1"') + with_object("_:b"))
    source = NTriplesSource(path, SourceOptions(literals=False))
    assert [tail for _, _, tail in triples(source)] == ["<http://x/b>", "_:b"]
    assert source.counts == {"triples with a literal skipped": 2}


@pytest.mark.parametrize(
    "label",
    [
        "<relative>",
        "<http://x/100%>",
        "<http://x/a#b#c>",
        "<http://x/a?b[]=1>",
        "<http://x:port/>",
        '"a b"@zh-classical',
        '"1"^^<integer>',
    ],
)
def test_what_follows_the_grammar_is_kept_and_counted(tmp_path: Path, label: str) -> None:
    source = NTriplesSource(in_file(tmp_path, STATEMENT + with_object(label) + STATEMENT + with_object(label)))
    rejects = Rejects(limit=1)
    tails = [tail for _, _, tail in triples(source, rejects)]
    assert tails == [LABELS[2], label, LABELS[2], label]
    assert source.counts == {"lines with an invalid IRI or language tag kept": 2}
    assert rejects.lines == []


def test_many_bad_lines_among_many_good_ones(tmp_path: Path) -> None:
    """Longer stretches than the window in which reading goes on after a bad line."""
    lines = [f"<http://x/{i}> <http://x/p> <http://x/b> .\n" for i in range(2000)]
    for i in (0, 1, 500, 501, 700, 1900):
        lines[i] = "nonsense\n"
    lines[600] = "<600> <http://x/p> <http://x/b> .\n"
    path = in_file(tmp_path, "".join(lines))
    rejects = Rejects(limit=6)
    heads = [head for head, _, _ in triples(NTriplesSource(path), rejects)]
    assert heads == [line.split(" ")[0] for line in lines if line != "nonsense\n"]
    assert [line.split("\t")[0] for line in rejects.lines] == [f"{path}:{i}" for i in (1, 2, 501, 502, 701, 1901)]


BAD_LINES = {
    "missing dot": ("<http://x/a> <http://x/p> <http://x/b>", "dot"),
    "missing object": ("<http://x/a> <http://x/p> .", "column 27: The object of a triple"),
    "only a subject": ("<http://x/a>", "middle of triples|IRI"),
    "a fourth term": ("<http://x/a> <http://x/p> <http://x/b> <http://x/g> .", "column 40: .*dot"),
    "two triples in a line": (STATEMENT.rstrip() + " " + STATEMENT.rstrip(), "single triple"),
    "quote in an IRI": ('<http://x/a"> <http://x/p> <http://x/b> .', "Invalid IRI"),
    "escaped space in an IRI": ("<http://x/a\\u0020b> <http://x/p> <http://x/b> .", "Invalid IRI"),
    "escaped newline in an IRI": ("<http://x/a\\u000Ab> <http://x/p> <http://x/b> .", "Invalid IRI"),
    "space in a datatype": ('<http://x/a> <http://x/p> "1"^^<http://x/a b> .', "Invalid IRI"),
    "underscore in a language": ('<http://x/a> <http://x/p> "a"@en_GB .', "Unexpected character"),
    "space in an IRI": ("<http://x/a b> <http://x/p> <http://x/b> .", "Invalid IRI"),
    "IRI without end": ("<http://x/a> <http://x/p> <http://x/b .", "IRI"),
    "literal without end": ('<http://x/a> <http://x/p> "open .', "string literals|end of file"),
    "literal subject": ('"a" <http://x/p> <http://x/b> .', "subject"),
    "blank predicate": ("<http://x/a> _:p <http://x/b> .", "predicate"),
    "unknown escape": ('<http://x/a> <http://x/p> "\\q" .', "escape"),
    "surrogate escape": ('<http://x/a> <http://x/p> "\\uD800" .', "not a valid unicode"),
    "not RDF": ("a\tb\tc", ""),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_bad_line_is_named(tmp_path: Path, kind: str) -> None:
    line, reason = BAD_LINES[kind]
    path = in_file(tmp_path, "# comment\n" + STATEMENT + line + "\n" + STATEMENT)
    with pytest.raises(SourceError, match=f"^{path}:3: .*({reason})"):
        triples(NTriplesSource(path))


@pytest.mark.parametrize("kind", BAD_LINES)
@pytest.mark.parametrize("where", ["first", "middle", "twice", "last", "last without newline"])
def test_bad_line_is_set_aside(tmp_path: Path, kind: str, where: str) -> None:
    bad = BAD_LINES[kind][0] + "\n"
    text, lines, good = {
        "first": (bad + STATEMENT, [1], 1),
        "middle": (STATEMENT + bad + STATEMENT, [2], 2),
        "twice": (STATEMENT + bad + bad + "\n" + STATEMENT + bad + STATEMENT, [2, 3, 6], 3),
        "last": (STATEMENT + bad, [2], 1),
        "last without newline": (STATEMENT + bad.rstrip("\n"), [2], 1),
    }[where]
    path = in_file(tmp_path, text)
    rejects = Rejects(limit=3)
    assert triples(NTriplesSource(path), rejects) == [LABELS] * good
    assert [line.split("\t")[0] for line in rejects.lines] == [f"{path}:{line}" for line in lines]
    assert all(line.split("\t")[2] == repr(bad.rstrip("\n")) for line in rejects.lines if kind != "not RDF")


IRIS = st.text("abcé/?", max_size=6).map(lambda tail: NamedNode("http://x/%20" + tail))
TEXTS = st.text(max_size=20)
LITERALS = st.one_of(
    TEXTS.map(Literal),
    TEXTS.map(lambda text: Literal(text, language="en-gb")),
    st.tuples(TEXTS, IRIS).map(lambda pair: Literal(pair[0], datatype=pair[1])),
)
NODES = st.one_of(IRIS, st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).map(BlankNode))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NODES, IRIS, st.one_of(NODES, LITERALS)), max_size=20), st.integers(1, 100))
def test_labels_are_the_strings_of_the_terms(terms: list[tuple[object, object, object]], chunk: int) -> None:
    expected = [(str(subject), str(predicate), str(term)) for subject, predicate, term in terms]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        path = in_file(Path(folder), "".join(" ".join(labels) + " .\n" for labels in expected))
        assert triples(NTriplesSource(path)) == expected


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


LABEL, PREFERRED, NAME, SECURE_NAME = NAME_PROPERTIES
OTHER = "<x:a> <x:p> <x:b> .\n"


def named_source(folder: Path, *statements: str, literals: bool = True, language: str = "en") -> NTriplesSource:
    path = written(folder / "graph.nt", OTHER + "".join(f"{statement} .\n" for statement in statements))
    return NTriplesSource(path, SourceOptions(literals=literals, label_language=language))


@pytest.mark.parametrize("literals", [True, False])
@pytest.mark.parametrize("naming", NAME_PROPERTIES)
def test_statements_that_name_are_no_triples(tmp_path: Path, naming: str, literals: bool) -> None:
    made = named_source(tmp_path, f'<x:a> {naming} "A"@en', f'<x:p> {naming} "is p of"', literals=literals)
    assert triples(made) == [("<x:a>", "<x:p>", "<x:b>")]
    assert names(made) == {"<x:a>": "A", "<x:p>": "is p of"}
    assert made.counts == {}


def test_other_literals_and_names_that_are_no_literals_stay_triples(tmp_path: Path) -> None:
    made = named_source(tmp_path, '<x:a> <x:note> "A"@en', f"<x:a> {LABEL} <x:label>")
    assert len(triples(made)) == 3
    assert names(made) == {}


@pytest.mark.parametrize("order", [1, -1])
def test_the_language_decides_then_the_property(tmp_path: Path, order: int) -> None:
    ranked = [
        f'<x:a> {LABEL} "1"@en', f'<x:a> {PREFERRED} "2"@en', f'<x:a> {NAME} "3"@en', f'<x:a> {SECURE_NAME} "4"@en',
        f'<x:a> {LABEL} "5"@en-GB', f'<x:a> {NAME} "6"@en-us', f'<x:a> {LABEL} "7"', f'<x:a> {NAME} "8"',
    ]  # fmt: skip
    for best in range(len(ranked)):
        assert names(named_source(tmp_path, *ranked[best:][::order])) == {"<x:a>": str(best + 1)}


def test_other_languages_are_left_out_and_counted(tmp_path: Path) -> None:
    statements = [f'<x:a> {LABEL} "Brücke"@de', f'<x:a> {LABEL} "bridge"@en', f'<x:b> {LABEL} "Haus"@de']
    made = named_source(tmp_path, *statements)
    assert names(made) == {"<x:a>": "bridge"}
    assert made.counts == {"names in other languages left out (--label-language)": 2}
    assert names(named_source(tmp_path, *statements, language="DE")) == {"<x:a>": "Brücke", "<x:b>": "Haus"}
    assert names(named_source(tmp_path, f'<x:a> {LABEL} "x"@eng', f'<x:a> {LABEL} "y"@e')) == {}


@pytest.mark.parametrize("language", ["", "e n", "en-", "@en", "é"])
def test_languages_that_are_none(tmp_path: Path, language: str) -> None:
    with pytest.raises(UsageError, match="no language tag"):
        named_source(tmp_path, language=language)


def test_an_empty_name_is_none(tmp_path: Path) -> None:
    assert names(named_source(tmp_path, f'<x:a> {LABEL} ""', f'<x:b> {LABEL} ""@en')) == {}


@settings(max_examples=60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1), st.booleans())
def test_any_text_comes_back_without_escapes(texts: list[str], tagged: bool) -> None:
    """As another program writes it: quotes, backslashes, line ends and controls are escapes."""
    language = "en" if tagged else None
    quads = [
        Quad(NamedNode(f"x:{i}"), NamedNode(LABEL[1:-1]), Literal(text, language=language))
        for i, text in enumerate(texts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "x.nt", serialize(quads, format=RdfFormat.N_TRIPLES) or b"")
        assert names(NTriplesSource(path), Rejects()) == {f"<x:{i}>": text for i, text in enumerate(texts)}
