"""Parquet: every way to hold strings gives the same labels, rows that hold none are named."""

from __future__ import annotations

import resource
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.arrow import ParquetSource, labels_of
from dkge_dist.graph.sources.base import Rejects, SourceError, SourceOptions
from tests.graph.sources.reading import triples

Triple = tuple[str, str, str]

STRING_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]
ODD_LABELS = [
    '"quoted"',
    "NA",
    "null",
    " blank around ",
    "tab\there",
    "line\nbreak",
    "a\u2028b",
    "\ufeffmark",
    "nul\0byte",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "😀",
    "x" * 300_000,
]


def column(labels: list[str | None], kind: pa.DataType | None = None) -> pa.Array:
    array = pa.array(labels, pa.string())
    if kind is None:
        return array
    return array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array.cast(kind)


def write(path: Path, row_group_size: int | None = None, **columns: pa.Array) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_strings_of_every_arrow_type_are_labels(tmp_path: Path, kind: pa.DataType) -> None:
    relations = [f"r{i % 2}" for i in range(len(ODD_LABELS))]
    path = write(
        tmp_path / "graph.parquet",
        h=column(ODD_LABELS, kind),
        r=column(relations, kind),
        t=column(ODD_LABELS[::-1], kind),
    )
    assert triples(ParquetSource(path)) == list(zip(ODD_LABELS, relations, ODD_LABELS[::-1], strict=True))


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64(), pa.dictionary(pa.int8(), pa.int64())], ids=str)
def test_integers_become_decimal_labels(tmp_path: Path, kind: pa.DataType) -> None:
    numbers = {pa.int8(): [-128, 0, 127], pa.uint64(): [0, 7, 2**64 - 1]}.get(kind, [-(2**63), 12, 2**63 - 1])
    if pa.types.is_dictionary(kind):
        entities = pa.array(numbers, pa.int64()).dictionary_encode().cast(kind)
    else:
        entities = pa.array(numbers, kind)
    path = write(tmp_path / "graph.parquet", h=entities, r=column(["r"] * 3), t=entities)
    assert triples(ParquetSource(path)) == [(str(number), "r", str(number)) for number in numbers]


@pytest.mark.parametrize("chunk_bytes", [1, 100, 10_000])
def test_batches_are_bounded_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    labels: list[str | None] = [f"label {i}" for i in range(1000)]
    path = write(tmp_path / "graph.parquet", row_group_size=300, h=column(labels), r=column(labels), t=column(labels))
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk_bytes)
    assert triples(ParquetSource(path)) == [(label, label, label) for label in labels]
    sizes = [len(batch.head) for batch in ParquetSource(path).batches(Rejects())]
    assert max(sizes) <= {1: 1, 100: 10, 10_000: 1000}[chunk_bytes]
    assert len(sizes) > 1


@pytest.mark.parametrize("missing", ["h", "r", "t"])
def test_missing_column_is_named(tmp_path: Path, missing: str) -> None:
    columns = {name: column(["x"]) for name in ("h", "r", "t", "other") if name != missing}
    path = write(tmp_path / "graph.parquet", **columns)
    names = ", ".join(map(repr, columns))
    with pytest.raises(SourceError, match=f"^{path}: the columns are {names}: none are usual .*; name them"):
        triples(ParquetSource(path))
    with pytest.raises(SourceError, match=f"^{path}: no column '{missing}'; the columns are {names}$"):
        triples(ParquetSource(path, SourceOptions(columns=("h", "r", "t"))))


@pytest.mark.parametrize("columns", [("film", "job", "who"), (3, 1, 4)])
def test_columns_that_the_user_says(tmp_path: Path, columns: tuple[str | int, str | int, str | int]) -> None:
    named = {"job": column(["r"]), "h": column(["?"]), "film": column(["a"]), "who": column(["b"])}
    assert triples(ParquetSource(write(tmp_path / "graph.parquet", **named), SourceOptions(columns=columns))) == [
        ("a", "r", "b")
    ]


def test_repeated_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.parquet"
    pq.write_table(pa.Table.from_arrays([column(["x"])] * 4, names=["h", "r", "t", "h"]), path)
    with pytest.raises(SourceError, match=f"^{path}: which of the columns 'h', 'r', 't', 'h' is meant"):
        triples(ParquetSource(path))
    with pytest.raises(SourceError, match=f"^{path}: 2 columns named 'h'"):
        triples(ParquetSource(path, SourceOptions(columns=("h", "r", "t"))))


@pytest.mark.parametrize(
    "array", [pa.array([1.5]), pa.array([True]), pa.array([b"x"]), pa.array([["x"]]), pa.array([{"x": "y"}])], ids=str
)
def test_column_of_another_type_is_refused(tmp_path: Path, array: pa.Array) -> None:
    path = write(tmp_path / "graph.parquet", h=column(["x"]), r=array, t=column(["x"]))
    with pytest.raises(SourceError, match=f"^{path}: column 'r' is of type .*; labels are strings or integers"):
        triples(ParquetSource(path))


def graph_with(tmp_path: Path, name: str, values: pa.Array) -> Path:
    """Four rows, row groups of three, so that row numbers have to go on from one to the next."""
    columns = {"h": column(list("abcd")), "r": column(list("rrrr")), "t": column(list("efgh"))} | {name: values}
    return write(tmp_path / "graph.parquet", row_group_size=3, **columns)


def broken_utf8(kind: pa.DataType) -> pa.Array:
    offsets = np.array([0, 1, 2, 3, 5], np.int32)
    return pa.Array.from_buffers(pa.string(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(b"efg\xc3(")]).cast(kind)


BAD_ROWS = {
    "null": (column(["e", "f", "g", None]), "null in column"),
    "null in a dictionary": (column(["e", "f", "g", None], STRING_TYPES[3]), "null in column"),
    "null integer": (pa.array([1, 2, 3, None]), "null in column"),
    "empty": (column(["e", "f", "g", ""]), "empty label in column"),
    "broken UTF-8": (broken_utf8(pa.string()), "broken UTF-8 in column"),
    "broken UTF-8 in large strings": (broken_utf8(pa.large_string()), "broken UTF-8 in column"),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
@pytest.mark.parametrize("name", ["h", "r", "t"])
@pytest.mark.parametrize("chunk_bytes", [1, 16 << 20])
def test_bad_row_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, chunk_bytes: int
) -> None:
    values, reason = BAD_ROWS[kind]
    path = graph_with(tmp_path, name, values)
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk_bytes)
    with pytest.raises(SourceError, match=f"^{path}:4: {reason} '{name}'"):
        triples(ParquetSource(path))


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_bad_row_is_set_aside(tmp_path: Path, kind: str) -> None:
    values, reason = BAD_ROWS[kind]
    path = graph_with(tmp_path, "t", values)
    rejects = Rejects(limit=1)
    tails = ["1", "2", "3"] if kind == "null integer" else ["e", "f", "g"]
    assert triples(ParquetSource(path), rejects) == list(zip("abc", "rrr", tails, strict=True))
    assert len(rejects.lines) == 1
    assert rejects.lines[0].startswith(f"{path}:4\t{reason} 't'")


def test_bad_row_counts_once_and_rows_stay_in_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "graph.parquet",
        h=column(["a", "b", None, "d"]),
        r=column(["r", "", "r", "r"]),
        t=column([None, "f", "", "h"]),
    )
    rejects = Rejects(limit=3)
    assert triples(ParquetSource(path), rejects) == [("d", "r", "h")]
    assert [line.split("\t")[:2] for line in rejects.lines] == [
        [f"{path}:1", "null in column 't' of this row"],
        [f"{path}:2", "empty label in column 'r' of this row"],
        [f"{path}:3", "null in column 'h' of this row"],
    ]


def test_truncated_and_damaged_files_are_refused(tmp_path: Path) -> None:
    labels: list[str | None] = [f"label {i}" for i in range(1000)]
    path = write(tmp_path / "graph.parquet", h=column(labels), r=column(labels), t=column(labels))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(SourceError, match=f"^{path}: not a Parquet file, or a truncated one"):
        triples(ParquetSource(path))
    path.write_bytes(content[:4] + bytes(60) + content[64:])
    with pytest.raises(SourceError, match=f"^{path}: damaged Parquet file"):
        triples(ParquetSource(path))


def test_a_small_file_of_gigabytes_of_labels_is_refused(tmp_path: Path) -> None:
    """Its 3 GB are never in memory, because a label that is repeated there is not repeated here."""
    path = tmp_path / "bomb.parquet"
    label = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array(["x" * 1_000_000]))
    pq.write_table(pa.table(dict.fromkeys("hrt", label)), path, compression="zstd", dictionary_pagesize_limit=1 << 30)
    assert path.stat().st_size < 10_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(SourceError, match=r"bytes that unpack to over 1,024 MiB of labels"):
        triples(ParquetSource(path))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000, "kilobytes"


def test_labels_over_the_limit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1 << 20)
    labels = ["a", "x" * (1 << 20), "y" * ((1 << 20) + 1)]
    path = write(tmp_path / "long.parquet", h=column(labels), r=column(["r"] * 3), t=column(["t"] * 3))
    rejects = Rejects(9)
    assert [head for head, _, _ in triples(ParquetSource(path), rejects)] == labels[:2]
    assert rejects.lines == [f"{path}:3\ta label of over 1 MiB in column 'h' of this row\t''"]


@pytest.mark.parametrize("kind", STRING_TYPES, ids=str)
def test_long_and_short_dictionaries_give_the_same_labels(tmp_path: Path, kind: pa.DataType) -> None:
    """Columns are read as dictionaries where labels are long, and as they are elsewhere; nulls are named in both."""
    long, short = ["x" * 5000, None, "b", "b"], ["p", "q", None, "p"]
    for name, head in (("long", long), ("short", short)):
        columns = {"h": column(head, kind), "r": column(["r", "s", "r", "s"], kind), "t": column(["t"] * 4, kind)}
        path = write(tmp_path / f"{name}.parquet", row_group_size=2, **columns)
        rejects = Rejects(9)
        expected = [(h, r, "t") for h, r in zip(head, ["r", "s", "r", "s"], strict=True) if h is not None]
        assert triples(ParquetSource(path), rejects) == expected
        assert len(rejects.lines) == 1
        assert "null in column 'h'" in rejects.lines[0]


def test_references_to_what_a_dictionary_does_not_have_are_bad_rows() -> None:
    """Arrow itself does not look when it reads a damaged file."""
    buffers = [None, pa.py_buffer(np.array([0, 2, 1], np.int32))]
    kind = pa.dictionary(pa.int32(), pa.string())
    damaged = pa.DictionaryArray.from_buffers(kind, 3, buffers, pa.array(["a", "b"]))
    plain = pa.array(["x", "y", "z"])
    batch = pa.RecordBatch.from_arrays([damaged, plain, plain], ["h", "r", "t"])
    with pytest.raises(SourceError, match=r"^f:12: a value that is not in its dictionary in column 'h' of this row$"):
        labels_of(batch, ("h", "r", "t"), Path("f"), 11, Rejects())
    head, _, tail = labels_of(batch, ("h", "r", "t"), Path("f"), 11, Rejects(limit=1))
    assert (list(head), list(tail)) == (["a", "b"], ["x", "z"])
