"""Several files are one snapshot; patterns, splits, and what does not go together."""

from __future__ import annotations

import gzip
from pathlib import Path

import pandas
import pytest

from dkge_dist.graph.sources.base import SourceError, SourceOptions
from dkge_dist.graph.sources.detect import open_given
from dkge_dist.types import Split, UsageError
from tests.graph.sources.reading import GOOD, read, refusal, signed, triples, written
from tests.graphs import lines


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    written(tmp_path / "dumps" / "1.tsv", "h\tr\tt\n" + lines(GOOD[:1]))
    written(tmp_path / "dumps" / "2.tsv.gz", gzip.compress(lines(GOOD[1:2]).encode()))
    written(tmp_path / "dumps" / "3.tsv", lines(GOOD[2:]))
    return tmp_path / "dumps"


def test_a_pattern_is_read_in_the_order_of_names(dumps: Path) -> None:
    source = open_given(f"{dumps}/*.tsv*")
    assert triples(source) == GOOD
    assert (source.format, source.name, source.brings_splits) == ("tsv", "dumps", False)
    assert source.bytes_read == source.bytes_total == sum(file.stat().st_size for file in dumps.iterdir())
    assert source.counts == {"header lines (head = 'h', relation = 'r', tail = 't')": 1}


def test_several_paths_are_read_in_their_order(dumps: Path) -> None:
    words = [dumps / "3.tsv", str(dumps / "1.tsv")]
    for given in (words, tuple(words), iter(words)):
        assert triples(open_given(given)) == [GOOD[2], GOOD[0]]
    assert open_given([dumps / "3.tsv"]).name == "3"


def test_changes_are_one_change(tmp_path: Path) -> None:
    one, two = written(tmp_path / "1.changes", "+\ta\tr\tb\n"), written(tmp_path / "2.changes", "-\tb\ts\tc\n")
    source = open_given([one, two])
    assert source.is_change
    assert signed(source) == [("+", GOOD[0]), ("-", GOOD[1])]


def test_errors_name_the_file(dumps: Path) -> None:
    bad = written(dumps / "4.tsv", "a\tb\n")
    assert refusal(open_given(f"{dumps}/*.tsv")) == f"{bad}:1: 2 columns instead of 3: 'a\\tb'"


def test_nodes_without_a_name_are_others_in_every_file(tmp_path: Path) -> None:
    for number in range(2):
        written(tmp_path / f"{number}.ttl", f"<x:{number}> <x:p> [], [] .\n")
    tails = [tail for _, _, tail in triples(open_given(f"{tmp_path}/*.ttl"))]
    assert tails == [f"_:anonymous{number}" for number in range(1, 5)]


def test_train_valid_and_test_stay_splits(tmp_path: Path) -> None:
    """They match a pattern, but a test split is not to be trained on."""
    for split in Split:
        written(tmp_path / f"{split.label}.txt", lines([GOOD[split]]))
    source = open_given(f"{tmp_path}/*.txt")
    assert source.brings_splits
    assert read(source) == list(zip(Split, GOOD, strict=True))


def test_what_does_not_go_together_is_refused(dumps: Path) -> None:
    other = written(dumps / "x.nt", "<a:b> <c:d> <e:f> .\n")
    with pytest.raises(SourceError) as caught:
        open_given([dumps / "1.tsv", other])
    assert str(caught.value) == (f"{other}: is ntriples, but {dumps / '1.tsv'} is tsv: several files are of one format")
    with pytest.raises(SourceError, match="a folder is read by itself"):
        open_given([dumps, dumps / "1.tsv"])
    with pytest.raises(SourceError, match=r"none/\*: no file matches$"):
        open_given(f"{dumps}/none/*")
    with pytest.raises(UsageError, match="is no path, but"):
        open_given([dumps / "1.tsv", 7])
    with pytest.raises(UsageError, match="for graphs and matrices in memory"):
        open_given(dumps / "1.tsv", relation="r")
    for options in ({"format": "tsv"}, {"options": SourceOptions(literals=False)}):
        with pytest.raises(UsageError, match="format, released_after, key and literals are for files"):
            open_given(GOOD, **options)  # type: ignore[arg-type]


def test_a_name_with_brackets_is_a_name_if_there_is_such_a_file(tmp_path: Path) -> None:
    assert triples(open_given(written(tmp_path / "a[1].tsv", lines(GOOD)))) == GOOD


def test_objects_are_read_as_such() -> None:
    assert triples(open_given(GOOD)) == GOOD
    assert triples(open_given(row for row in GOOD)) == GOOD
    assert triples(open_given(pandas.DataFrame(GOOD, columns=list("hrt")))) == GOOD
    assert open_given(GOOD).name == "snapshot"
