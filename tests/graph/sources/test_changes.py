"""Change files: signs with and without a tab after them, and an error with file and line for the rest."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects
from dkge_dist.graph.sources.delimited import ChangeSource
from dkge_dist.graph.sources.detect import open_source
from tests.graph.sources.reading import refusal, signed, written
from tests.graphs import Labelled, lines, odd_triples

CHANGES = [("+", ("a", "r", "b")), ("-", ("b", "s", "c")), ("+", ("c", "r", "a"))]

apart = pytest.mark.parametrize("glued", [False, True], ids=["apart", "glued"])


def text(changes: list[tuple[str, Labelled]], glued: bool, end: str = "\n") -> str:
    return "".join(lines([triple], sign if glued else f"{sign}\t", end) for sign, triple in changes)


def source(folder: Path, content: str | bytes, glued: bool = False) -> ChangeSource:
    return ChangeSource(written(folder / "night.changes", content))


@apart
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_signs_and_triples_in_order(tmp_path: Path, glued: bool, end: str) -> None:
    change = source(tmp_path, text(CHANGES, glued, end), glued)
    assert change.is_change
    assert not change.brings_splits
    assert signed(change) == CHANGES


@apart
def test_odd_labels_keep_every_byte(tmp_path: Path, glued: bool) -> None:
    changes = [("+-"[i % 2], triple) for i, triple in enumerate(odd_triples())]
    assert signed(source(tmp_path, text(changes, glued), glued)) == changes


labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=5)
changes = st.lists(st.tuples(st.sampled_from("+-"), st.tuples(labels, labels, labels)), min_size=1, max_size=10)


@settings(max_examples=50)
@given(changes, st.booleans(), st.integers(1, 30))
def test_any_labels_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, Labelled]], glued: bool, chunk: int
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "any.changes", text(changes, glued))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert signed(ChangeSource(path)) == changes
    opened = open_source(path)
    assert isinstance(opened, ChangeSource)
    # No head is empty, so the first line always shows whether signs are glued.
    assert opened.glued == glued
    assert signed(opened) == changes


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("+\ta\tr", "3 columns instead of 4: '+\\ta\\tr'"),
        ("+\ta\tr\tb\tc", "5 columns instead of 4: '+\\ta\\tr\\tb\\tc'"),
        ("a\tr\tb", "3 columns instead of 4: 'a\\tr\\tb'"),
        ("+a\tr\tb", "3 columns instead of 4: '+a\\tr\\tb'"),
        ("*\ta\tr\tb", "the line opens with neither + nor -: '*\\ta\\tr\\tb'"),
        ("\ta\tr\tb", "the line opens with neither + nor -: '\\ta\\tr\\tb'"),
        ("++\ta\tr\tb", "the line opens with neither + nor -: '++\\ta\\tr\\tb'"),
        (" +\ta\tr\tb", "the line opens with neither + nor -: ' +\\ta\\tr\\tb'"),
        ("−\ta\tr\tb", "the line opens with neither + nor -: '−\\ta\\tr\\tb'"),
        ("+\t\tr\tb", "empty head: '+\\t\\tr\\tb'"),
        ("-\ta\t\tb", "empty relation: '-\\ta\\t\\tb'"),
        ("+\ta\tr\t", "empty tail: '+\\ta\\tr\\t'"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, problem: str) -> None:
    bad = source(tmp_path, text(CHANGES, False) + line + "\n" + text(CHANGES, False))
    assert refusal(bad) == f"{bad.path}:4: {problem}"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("+\ta\tr\tb", "4 columns instead of 3: '+\\ta\\tr\\tb'"),
        ("a\tr\tb", "the line opens with neither + nor -: 'a\\tr\\tb'"),
        ("\tr\tb", "the line opens with neither + nor -: '\\tr\\tb'"),
        ("+\tr\tb", "empty head: '+\\tr\\tb'"),
        ("-a\t\tb", "empty relation: '-a\\t\\tb'"),
        ("+a\tr\t", "empty tail: '+a\\tr\\t'"),
    ],
)
def test_bad_glued_lines_are_named(tmp_path: Path, line: str, problem: str) -> None:
    bad = source(tmp_path, text(CHANGES, True) + line + "\n" + text(CHANGES, True), glued=True)
    assert refusal(bad) == f"{bad.path}:4: {problem}"


@apart
def test_bad_lines_are_set_aside_with_the_right_sign_for_the_others(tmp_path: Path, glued: bool) -> None:
    tab = "" if glued else "\t"
    content = f"+{tab}a\tr\tb\n*{tab}x\tr\ty\n-{tab}b\ts\tc\n+{tab}x\t\ty\n\n-{tab}x\n+{tab}c\tr\ta\n"
    bad = source(tmp_path, content, glued)
    rejects = Rejects(limit=3)
    assert signed(bad, rejects) == CHANGES
    assert sorted(line.split("\t")[0] for line in rejects.lines) == [f"{bad.path}:{number}" for number in (2, 4, 6)]
    assert bad.counts == {"empty lines skipped": 1}


def test_invalid_utf8_is_named(tmp_path: Path) -> None:
    bad = source(tmp_path, b"+\ta\tr\tb\n-\ta\xff\tr\tb\n")
    assert refusal(bad).startswith(f"{bad.path}:2: broken UTF-8 at byte 4 of the line")


def test_compressed_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "night.changes.gz", gzip.compress(text(CHANGES, True).encode()))
    opened = open_source(path)
    assert signed(opened) == CHANGES
    assert opened.name == "night"


def test_truncated_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "night.changes.gz", gzip.compress(text(CHANGES * 1000, False).encode())[:-12])
    assert refusal(ChangeSource(path)).startswith(f"{path}: damaged or truncated in line ")


@pytest.mark.parametrize("start", ["", "\n\r\n", "\ufeff"], ids=["plain", "empty-lines", "mark"])
@apart
def test_first_line_decides_whether_signs_are_glued(tmp_path: Path, start: str, glued: bool) -> None:
    opened = open_source(written(tmp_path / "night.changes", start + text(CHANGES, glued)))
    assert signed(opened) == CHANGES


def test_first_line_without_tail_is_not_taken_for_glued(tmp_path: Path) -> None:
    opened = open_source(written(tmp_path / "night.changes", "+\ta\tr\n" + text(CHANGES, False)))
    rejects = Rejects(limit=1)
    assert signed(opened, rejects) == CHANGES
    assert rejects.lines == [f"{opened.path}:1\t3 columns instead of 4\t" + repr("+\ta\tr")]
