"""JSON lines: objects by key, arrays by place; what is no triple is named with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceOptions
from dkge_dist.graph.sources.columns import parse_columns
from dkge_dist.graph.sources.rows import JsonLinesSource
from tests.graph.sources.reading import GOOD, refusal, triples, written
from tests.graphs import Labelled, odd_triples


def source(folder: Path, content: bytes | str, columns: str | None = None) -> JsonLinesSource:
    return JsonLinesSource(written(folder / "graph.jsonl", content), SourceOptions(columns=parse_columns(columns)))


def test_objects_and_arrays(tmp_path: Path) -> None:
    content = (
        '{"head":"a","relation":"r","tail":"b","x":[1]}\n\n["b","s","c"]\r\n{"tail":"a","head":"c","relation":"r"}'
    )
    mixed = source(tmp_path, "\ufeff" + content)
    assert triples(mixed) == GOOD
    assert mixed.counts == {"empty lines skipped": 1}


labels = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


@settings(max_examples=40)
@given(st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=9), st.integers(1, 60), st.booleans())
def test_any_label_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Labelled], chunk: int, escaped: bool
) -> None:
    content = "".join(json.dumps(row, ensure_ascii=escaped) + "\n" for row in rows)
    path = written(tmp_path_factory.getbasetemp() / "any.jsonl", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert triples(JsonLinesSource(path)) == rows


def test_odd_labels_and_integers(tmp_path: Path) -> None:
    content = "".join(json.dumps(dict(zip("spo", row, strict=True))) + "\n" for row in odd_triples())
    assert triples(source(tmp_path, content)) == odd_triples()
    assert triples(source(tmp_path, '[1, "r", -20]\n')) == [("1", "r", "-20")]


def test_columns_that_the_user_says(tmp_path: Path) -> None:
    assert triples(source(tmp_path, '{"film":"a","job":"r","who":"b"}\n', "film,job,who")) == GOOD[:1]
    assert triples(source(tmp_path, '["b","x","a","r"]\n', "3,4,1")) == GOOD[:1]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("nonsense", "column 1: not JSON: Expecting value"),
        ('{"h":"a","r":"r","t":"b"', "column 25: not JSON"),
        ('["a","r"]', "2 values instead of 3"),
        ('["a","r","b","c"]', "4 values instead of 3"),
        ('{"h":"a","r":"r"}', "no key 't'"),
        ('{"h":"a","r":"r","t":null}', "null in place of the tail"),
        ('{"h":"a","r":"","t":"b"}', "empty relation"),
        ('["a",["r"],"b"]', "the relation is list ['r']; labels are strings or integers"),
        ('["a","r",1.5]', "the tail is float 1.5; labels are strings or integers"),
        ('["a","r",true]', "the tail is bool True; labels are strings or integers"),
        ('["a","r",NaN]', "null in place of the tail"),
        ('["a","r","\\ud800"]', "the tail holds half a character"),
        ('"abc"', "expected (head, relation, tail), found str 'abc'"),
        ('{"h":"a","r":"r","t":"b","h":"c"}', "an object has a key twice"),
        ("[" * 100_000, "not JSON that can be read"),
        ('["a","r",' + "9" * 5000 + "]", "not JSON that can be read"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, problem: str) -> None:
    content = '{"h":"a","r":"r","t":"b"}\n' + line + '\n["b","s","c"]\n'
    bad = source(tmp_path, content)
    assert refusal(bad).startswith(f"{bad.path}:2: {problem}")
    assert triples(bad, Rejects(limit=1)) == GOOD[:2]


def test_objects_without_usual_keys_are_refused(tmp_path: Path) -> None:
    bad = source(tmp_path, '{"film":"a","job":"r","who":"b"}\n')
    assert refusal(bad).startswith(f"{bad.path}:1: the columns are 'film', 'job', 'who': none are usual")
