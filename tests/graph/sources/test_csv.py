"""CSV: labels come back from quotes to the byte, line numbers stay right, and nothing is corrupted in silence."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceOptions
from dkge_dist.graph.sources.columns import parse_columns
from dkge_dist.graph.sources.delimited import CsvSource
from dkge_dist.types import Split
from tests.graph.sources.reading import GOOD, read, refusal, triples, written
from tests.graphs import Labelled, odd_triples


def source(folder: Path, content: bytes | str, columns: str | None = None) -> CsvSource:
    return CsvSource(written(folder / "graph.csv", content), SourceOptions(columns=parse_columns(columns)))


def as_csv(rows: list[Labelled], delimiter: str = ",", end: str = "\r\n", quote_all: bool = False) -> str:
    """As Python's own writer writes it."""
    out = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
    return out.getvalue()


def test_odd_labels_keep_every_byte(tmp_path: Path) -> None:
    rows = [*odd_triples(), ("a,b", 'say "hi"', "two\nlines"), ("tab\there", "r", "crlf\r\ninside\r")]
    assert triples(source(tmp_path, as_csv(rows))) == rows


labels = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(',;"\n\r '), min_size=1, max_size=5)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=12),
    st.integers(1, 40),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([",", ";"]),
)
def test_any_label_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Labelled], chunk: int, end: str, delimiter: str
) -> None:
    content = as_csv([("head", "relation", "tail"), *rows], delimiter, end, quote_all=True)
    path = written(tmp_path_factory.getbasetemp() / "any.csv", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert triples(CsvSource(path)) == rows


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("\ufeffSubject;Predicate;Object\r\na;r;b\r\nb;s;c\r\nc;r;a\r\n", id="excel-with-semicolons"),
        pytest.param("\ufeffh,r,t\r\na,r,b\r\nb,s,c\r\nc,r,a", id="excel-with-commas"),
        pytest.param("\n\na,r,b\n\nb,s,c\nc,r,a\n", id="no-header-empty-lines"),
        pytest.param('"a","r","b"\n"b",s,"c"\nc,r,a\n', id="some-quotes"),
        pytest.param('note,from,to,relation\nx,a,b,r\n,b,c,s\n"1,2",c,a,r\n', id="further-columns"),
    ],
)
def test_ways_to_write_the_same_triples(tmp_path: Path, content: str) -> None:
    assert triples(source(tmp_path, content)) == GOOD


def test_a_header_is_counted_and_no_triple(tmp_path: Path) -> None:
    headed = source(tmp_path, "object,subject,predicate\nb,a,r\n")
    assert triples(headed) == [("a", "r", "b")]
    assert headed.counts == {"header lines (head = 'subject', relation = 'predicate', tail = 'object')": 1}


def test_columns_that_the_user_says(tmp_path: Path) -> None:
    content = "person,film,job\nb,a,r\n"
    assert triples(source(tmp_path, content, "film,job,person")) == [("a", "r", "b")]
    assert triples(source(tmp_path, "b,a,r\n", "2,3,1")) == [("a", "r", "b")]
    assert "no column 'x'; the columns are 'person', 'film', 'job'" in refusal(source(tmp_path, content, "film,x,job"))


@pytest.mark.parametrize("chunk", [5, 1 << 20])
@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("a,r", "2 columns instead of 3: 'a,r'"),
        ('a,"r\ns",b,c', "4 columns instead of 3: 'a,\"r'"),
        ("a,,b", "empty relation: 'a,,b'"),
        ('a,r,""', "empty tail: 'a,r,\"\"'"),
        ('"a"x,r,b', "text after the closing quote of a field: '\"a\"x,r,b'"),
        ('a, "r", b', "a blank before the opening quote of a field: 'a, \"r\", b'"),
    ],
)
def test_bad_records_are_named_by_the_line_where_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, record: str, problem: str
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    content = 'h,r,t\na,"two\nlines",b\n\n' + record + "\n" + as_csv(GOOD, end="\n")
    bad = source(tmp_path, content)
    assert refusal(bad) == f"{bad.path}:5: {problem}"
    assert triples(bad, Rejects(limit=1)) == [("a", "two\nlines", "b"), *GOOD]


@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_a_quote_that_is_not_closed_is_named_and_never_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    bad = source(tmp_path, as_csv(GOOD, end="\n") + 'a,r,"b\n' + as_csv(GOOD, end="\n"))
    assert refusal(bad, Rejects(limit=9)).startswith(f"{bad.path}:4: a quote opens field 3 and is not closed")


def test_quotes_within_a_field_are_plain(tmp_path: Path) -> None:
    assert triples(source(tmp_path, '5" disk,r,Dwayne "Rock" J\n')) == [('5" disk', "r", 'Dwayne "Rock" J')]


def test_a_record_with_broken_utf8_is_set_aside_as_a_whole(tmp_path: Path) -> None:
    bad = source(tmp_path, b'a,r,b\n"two\n\xff lines",s,c\nc,r,a\n')
    rejects = Rejects(limit=1)
    assert triples(bad, rejects) == [GOOD[0], GOOD[2]]
    assert rejects.lines[0].startswith(f"{bad.path}:2\tbroken UTF-8 at byte 6 of the record")


def test_a_header_that_cannot_be_read_costs_no_triple(tmp_path: Path) -> None:
    assert triples(source(tmp_path, "head, relation , tail\na,r,b\n")) == [("a", "r", "b")]


def test_splits_are_the_files_of_a_folder(tmp_path: Path) -> None:
    paths = {split: written(tmp_path / f"{split.label}.csv", as_csv([GOOD[split]])) for split in Split}
    assert read(CsvSource(tmp_path, files=paths)) == list(zip(Split, GOOD, strict=True))
