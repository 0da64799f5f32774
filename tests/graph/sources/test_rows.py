"""Python values as triples: JSON lines, tables, iterables, graphs and matrices; what is no triple is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import scipy.sparse

from dkge_dist.graph.sources import arrow, rows
from dkge_dist.graph.sources.base import Rejects, SourceError, SourceOptions
from dkge_dist.graph.sources.columns import parse_columns
from dkge_dist.graph.sources.rows import JsonLinesSource, RowError, RowReader, open_object
from dkge_dist.types import UsageError
from tests.graph.sources.reading import GOOD, refusal, triples, written
from tests.graphs import odd_triples


def test_values_of_numpy_are_labels() -> None:
    assert RowReader(None).read(np.array(["a", "r", "b"])) == ["a", "r", "b"]
    assert RowReader(None).read((np.int64(7), "r", np.str_("b"))) == ["7", "r", "b"]
    with pytest.raises(RowError, match="null in place of the head"):
        RowReader(None).read((np.float64("nan"), "r", "b"))


def test_other_keys_than_strings_are_ignored() -> None:
    assert RowReader(None).read({1: "x", "s": "a", "p": "r", "o": "b"}) == ["a", "r", "b"]


@pytest.mark.parametrize("row", ["abc", b"abc", 7, None, {"a", "b"}])
def test_what_is_no_row_is_refused(row: object) -> None:
    with pytest.raises(RowError, match=r"expected \(head, relation, tail\)"):
        RowReader(None).read(row)


def json_lines(folder: Path, content: bytes | str, columns: str | None = None) -> JsonLinesSource:
    return JsonLinesSource(written(folder / "graph.jsonl", content), SourceOptions(columns=parse_columns(columns)))


def test_objects_and_arrays(tmp_path: Path) -> None:
    content = (
        '{"head":"a","relation":"r","tail":"b","x":[1]}\n\n["b","s","c"]\r\n{"tail":"a","head":"c","relation":"r"}'
    )
    mixed = json_lines(tmp_path, "\ufeff" + content)
    assert triples(mixed) == GOOD
    assert mixed.counts == {"empty lines skipped": 1}


def test_columns_that_the_user_says(tmp_path: Path) -> None:
    assert triples(json_lines(tmp_path, '{"film":"a","job":"r","who":"b"}\n', "film,job,who")) == GOOD[:1]
    assert triples(json_lines(tmp_path, '["b","x","a","r"]\n', "3,4,1")) == GOOD[:1]


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
    bad = json_lines(tmp_path, content)
    assert refusal(bad).startswith(f"{bad.path}:2: {problem}")
    assert triples(bad, Rejects(limit=1)) == GOOD[:2]


def test_objects_without_usual_keys_are_refused(tmp_path: Path) -> None:
    bad = json_lines(tmp_path, '{"film":"a","job":"r","who":"b"}\n')
    assert refusal(bad).startswith(f"{bad.path}:1: the columns are 'film', 'job', 'who': none are usual")


COLUMNS = {"tail": ["b", "c", "a"], "weight": [1.5, None, 2], "head": ["a", "b", "c"], "relation": ["r", "s", "r"]}
TABLES = {
    "pandas": lambda c: pandas.DataFrame(c),
    "pandas-object": lambda c: pandas.DataFrame(c, dtype=object),
    "pandas-category": lambda c: pandas.DataFrame(c).astype(dict.fromkeys(("head", "relation", "tail"), "category")),
    "polars": lambda c: polars.DataFrame(c),
    "pyarrow": lambda c: pa.table(c),
    "pyarrow-batch": lambda c: pa.RecordBatch.from_pydict(c),
    "pyarrow-reader": lambda c: pa.table(c).to_reader(),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_tables_by_usual_columns(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "MAX_BATCH_ROWS", 2)
    assert triples(open_object(TABLES[kind](COLUMNS))) == GOOD


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_tables_by_the_columns_that_the_user_says(kind: str) -> None:
    table = TABLES[kind]({"film": ["a"], "x": ["?"], "who": [7], "job": ["r"]})
    assert triples(open_object(table, ("film", "job", "who"))) == [("a", "r", "7")]
    table = TABLES[kind]({"film": ["a"], "x": ["?"], "who": [7], "job": ["r"]})
    assert triples(open_object(table, (1, 4, 3))) == [("a", "r", "7")]
    with pytest.raises(SourceError, match=r"the columns are 'film', 'x', 'who', 'job': none are usual"):
        open_object(TABLES[kind]({"film": ["a"], "x": ["?"], "who": [7], "job": ["r"]}))


@pytest.mark.parametrize("kind", ["pandas", "pandas-object", "polars", "pyarrow"])
def test_odd_labels_keep_every_byte(kind: str) -> None:
    columns = dict(zip("hrt", map(list, zip(*odd_triples(), strict=True)), strict=True))
    assert triples(open_object(TABLES[kind](columns))) == odd_triples()


@pytest.mark.parametrize("missing", [None, np.nan, pandas.NA])
def test_missing_values_are_bad_rows(missing: Any) -> None:
    frame = pandas.DataFrame({"h": ["a", "b", missing], "r": ["r", "s", "t"], "t": ["b", missing, "c"]}, dtype=object)
    assert refusal(open_object(frame)) == "DataFrame:2: null in column 't' of this row"
    assert triples(open_object(frame), Rejects(limit=2)) == GOOD[:1]


def test_columns_that_hold_no_labels_are_named() -> None:
    gaps = pandas.DataFrame({"h": ["a", "b"], "r": ["r", "s"], "t": [1, np.nan]})
    with pytest.raises(SourceError, match=r"column 't' is of type double \(a column of integers with gaps\?\)"):
        open_object(gaps)
    mixed = pandas.DataFrame({"h": ["a", 7], "r": ["r", "s"], "t": ["b", "c"]}, dtype=object)
    with pytest.raises(SourceError, match=r"^DataFrame: column 'h': .*; labels are strings or integers$"):
        open_object(mixed)


@pytest.mark.parametrize(
    "given",
    [GOOD, tuple(GOOD), iter(GOOD), np.array(GOOD), [dict(zip("hrt", row, strict=True)) for row in GOOD], set(GOOD)],
    ids=["list", "tuple", "generator", "array", "mappings", "set"],
)
def test_iterables(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCH_ROWS", 2)
    assert sorted(triples(open_object(given))) == GOOD


def test_bad_items_are_numbered() -> None:
    given = [GOOD[0], ("a", "r"), GOOD[1], None]
    assert refusal(open_object(given)) == "list:2: 2 values instead of 3"
    assert triples(open_object(given), Rejects(limit=2)) == GOOD[:2]


def test_edges_of_graphs() -> None:
    directed = networkx.DiGraph([("b", "a"), (1, 2, {"relation": "cites"}), ("x", "y", {"label": "knows"})])
    expected = [("b", "linked to", "a"), ("1", "cites", "2"), ("x", "knows", "y")]
    assert sorted(triples(open_object(directed))) == sorted(expected)
    assert ("b", "likes", "a") in triples(open_object(directed, relation="likes"))
    keyed = networkx.MultiDiGraph()
    keyed.add_edge("a", "b", key="director")
    keyed.add_edge("a", "b", key="writer")
    keyed.add_edge("a", "b")
    relations = sorted(r for _, r, _ in triples(open_object(keyed)))
    assert relations == ["director", "linked to", "writer"]


def test_edges_without_direction_do_not_depend_on_the_order_of_nodes() -> None:
    one, other = networkx.Graph([("b", "a"), ("a", "c")]), networkx.Graph([("c", "a"), ("a", "b")])
    assert sorted(triples(open_object(one))) == sorted(triples(open_object(other)))
    assert sorted(triples(open_object(one))) == [("a", "linked to", "b"), ("a", "linked to", "c")]


def test_nodes_that_are_no_labels_are_refused() -> None:
    assert "the head is tuple (1, 2); labels are strings" in refusal(open_object(networkx.DiGraph([((1, 2), "a")])))


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.coo_array, scipy.sparse.lil_array])
def test_adjacency_matrices(kind: Any) -> None:
    matrix = kind(np.array([[0, 1, 0], [0, 0, 2.5], [1, 0, 0]]))
    assert sorted(triples(open_object(matrix))) == [(str(i), "linked to", str((i + 1) % 3)) for i in range(3)]
    named = open_object(matrix, nodelist=["a", "b", 7], relation="cites")
    assert sorted(triples(named)) == [("7", "cites", "a"), ("a", "cites", "b"), ("b", "cites", "7")]


def test_matrices_that_are_no_graphs_are_refused() -> None:
    with pytest.raises(SourceError, match="an adjacency matrix is square"):
        open_object(scipy.sparse.csr_array((2, 3)))
    with pytest.raises(SourceError, match="nodelist has 1 labels for 2 rows"):
        open_object(scipy.sparse.csr_array((2, 2)), nodelist=["a"])
    with pytest.raises(SourceError, match="nodelist, label 2: empty label"):
        open_object(scipy.sparse.csr_array(np.ones((2, 2))), nodelist=["a", ""])


@pytest.mark.parametrize(
    ("given", "options", "problem"),
    [
        (7, {}, "a int cannot be read: give a path, a table"),
        ({"h": ["a"]}, {}, "a dict cannot be read"),
        (GOOD, {"nodelist": ["a"]}, "nodelist does not go with a list"),
        (GOOD, {"relation": "r"}, "relation does not go with a list"),
        (networkx.DiGraph([("a", "b")]), {"columns": (1, 2, 3)}, "columns does not go with a DiGraph"),
        (networkx.DiGraph([("a", "b")]), {"relation": ""}, "relation is empty"),
    ],
)
def test_wrong_usage(given: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        open_object(given, **options)


def test_stored_zeros_are_no_edges() -> None:
    matrix = scipy.sparse.csr_array((np.array([0, 1]), (np.array([0, 1]), np.array([1, 0]))), shape=(2, 2))
    assert triples(open_object(matrix)) == [("1", "linked to", "0")]
