"""Plain triples: every byte of every label, every kind of line end, and an error with file and line for the rest."""

from __future__ import annotations

import gzip
import lzma
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.tsv import TsvSource
from dkge_dist.types import Split
from tests.graph.sources.reading import read, refusal, triples, written
from tests.graphs import Labelled, lines, odd_triples

GOOD = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")]


def source(folder: Path, content: bytes | str) -> TsvSource:
    return TsvSource(written(folder / "graph.tsv", content))


def lz4(content: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as stream:
        stream.write(content)
    return out.getvalue().to_pybytes()


def test_a_line_is_a_triple(tmp_path: Path) -> None:
    assert triples(source(tmp_path, lines(GOOD))) == GOOD


def test_odd_labels_come_byte_for_byte(tmp_path: Path) -> None:
    assert triples(source(tmp_path, lines(odd_triples()))) == odd_triples()


labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=6)


@settings(max_examples=60)
@given(st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=12), st.integers(1, 40), st.booleans())
def test_any_label_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, given_triples: list[Labelled], chunk: int, crlf: bool
) -> None:
    content = lines(given_triples, end="\r\n" if crlf else "\n")
    path = written(tmp_path_factory.getbasetemp() / "any.tsv", "\n" + content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert triples(TsvSource(path)) == given_triples


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


def test_a_carriage_return_in_a_file_without_crlf_belongs_to_the_label_and_is_counted(tmp_path: Path) -> None:
    mixed = source(tmp_path, "a\tr\tb\nc\tr\td\r\n")
    assert triples(mixed) == [("a", "r", "b"), ("c", "r", "d\r")]
    assert mixed.counts == {"last fields that end in a carriage return": 1}


def test_empty_lines_are_counted_and_broken_ones_are_not_empty(tmp_path: Path) -> None:
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


def test_a_last_line_that_was_cut(tmp_path: Path) -> None:
    bad = source(tmp_path, lines(GOOD) + "a\tr")
    assert refusal(bad) == f"{bad.path}:4: 2 columns instead of 3: 'a\\tr'"


@pytest.mark.parametrize(
    ("line", "byte"),
    [
        (b"a\tr\t\xff", 5),
        (b"\xc3\tr\tb", 1),
        (b"a\tr\tcaf\xe9", 8),
        (b"a\t\xed\xa0\x80\tb", 3),
        (b"a\tr\t\xf0\x9f\x98", 5),
        (b"\xc0\xaf\tr\tb", 1),
    ],
)
def test_broken_utf8_is_named_with_its_byte(tmp_path: Path, line: bytes, byte: int) -> None:
    bad = source(tmp_path, lines(GOOD).encode() + line + b"\n" + lines(GOOD).encode())
    assert refusal(bad).startswith(f"{bad.path}:4: broken UTF-8 at byte {byte} of the line: ")


@pytest.mark.parametrize("chunk", [3, 11, 1 << 20])
def test_bad_lines_are_set_aside_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
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


def test_one_bad_line_too_many(tmp_path: Path) -> None:
    bad = source(tmp_path, "x\n" + lines(GOOD) + "y\nz\n")
    assert refusal(bad, Rejects(limit=2)) == f"{bad.path}:6: 1 columns instead of 3 (2 bad lines were allowed): 'z'"


def test_a_file_in_another_encoding_costs_its_length(tmp_path: Path) -> None:
    """Every line is broken: looking at all of them for each of them would take minutes."""
    count = 50_000
    content = "".join(f"é{i}\tr\tb\n" for i in range(count)).encode("latin-1")
    rejects = Rejects(limit=count)
    assert triples(source(tmp_path, content), rejects) == []
    assert len(rejects.lines) == count


def test_long_bad_lines_are_shown_in_part(tmp_path: Path) -> None:
    message = refusal(source(tmp_path, "x" * 100_000 + "\n"))
    assert len(message) < 600
    assert message.endswith("x…'")


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1 << 20)
    endless = source(tmp_path, lines(GOOD) + "x" * (2 << 20))
    assert refusal(endless) == f"{endless.path}:4: a line of over 1 MiB"


COMPRESSIONS = {"gz": gzip.compress, "xz": lzma.compress, "lz4": lz4}


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("name", ["graph.tsv", "graph.tsv.gz"])
def test_compression_is_told_by_the_bytes(tmp_path: Path, kind: str, name: str) -> None:
    path = written(tmp_path / name, COMPRESSIONS[kind](lines(odd_triples()).encode()))
    assert triples(TsvSource(path)) == odd_triples()


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.tsv.gz", b"".join(gzip.compress(lines([t]).encode()) for t in GOOD))
    assert triples(TsvSource(path)) == GOOD


@pytest.mark.parametrize("chunk", [1 << 10, 1 << 24])
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_truncated_file_is_refused_with_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chunk: int
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    many = [(f"head{i * 7919}", "r", f"tail{i * 104729}") for i in range(20_000)]
    whole = COMPRESSIONS[kind](lines(many).encode())
    path = written(tmp_path / f"graph.tsv.{kind}", whole[: len(whole) * 2 // 3])
    message = refusal(TsvSource(path))
    assert message.startswith(f"{path}: damaged or truncated in line ")
    line = int(message.removeprefix(f"{path}: damaged or truncated in line ").split(":")[0])
    assert 1 <= line < 20_000
    if kind == "gz":
        assert line > 10_000


@pytest.mark.parametrize("at", [20, 2000, -6])
def test_a_damaged_gzip_file(tmp_path: Path, at: int) -> None:
    many = [(f"head{i * 7919}", "r", f"tail{i * 104729}") for i in range(2000)]
    content = bytearray(gzip.compress(lines(many).encode()))
    content[at] ^= 0xFF
    path = written(tmp_path / "graph.tsv.gz", bytes(content))
    assert refusal(TsvSource(path)).startswith(f"{path}: damaged or truncated in line ")


def test_rubbish_after_a_gzip_file(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.tsv.gz", gzip.compress(lines(GOOD).encode()) + b"rubbish")
    assert refusal(TsvSource(path)).startswith(f"{path}: damaged or truncated in line 4: ")


@pytest.mark.parametrize("size", [0, -1, 1], ids=["touched", "shorter", "longer"])
def test_a_file_that_is_still_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 6)
    growing = source(tmp_path, lines(GOOD))
    batches = growing.batches(Rejects())
    next(batches)
    content = growing.path.read_bytes()
    growing.path.write_bytes({0: content, -1: content[:-6], 1: content * 2}[size])
    with pytest.raises(SourceError) as caught:
        list(batches)
    assert str(caught.value) == f"{growing.path}: changed while it was read: is it still being written?"


def test_splits_of_a_folder(tmp_path: Path) -> None:
    by_split = {Split.TRAIN: GOOD[:1], Split.VALID: GOOD[1:2], Split.TEST: GOOD[2:]}
    paths = {split: written(tmp_path / f"{split.label}.tsv", lines(by_split[split])) for split in Split}
    folder = TsvSource(tmp_path, paths)
    assert folder.brings_splits
    assert read(folder) == list(zip(Split, GOOD, strict=True))
    assert folder.bytes_read == folder.bytes_total == sum(path.stat().st_size for path in paths.values())


def test_a_folder_with_train_alone_brings_no_splits(tmp_path: Path) -> None:
    path = written(tmp_path / "train.tsv", lines(GOOD))
    assert not TsvSource(tmp_path, {Split.TRAIN: path}).brings_splits


def test_progress_of_a_compressed_file_ends_at_its_size(tmp_path: Path) -> None:
    whole = source(tmp_path, gzip.compress(lines(GOOD).encode()))
    read(whole)
    assert whole.bytes_read == whole.bytes_total == whole.path.stat().st_size


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    assert refusal(TsvSource(tmp_path / "absent.tsv")) == f"{tmp_path}/absent.tsv: no such file"
    assert refusal(TsvSource(tmp_path)) == f"{tmp_path}: Is a directory"


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    keep_open = os.open(path, os.O_RDWR)
    try:
        assert refusal(TsvSource(path)) == f"{path}: a pipe cannot be read, give a file"
    finally:
        os.close(keep_open)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dump.tsv", "dump"),
        ("dump.tsv.gz", "dump"),
        ("dump-2.1.txt.xz", "dump-2.1"),
        ("2024.01.31", "2024.01.31"),
        ("folder/", "folder"),
        ("folder/.", "folder"),
        ("folder/sub/..", "folder"),
        (".tsv", ".tsv"),
        ("NIGHT.TSV", "NIGHT"),
        ("new\nline.tsv", "new_line"),
        (os.fsdecode(b"caf\xe9.tsv"), "caf_"),
    ],
)
def test_names_that_snapshots_get_from_paths(tmp_path: Path, path: str, name: str) -> None:
    assert TsvSource(tmp_path / path if not path.endswith("..") else Path(f"{tmp_path}/{path}")).name == name


def test_the_root_folder_has_a_name_too() -> None:
    assert TsvSource(Path("/")).name == "snapshot"
