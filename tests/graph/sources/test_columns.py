"""Which columns are head, relation and tail: by usual names, or as the user says; the first record of CSV."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dkge_dist.graph.sources.base import SourceError
from dkge_dist.graph.sources.columns import Layout, columns_of, first_record, layout_of, parse_columns, usual_columns
from dkge_dist.types import UsageError


@pytest.mark.parametrize(
    ("names", "places"),
    [
        ("h r t", (0, 1, 2)),
        ("head relation tail", (0, 1, 2)),
        ("Subject Predicate Object", (0, 1, 2)),
        ("s p o", (0, 1, 2)),
        ("SOURCE TYPE TARGET", (0, 1, 2)),
        ("source target label", (0, 2, 1)),
        ("from to relation", (0, 2, 1)),
        ("from predicate to", (0, 1, 2)),
        ("id node1 label node2", (1, 2, 3)),
        ("weight tail head relation type label", (2, 3, 1)),
        ("x head relation tail", (1, 2, 3)),
        ("source weight target", None),
        ("head tail", None),
        ("a r b", None),
        ("title director person", None),
    ],
)
def test_usual_names(names: str, places: tuple[int, int, int] | None) -> None:
    assert usual_columns(names.split(), "f") == places


@pytest.mark.parametrize("names", ["source type label target", "head head relation tail", "from to rel predicate"])
def test_names_that_may_mean_two_columns_are_refused(names: str) -> None:
    with pytest.raises(SourceError, match=r"^f:1: which of the columns .* is meant is not clear: say --columns$"):
        usual_columns(names.split(), "f:1")


@pytest.mark.parametrize(
    ("said", "parsed"),
    [
        (None, None),
        ("head,relation,tail", ("head", "relation", "tail")),
        ("3, 1 ,2", (3, 1, 2)),
        (["film", 2, "person"], ("film", 2, "person")),
        ((1, 2, 4), (1, 2, 4)),
    ],
)
def test_what_a_user_says(said: object, parsed: object) -> None:
    assert parse_columns(said) == parsed  # type: ignore[arg-type]


@pytest.mark.parametrize("said", ["", "1,2", "1,2,3,4", "a,a,b", "0,1,2", "a,,b", [1, 1, 2]])
def test_other_than_three_columns_are_wrong_usage(said: object) -> None:
    with pytest.raises(UsageError, match=r"^--columns .*: three different names or numbers"):
        parse_columns(said)  # type: ignore[arg-type]


def test_layout_of_a_file() -> None:
    header = ("to", "note", "from", "type")
    assert layout_of(["a", "r", "b"], None, "f") == Layout()
    assert layout_of(None, (1, 2, 3), "f") == Layout()
    assert layout_of(header, None, "f") == Layout(4, (2, 3, 0), header)
    assert layout_of(["film", "x", "person"], ("person", "x", "film"), "f").header is not None
    assert layout_of(["a", "x", "r", "b"], (1, 3, 4), "f") == Layout(4, (0, 2, 3), None)
    assert layout_of(header, (1, 2, 3), "f").header == header, "numbers do not make a header a triple"
    assert layout_of(header, None, "f").notice == "header lines (head = 'from', relation = 'type', tail = 'to')"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (("a", "b", "x"), "f: no column 'x'; the columns are 'a', 'B', 'c'"),
        ((1, 2, 4), "f: no column 4, there are 3: 'a', 'B', 'c'"),
        ((1, "a", 3), "f: --columns names one column twice; the columns are 'a', 'B', 'c'"),
    ],
)
def test_columns_that_are_not_there_are_named(said: tuple[str | int, str | int, str | int], problem: str) -> None:
    with pytest.raises(SourceError) as caught:
        columns_of(["a", "B", "c"], said, "f")
    assert str(caught.value) == problem


def test_names_are_found_in_any_case() -> None:
    assert columns_of(["a", "B", "c", "C"], ("A", "b", "C"), "f") == (0, 1, 3)
    with pytest.raises(SourceError, match="the columns are 'x', 'y': none are usual"):
        columns_of(["x", "y"], None, "f")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"a,r,b\n", (",", ["a", "r", "b"])),
        (b"a;r;b\n", (";", ["a", "r", "b"])),
        (b"a;r;b,c\n", (";", ["a", "r", "b,c"])),
        (b"a,r;s,b;c\n", (",", ["a", "r;s", "b;c"])),
        (b"head;note,x,y;relation;tail\n", (";", ["head", "note,x,y", "relation", "tail"])),
        (b"\n\r\n\"a,1\";r;b\n", (";", ["a,1", "r", "b"])),
        (b"one\n", (",", ["one"])),
        (b"", (",", None)),
    ],
)  # fmt: skip
def test_delimiter_and_first_record(start: bytes, expected: tuple[str, list[str] | None]) -> None:
    assert first_record(start) == expected


def test_no_kernel_is_needed_to_refuse_a_source() -> None:
    script = "import sys; from dkge_dist.graph.sources import detect; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout == "False\n"
