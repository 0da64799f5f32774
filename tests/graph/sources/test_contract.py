"""What holds for every reader: labels come back to the byte at any chunk border, and unreadable files are named."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import FORMATS, files
from dkge_dist.graph.sources.base import Rejects
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.types import Split
from tests.graph.sources.reading import GOOD, as_csv, names, read, refusal, signed, triples, written
from tests.graphs import Labelled, lines, odd_triples


def as_json(rows: list[Labelled], end: str) -> str:
    """Objects and arrays, with and without escapes."""
    keyed = [dict(zip("spo", row, strict=True)) if i % 2 else row for i, row in enumerate(rows)]
    return "".join(json.dumps(row, ensure_ascii=i % 3 == 0) + end for i, row in enumerate(keyed))


class Written(NamedTuple):
    """How triples are written as lines of one format; `excluded` are characters that no label has there."""

    name: str
    text: Callable[[list[Labelled], str], str]
    excluded: str = "\t\n\r"


LINES = {
    "tsv": Written("x.tsv", lambda rows, end: lines(rows, end=end)),
    "csv": Written("x.csv", lambda rows, end: f"head,relation,tail{end}" + as_csv(rows, end), ""),
    "semicolons": Written("x.csv", lambda rows, end: f"note;p;o;s{end}" + "".join(
        as_csv([("?", r, t, h)], end, ";") for h, r, t in rows  # type: ignore[list-item]
    ), ""),
    "jsonl": Written("x.jsonl", as_json, ""),
    "changes": Written("x.changes", lambda rows, end: lines(rows, "+\t", end)),
    "glued changes": Written("x.changes", lambda rows, end: lines(rows, "+", end)),
}  # fmt: skip


@pytest.mark.parametrize("kind", LINES)
@settings(max_examples=40)
@given(data=st.data(), chunk=st.integers(1, 40), end=st.sampled_from(["\n", "\r\n"]))
def test_any_label_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject, chunk: int, end: str
) -> None:
    name, text, excluded = LINES[kind]
    some = st.characters(exclude_categories=["Cs"], exclude_characters=excluded)
    labels = st.text(some if excluded else some | st.sampled_from(',;"\n\r '), min_size=1, max_size=5)
    rows = data.draw(st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=12))
    source = open_source(written(tmp_path_factory.getbasetemp() / name, "\n" + text(rows, end)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert triples(source) == rows


@pytest.mark.parametrize("kind", LINES)
def test_odd_labels_keep_every_byte(tmp_path: Path, kind: str) -> None:
    name, text, excluded = LINES[kind]
    rows = odd_triples() + ([] if excluded else [("a,b", 'say "hi"', "two\nlines"), ("tab\there", "r", "crlf\r\n\r")])
    assert triples(open_source(written(tmp_path / name, text(rows, "\n")))) == rows


def write_parquet(path: Path, rows: list[Labelled]) -> None:
    pq.write_table(pa.table(dict(zip("hrt", map(list, zip(*rows, strict=True)), strict=True))), path)


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_splits_are_the_files_of_a_folder(tmp_path: Path, ending: str) -> None:
    for split in Split:
        path = tmp_path / f"{split.label}.{ending}"
        if ending == "parquet":
            write_parquet(path, [GOOD[split]])
        else:
            written(path, LINES[ending].text([GOOD[split]], "\n"))
    source = open_source(tmp_path)
    assert (source.format, source.brings_splits) == (ending, True)
    assert read(source) == list(zip(Split, GOOD, strict=True))
    assert source.bytes_read == source.bytes_total == sum(path.stat().st_size for path in tmp_path.iterdir())


SMALL = {
    "tsv": "a\tr\tb\n",
    "csv": "a,r,b\n",
    "jsonl": '["a","r","b"]\n',
    "changes": "+\ta\tr\tb\n",
    "labels": "a\tname\n",
    "ntriples": "<x:a> <x:r> <x:b> .\n",
    "nquads": "<x:a> <x:r> <x:b> .\n",
    "turtle": "<x:a> <x:r> <x:b> .\n",
    "trig": "<x:a> <x:r> <x:b> .\n",
    "debian": "Package: a\nDepends: b\n\n",
}


@pytest.mark.parametrize("format", [*SMALL, "rdfxml", "parquet"])
def test_a_folder_is_not_read_as_a_file(tmp_path: Path, format: str) -> None:
    if FORMATS[format].has_splits or format == "debian":
        (tmp_path / "x").mkdir()
        source = type(open_source(written(tmp_path / "y", SMALL.get(format, "x")), format))(tmp_path / "absent")
        assert refusal(source) == f"{tmp_path}/absent: no such file"
    else:
        assert refusal(open_source(tmp_path, format)) == f"{tmp_path}: Is a directory"


@pytest.mark.parametrize("format", SMALL)
def test_compressed_files_are_read_and_truncated_ones_refused(tmp_path: Path, format: str) -> None:
    content = gzip.compress(SMALL[format].encode() * 1000)
    source = open_source(written(tmp_path / "whole.gz", content), format)
    assert len(triples(source)) == (0 if format == "labels" else 1000)
    assert source.bytes_read == source.bytes_total == len(content)
    cut = open_source(written(tmp_path / "cut.gz", content[:-12]), format)
    assert refusal(cut).startswith(f"{cut.path}: damaged or truncated")


@pytest.mark.parametrize("format", [format for format in SMALL if format not in ("turtle", "trig", "csv")])
def test_invalid_utf8_is_named_or_set_aside(tmp_path: Path, format: str) -> None:
    """Of CSV a record goes as a whole, and documents end there: see their own tests."""
    good = SMALL[format].encode()
    bad = open_source(written(tmp_path / "bad", good + b"ab\xff\n" + good), format)
    line = good.count(b"\n") + 1
    assert refusal(bad).startswith(f"{bad.path}:{line}: broken UTF-8 at byte 3 of the line")
    rejects = Rejects(limit=2)
    assert len(triples(bad, rejects)) == (0 if format == "labels" else 2)
    assert rejects.lines[0].startswith(f"{bad.path}:{line}\tbroken UTF-8 at byte 3 of the line")


@pytest.mark.parametrize("kind", ["changes", "glued changes"])
@pytest.mark.parametrize("start", ["", "\n\r\n", "\ufeff"], ids=["plain", "empty lines", "mark"])
def test_changes_keep_their_signs(tmp_path: Path, kind: str, start: str) -> None:
    text = "".join(LINES[kind].text([row], "\n").replace("+", "+-"[i % 2], 1) for i, row in enumerate(GOOD))
    source = open_source(written(tmp_path / "x.changes", start + text))
    assert (source.is_change, source.brings_splits, source.name) == (True, False, "x")
    assert signed(source) == list(zip("+-+", GOOD, strict=True))


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=6)


@settings(max_examples=40)
@given(st.dictionaries(TEXTS, TEXTS, min_size=1), st.integers(1, 40), st.sampled_from(["\n", "\r\n"]))
def test_any_display_name_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, expected: dict[str, str], chunk: int, end: str
) -> None:
    content = "\n" + "".join(f"{label}\t{name}{end}" for label, name in expected.items())
    path = written(tmp_path_factory.getbasetemp() / "names.tsv", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert names(open_source(path, "labels")) == expected
