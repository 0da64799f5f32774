"""TSV, CSV, change files and files of names: columns, line ends, headers, and bad lines that are named or set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceOptions
from dkge_dist.graph.sources.columns import parse_columns
from dkge_dist.graph.sources.delimited import ChangeSource, CsvSource, LabelFileSource, TsvSource, read_table
from dkge_dist.graph.sources.detect import open_label_files, open_source
from tests.graph.sources.reading import GOOD, as_csv, names, refusal, signed, triples, written
from tests.graphs import lines


def source(folder: Path, content: bytes | str) -> TsvSource:
    return TsvSource(written(folder / "graph.tsv", content))


@pytest.mark.parametrize("chunk", [3, 4, 5, 7, 64])
def test_line_numbers_are_right_in_every_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    bad = source(tmp_path, "\ufeff" + lines(GOOD) + "\n" + lines(GOOD) + "one\ttwo\n" + lines(GOOD))
    assert refusal(bad) == f"{bad.path}:8: 2 columns instead of 3: 'one\\ttwo'"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(lines(GOOD, end="\r\n"), id="crlf"),
        pytest.param(lines(GOOD, end="\r\n").removesuffix("\r\n"), id="crlf-without-the-last"),
        pytest.param(lines(GOOD[:2], end="\r\n") + lines(GOOD[2:]), id="crlf-then-lf"),
        pytest.param("\r\n\n" + lines(GOOD, end="\r\n"), id="crlf-after-empty-lines"),
        pytest.param("\n" + lines(GOOD, end="\r\n") + "\r\n", id="crlf-after-an-lf-line"),
        pytest.param(lines(GOOD).removesuffix("\n"), id="no-last-newline"),
        pytest.param("\ufeff" + lines(GOOD), id="byte-order-mark"),
        pytest.param("\n\n" + lines(GOOD, end="\n\n"), id="empty-lines"),
    ],
)
def test_line_ends_and_marks_are_no_part_of_labels(tmp_path: Path, content: str) -> None:
    assert triples(source(tmp_path, content)) == GOOD


def test_crlf_after_a_first_line_that_is_set_aside(tmp_path: Path) -> None:
    broken = source(tmp_path, b"a\tr\t\xff\r\nonly one\r\n" + lines(GOOD, end="\r\n").encode())
    rejects = Rejects(limit=2)
    assert triples(broken, rejects) == GOOD
    assert rejects.lines == [
        f"{broken.path}:1\tbroken UTF-8 at byte 5 of the line\t" + repr("a\tr\t\\xff"),
        f"{broken.path}:2\t1 columns instead of 3\t'only one'",
    ]


@pytest.mark.parametrize("chunk", [8, 1 << 20])
def test_carriage_return_without_crlf_is_part_of_the_label_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    mixed = source(tmp_path, "a\tr\tb\nc\tr\td\r\n")
    assert triples(mixed) == [("a", "r", "b"), ("c", "r", "d\r")]
    assert mixed.counts == {"last fields that end in a carriage return": 1}


def test_empty_lines_are_counted_and_invalid_ones_are_not_empty(tmp_path: Path) -> None:
    holes = source(tmp_path, b"\na\tr\tb\n\r\n\xff\n\nb\tr\tc\n")
    assert len(triples(holes, Rejects(limit=1))) == 2
    assert holes.counts == {"empty lines skipped": 3}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("one", "1 columns instead of 3: 'one'"),
        ("a\tr", "2 columns instead of 3: 'a\\tr'"),
        ("a\tr\tb\tc", "4 columns instead of 3: 'a\\tr\\tb\\tc'"),
        ("\ta\tr\tb", "4 columns instead of 3: '\\ta\\tr\\tb'"),
        ("a r b", "1 columns instead of 3: 'a r b'"),
        (" ", "1 columns instead of 3: ' '"),
        ("\tr\tb", "empty head: '\\tr\\tb'"),
        ("a\t\tb", "empty relation: 'a\\t\\tb'"),
        ("a\tr\t", "empty tail: 'a\\tr\\t'"),
        ("\t\t", "empty head: '\\t\\t'"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_bad_lines_are_named(tmp_path: Path, line: str, problem: str, end: str) -> None:
    bad = source(tmp_path, lines(GOOD, end=end) + line + end + lines(GOOD, end=end))
    assert refusal(bad) == f"{bad.path}:4: {problem}"


@pytest.mark.parametrize("chunk", [3, 11, 1 << 20])
def test_bad_lines_are_set_aside_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    bad = source(tmp_path, b"a\tr\tb\n\xff\tr\tb\nb\ts\tc\nonly\ttwo\nx\t\ty\nc\tr\ta\n\xfe\n")
    rejects = Rejects(limit=4)
    assert triples(bad, rejects) == GOOD
    assert sorted(line.split("\t")[:2] for line in rejects.lines) == [
        [f"{bad.path}:2", "broken UTF-8 at byte 1 of the line"],
        [f"{bad.path}:4", "2 columns instead of 3"],
        [f"{bad.path}:5", "empty relation"],
        [f"{bad.path}:7", "broken UTF-8 at byte 1 of the line"],
    ]


@pytest.mark.parametrize("delimiter", [",", "|"])
def test_columns_and_line_numbers_of_any_delimiter(tmp_path: Path, delimiter: str) -> None:
    content = "".join(delimiter.join(f"{i}{letter}" for letter in "abcd") + "\n\n" for i in range(3))
    given = source(tmp_path, content)
    (table,) = read_table(given.path, 4, given, Rejects(), delimiter)
    assert [list(column) for column in table.columns] == [[f"{i}{letter}" for i in range(3)] for letter in "abcd"]
    assert table.lines.tolist() == [1, 3, 5]


def csv_source(folder: Path, content: bytes | str, columns: str | None = None) -> CsvSource:
    return CsvSource(written(folder / "graph.csv", content), SourceOptions(columns=parse_columns(columns)))


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
    assert triples(csv_source(tmp_path, content)) == GOOD


def test_a_header_is_counted_and_no_triple(tmp_path: Path) -> None:
    headed = csv_source(tmp_path, "object,subject,predicate\nb,a,r\n")
    assert triples(headed) == [("a", "r", "b")]
    assert headed.counts == {"header lines (head = 'subject', relation = 'predicate', tail = 'object')": 1}


def test_columns_that_the_user_says(tmp_path: Path) -> None:
    content = "person,film,job\nb,a,r\n"
    assert triples(csv_source(tmp_path, content, "film,job,person")) == [("a", "r", "b")]
    assert triples(csv_source(tmp_path, "b,a,r\n", "2,3,1")) == [("a", "r", "b")]
    assert "no column 'x'; the columns are 'person', 'film', 'job'" in refusal(
        csv_source(tmp_path, content, "film,x,job")
    )


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
    content = 'h,r,t\na,"two\nlines",b\n\n' + record + "\n" + as_csv(GOOD)
    bad = csv_source(tmp_path, content)
    assert refusal(bad) == f"{bad.path}:5: {problem}"
    assert triples(bad, Rejects(limit=1)) == [("a", "two\nlines", "b"), *GOOD]


@pytest.mark.parametrize("chunk", [4, 1 << 20])
def test_a_quote_that_is_not_closed_is_named_and_never_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    bad = csv_source(tmp_path, "a,r,b\n" * 3 + 'a,r,"b\n' + "a,r,b\n")
    assert refusal(bad, Rejects(limit=9)).startswith(f"{bad.path}:4: a quote opens field 3 and is not closed")


def test_a_record_with_broken_utf8_is_set_aside_as_a_whole(tmp_path: Path) -> None:
    bad = csv_source(tmp_path, b'a,r,b\n"two\n\xff lines",s,c\nc,r,a\n')
    rejects = Rejects(limit=1)
    assert triples(bad, rejects) == [GOOD[0], GOOD[2]]
    assert rejects.lines[0].startswith(f"{bad.path}:2\tbroken UTF-8 at byte 6 of the record")


CHANGES = [("+", ("a", "r", "b")), ("-", ("b", "s", "c")), ("+", ("c", "r", "a"))]

apart = pytest.mark.parametrize("glued", [False, True], ids=["apart", "glued"])


def change_source(folder: Path, content: str | bytes) -> ChangeSource:
    return ChangeSource(written(folder / "night.changes", content))


NO_SIGN = "the line opens with neither + nor -"


@pytest.mark.parametrize(
    ("glued", "line", "problem"),
    [
        (False, "+\ta\tr", "3 columns instead of 4"),
        (False, "+a\tr\tb", "3 columns instead of 4"),
        (False, "*\ta\tr\tb", NO_SIGN),
        (False, "\ta\tr\tb", NO_SIGN),
        (False, "++\ta\tr\tb", NO_SIGN),
        (False, "−\ta\tr\tb", NO_SIGN),
        (False, "+\t\tr\tb", "empty head"),
        (False, "-\ta\t\tb", "empty relation"),
        (False, "+\ta\tr\t", "empty tail"),
        (True, "+\ta\tr\tb", "4 columns instead of 3"),
        (True, "a\tr\tb", NO_SIGN),
        (True, "\tr\tb", NO_SIGN),
        (True, "+\tr\tb", "empty head"),
        (True, "+a\tr\t", "empty tail"),
    ],
)
def test_bad_changes_are_named(tmp_path: Path, glued: bool, line: str, problem: str) -> None:
    good = lines(GOOD, "+" if glued else "+\t")
    bad = change_source(tmp_path, good + line + "\n" + good)
    assert refusal(bad) == f"{bad.path}:4: {problem}: {line!r}"


@apart
def test_bad_lines_are_set_aside_with_the_right_sign_for_the_others(tmp_path: Path, glued: bool) -> None:
    tab = "" if glued else "\t"
    content = f"+{tab}a\tr\tb\n*{tab}x\tr\ty\n-{tab}b\ts\tc\n+{tab}x\t\ty\n\n-{tab}x\n+{tab}c\tr\ta\n"
    bad = change_source(tmp_path, content)
    rejects = Rejects(limit=3)
    assert signed(bad, rejects) == CHANGES
    assert sorted(line.split("\t")[0] for line in rejects.lines) == [f"{bad.path}:{number}" for number in (2, 4, 6)]
    assert bad.counts == {"empty lines skipped": 1}


def test_first_line_without_tail_is_not_taken_for_glued(tmp_path: Path) -> None:
    opened = open_source(written(tmp_path / "night.changes", "+\ta\tr\n" + lines(GOOD, "+\t")))
    rejects = Rejects(limit=1)
    assert [triple for _, triple in signed(opened, rejects)] == GOOD
    assert rejects.lines == [f"{opened.path}:1\t3 columns instead of 4\t" + repr("+\ta\tr")]


def test_each_line_is_a_name_and_the_last_one_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "names.tsv", "tt1\tThe Matrix\nP161\tcast member\n\ntt1\tMatrix\n")
    (source,) = open_label_files([path])
    assert names(source) == {"tt1": "Matrix", "P161": "cast member"}
    assert triples(LabelFileSource(path)) == []
    assert source.counts == {"empty lines skipped": 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [("tt2", "1 columns instead of 2"), ("tt2\ta\tb", "3 columns instead of 2"), ("\tname", "empty label")],
)  # fmt: skip
def test_lines_that_are_no_names_are_told(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path / "names.tsv", f"tt1\tone\n{line}\ntt3\tthree\n")
    assert refusal(LabelFileSource(path)) == f"{path}:2: {reason}: {line!r}"
    rejects = Rejects(1)
    assert names(LabelFileSource(path), rejects) == {"tt1": "one", "tt3": "three"}
    assert len(rejects.lines) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_name_is_one(tmp_path: Path, end: str) -> None:
    path = written(tmp_path / "names.tsv", f"tt1\tone{end}tt2\t{end}tt1\t{end}")
    assert names(LabelFileSource(path)) == {"tt1": "", "tt2": ""}


def test_a_file_that_is_not_there_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"nothing\.tsv: no such file"):
        open_label_files([tmp_path / "nothing.tsv"])
