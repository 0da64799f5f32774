"""N-Triples: labels are canonical terms, bad lines are named, chunks do not show."""

from __future__ import annotations

import gzip
import lzma
import tempfile
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, Literal, NamedNode

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError, SourceOptions
from dkge_dist.graph.sources.rdf import NTriplesSource
from dkge_dist.types import Split

Triple = tuple[str, str, str]

GOOD = "<http://x/a> <http://x/p> <http://x/b> .\n"
LABELS = ("<http://x/a>", "<http://x/p>", "<http://x/b>")


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "graph.nt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def triples(source: NTriplesSource, rejects: Rejects | None = None) -> list[Triple]:
    found: list[Triple] = []
    for batch in source.batches(rejects or Rejects()):
        assert batch.split is Split.TRAIN
        assert batch.deleted is None
        found += zip(batch.head, batch.relation, batch.tail, strict=True)
    return found


def objects(path: Path) -> list[str]:
    return [tail for _, _, tail in triples(NTriplesSource(path))]


def with_object(term: str) -> str:
    return f"<http://x/a> <http://x/p> {term} .\n"


@pytest.mark.parametrize(
    ("written", "label"),
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
def test_labels_are_canonical_terms(tmp_path: Path, written: str, label: str) -> None:
    assert objects(write(tmp_path, with_object(written))) == [label]


def test_composed_and_decomposed_letters_stay_different(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, '"é"') for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert objects(write(tmp_path, with_object(composed) + with_object(decomposed))) == [composed, decomposed]


def test_very_long_literal(tmp_path: Path) -> None:
    label = '"' + "long " * 100_000 + '"'
    assert objects(write(tmp_path, with_object(label) + GOOD)) == [label, LABELS[2]]


def test_comments_empty_lines_and_blanks_are_skipped(tmp_path: Path) -> None:
    text = "# a comment\n\n \t\n" + GOOD + "  _:s\t<http://x/p>_:o.  # trailing\n" + GOOD.rstrip("\n")
    assert triples(NTriplesSource(write(tmp_path, text))) == [LABELS, ("_:s", "<http://x/p>", "_:o"), LABELS]


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_other_line_ends_end_statements(tmp_path: Path, end: str) -> None:
    path = write(tmp_path, (GOOD * 2 + "nonsense\n" + GOOD).replace("\n", end))
    rejects = Rejects(limit=1)
    assert triples(NTriplesSource(path), rejects) == [LABELS] * 3
    assert rejects.lines[0].startswith(f"{path}:3\t")


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    assert triples(NTriplesSource(write(tmp_path, "\ufeff" + GOOD))) == [LABELS]


def test_empty_file_has_no_triples(tmp_path: Path) -> None:
    assert triples(NTriplesSource(write(tmp_path, ""))) == []


def test_literals_can_be_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, with_object('"x"@en') + GOOD + with_object('"1"') + with_object("_:b"))
    source = NTriplesSource(path, SourceOptions(literals=False))
    assert [tail for _, _, tail in triples(source)] == ["<http://x/b>", "_:b"]
    assert source.counts == {"triples with a literal skipped": 2}


def test_without_literals_to_leave_out_nothing_is_counted(tmp_path: Path) -> None:
    source = NTriplesSource(write(tmp_path, GOOD), SourceOptions(literals=False))
    assert triples(source) == [LABELS]
    assert source.counts == {}


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
    source = NTriplesSource(write(tmp_path, GOOD + with_object(label) + GOOD + with_object(label)))
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
    path = write(tmp_path, "".join(lines))
    rejects = Rejects(limit=6)
    heads = [head for head, _, _ in triples(NTriplesSource(path), rejects)]
    assert heads == [line.split(" ")[0] for line in lines if line != "nonsense\n"]
    assert [line.split("\t")[0] for line in rejects.lines] == [f"{path}:{i}" for i in (1, 2, 501, 502, 701, 1901)]


BAD_LINES = {
    "missing dot": ("<http://x/a> <http://x/p> <http://x/b>", "dot"),
    "missing object": ("<http://x/a> <http://x/p> .", "column 27: The object of a triple"),
    "only a subject": ("<http://x/a>", "middle of triples|IRI"),
    "a fourth term": ("<http://x/a> <http://x/p> <http://x/b> <http://x/g> .", "column 40: .*dot"),
    "two triples in a line": (GOOD.rstrip() + " " + GOOD.rstrip(), "single triple"),
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
    path = write(tmp_path, "# comment\n" + GOOD + line + "\n" + GOOD)
    with pytest.raises(SourceError, match=f"^{path}:3: .*({reason})"):
        triples(NTriplesSource(path))


@pytest.mark.parametrize("kind", BAD_LINES)
@pytest.mark.parametrize("where", ["first", "middle", "twice", "last", "last without newline"])
def test_bad_line_is_set_aside(tmp_path: Path, kind: str, where: str) -> None:
    bad = BAD_LINES[kind][0] + "\n"
    text, lines, good = {
        "first": (bad + GOOD, [1], 1),
        "middle": (GOOD + bad + GOOD, [2], 2),
        "twice": (GOOD + bad + bad + "\n" + GOOD + bad + GOOD, [2, 3, 6], 3),
        "last": (GOOD + bad, [2], 1),
        "last without newline": (GOOD + bad.rstrip("\n"), [2], 1),
    }[where]
    path = write(tmp_path, text)
    rejects = Rejects(limit=3)
    assert triples(NTriplesSource(path), rejects) == [LABELS] * good
    assert [line.split("\t")[0] for line in rejects.lines] == [f"{path}:{line}" for line in lines]
    assert all(line.split("\t")[2] == repr(bad.rstrip("\n")) for line in rejects.lines if kind != "not RDF")


def test_one_bad_line_over_the_limit_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, "bad\n" + GOOD + "worse\n")
    with pytest.raises(SourceError, match=rf"^{path}:3: .*\(1 bad lines were allowed\): 'worse'"):
        triples(NTriplesSource(path), Rejects(limit=1))


def test_invalid_utf8_is_a_bad_line(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.encode() + b'<http://x/a> <http://x/p> "\xff" .\n' + GOOD.encode())
    with pytest.raises(SourceError, match=f"^{path}:2: broken UTF-8 at byte 28"):
        triples(NTriplesSource(path))
    rejects = Rejects(limit=1)
    assert triples(NTriplesSource(path), rejects) == [LABELS] * 2
    assert len(rejects.lines) == 1


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"absent\.nt: no such file"):
        triples(NTriplesSource(tmp_path / "absent.nt"))
    with pytest.raises(SourceError, match="directory"):
        triples(NTriplesSource(tmp_path))


@pytest.mark.parametrize("kind", ["gzip", "xz", "lz4"])
def test_compressed_files_are_read(tmp_path: Path, kind: str) -> None:
    text = (GOOD + with_object('"é\\n"@en')).encode()
    path = tmp_path / "graph.nt.compressed"
    if kind == "lz4":
        with pa.output_stream(path, compression="lz4") as stream:
            stream.write(text)
    else:
        path.write_bytes((gzip if kind == "gzip" else lzma).compress(text))
    source = NTriplesSource(path)
    assert triples(source) == [LABELS, (LABELS[0], LABELS[1], '"é\\n"@en')]
    assert source.bytes_read == source.bytes_total == path.stat().st_size


def test_truncated_gzip_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress(GOOD.encode() * 1000)[:-20])
    with pytest.raises(SourceError, match=f"^{path}: damaged or truncated"):
        triples(NTriplesSource(path))


@pytest.mark.parametrize("chunk_bytes", [7, 64, 1000])
def test_lines_that_straddle_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    text = "".join(f'<http://x/{i}> <http://x/p> "{i} é {"z" * (i % 90)}"@en .\n' for i in range(200))
    path = write(tmp_path, text + "bad\n" + GOOD)
    whole, cut = Rejects(limit=1), Rejects(limit=1)
    expected = triples(NTriplesSource(path), whole)
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk_bytes)
    assert triples(NTriplesSource(path), cut) == expected
    assert len(expected) == 201
    assert cut.lines == whole.lines
    assert cut.lines[0].startswith(f"{path}:201\t")


IRIS = st.text("abcé/?", max_size=6).map(lambda tail: NamedNode("http://x/%20" + tail))
TEXTS = st.text(max_size=20)
LITERALS = st.one_of(
    TEXTS.map(Literal),
    TEXTS.map(lambda text: Literal(text, language="en-gb")),
    st.tuples(TEXTS, IRIS).map(lambda pair: Literal(pair[0], datatype=pair[1])),
)
NODES = st.one_of(IRIS, st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).map(BlankNode))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NODES, IRIS, st.one_of(NODES, LITERALS)), max_size=20))
def test_labels_are_the_strings_of_the_terms(terms: list[tuple[object, object, object]]) -> None:
    expected = [(str(subject), str(predicate), str(term)) for subject, predicate, term in terms]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "".join(" ".join(labels) + " .\n" for labels in expected))
        assert triples(NTriplesSource(path)) == expected
