"""Delimited lines: columns, line ends, empty lines, and bad lines that are named or set aside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.delimited import Table, TsvSource, read_table
from tests.graph.sources.reading import GOOD, refusal, triples, written
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


def test_crlf_after_a_long_first_line(tmp_path: Path) -> None:
    long = [("h" * 5000, "r", "t"), ("a", "r", "b")]
    assert triples(source(tmp_path, lines(long, end="\r\n"))) == long


def test_crlf_after_a_first_line_that_is_set_aside(tmp_path: Path) -> None:
    broken = source(tmp_path, b"a\tr\t\xff\r\nonly one\r\n" + lines(GOOD, end="\r\n").encode())
    rejects = Rejects(limit=2)
    assert triples(broken, rejects) == GOOD
    assert rejects.lines == [
        f"{broken.path}:1\tbroken UTF-8 at byte 5 of the line\t" + repr("a\tr\t\\xff"),
        f"{broken.path}:2\t1 columns instead of 3\t'only one'",
    ]


def test_carriage_return_without_crlf_is_part_of_the_label_and_counted(tmp_path: Path) -> None:
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


def test_cut_last_line_is_named(tmp_path: Path) -> None:
    bad = source(tmp_path, lines(GOOD) + "a\tr")
    assert refusal(bad) == f"{bad.path}:4: 2 columns instead of 3: 'a\\tr'"


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


def test_one_bad_line_over_the_limit_is_an_error(tmp_path: Path) -> None:
    bad = source(tmp_path, "x\n" + lines(GOOD) + "y\nz\n")
    assert refusal(bad, Rejects(limit=2)) == f"{bad.path}:6: 1 columns instead of 3 (2 bad lines were allowed): 'z'"


@pytest.mark.parametrize("delimiter", [",", "|"])
def test_columns_and_line_numbers_of_any_delimiter(tmp_path: Path, delimiter: str) -> None:
    content = "".join(delimiter.join(f"{i}{letter}" for letter in "abcd") + "\n\n" for i in range(3))
    given = source(tmp_path, content)
    (table,) = read_table(given.path, 4, given, Rejects(), delimiter)
    assert [list(column) for column in table.columns] == [[f"{i}{letter}" for i in range(3)] for letter in "abcd"]
    assert table.lines.tolist() == [1, 3, 5]


def table_of(rows: list[str]) -> Table:
    """Lines of a file as columns; line numbers from 10 on."""
    data = "".join(row + "\n" for row in rows)
    starts = np.cumsum([0, *(len(row) + 1 for row in rows)])[:-1]
    columns = []
    for number in range(3):
        cuts = [[0, *(i + 1 for i, c in enumerate(row) if c == "\t"), len(row) + 1] for row in rows]
        begin = np.array([cut[number] for cut in cuts]) + starts
        end = np.array([cut[number + 1] - 1 for cut in cuts]) + starts
        columns.append(Labels(np.frombuffer(data.encode(), np.uint8), begin, end))
    return Table(columns, np.arange(10, 10 + len(rows)), columns[0].data, columns[0].start)


def test_usable_rows_have_all_labels_and_no_problem() -> None:
    table = table_of(["a\tr\tb", "\tr\tb", "c\tr\td", "e\tr\t"])
    rejects = Rejects(limit=3)
    left = table.labelled(Path("f"), rejects, {"the problem": np.array([False, True, True, False])})
    assert [list(column) for column in left.columns] == [["a"], ["r"], ["b"]]
    assert left.lines.tolist() == [10]
    assert [line.split("\t")[:2] for line in rejects.lines] == [
        ["f:11", "the problem"], ["f:12", "the problem"], ["f:13", "empty tail"]
    ]  # fmt: skip
    with pytest.raises(SourceError, match=r"^f:11: empty head"):
        table.labelled(Path("f"), Rejects())


def test_table_without_problems_is_returned_as_it_is() -> None:
    table = table_of(["a\tr\tb"])
    assert table.labelled(Path("f"), Rejects()) is table
