"""Files as whole lines: compressions, invalid UTF-8, damage, files that change, pipes, and what cannot be opened."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.delimited import TsvSource
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.graph.sources.files import STDIN, line_text, read_line_chunks
from tests.graph.sources.reading import GOOD, refusal, triples, written
from tests.graphs import Labelled, lines, odd_triples


def source(folder: Path, content: bytes | str) -> TsvSource:
    return TsvSource(written(folder / "graph.tsv", content))


def lz4(content: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "lz4") as stream:
        stream.write(content)
    return out.getvalue().to_pybytes()


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
def test_invalid_utf8_is_named_with_its_byte(tmp_path: Path, line: bytes, byte: int) -> None:
    bad = source(tmp_path, lines(GOOD).encode() + line + b"\n" + lines(GOOD).encode())
    assert refusal(bad).startswith(f"{bad.path}:4: broken UTF-8 at byte {byte} of the line: ")


def test_file_of_another_encoding_takes_linear_time(tmp_path: Path) -> None:
    """Every line is invalid: decoding the rest again after each of them would take minutes."""
    count = 50_000
    content = "".join(f"é{i}\tr\tb\n" for i in range(count)).encode("latin-1")
    rejects = Rejects(limit=count)
    assert triples(source(tmp_path, content), rejects) == []
    assert len(rejects.lines) == count


def test_line_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1 << 20)
    endless = source(tmp_path, lines(GOOD) + "x" * (2 << 20))
    assert refusal(endless) == f"{endless.path}:4: a line of over 1 MiB"


COMPRESSIONS = {"gz": gzip.compress, "xz": lzma.compress, "lz4": lz4}


@pytest.mark.parametrize("kind", COMPRESSIONS)
@pytest.mark.parametrize("name", ["graph.tsv", "graph.tsv.gz"])
def test_compression_is_detected_by_content(tmp_path: Path, kind: str, name: str) -> None:
    path = written(tmp_path / name, COMPRESSIONS[kind](lines(odd_triples()).encode()))
    assert triples(TsvSource(path)) == odd_triples()


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.tsv.gz", b"".join(gzip.compress(lines([t]).encode()) for t in GOOD))
    assert triples(TsvSource(path)) == GOOD


@pytest.mark.parametrize("chunk", [1 << 10, 1 << 24])
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_truncated_file_is_refused_with_the_line(
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
def test_damaged_gzip_file_is_refused(tmp_path: Path, at: int) -> None:
    many = [(f"head{i * 7919}", "r", f"tail{i * 104729}") for i in range(2000)]
    content = bytearray(gzip.compress(lines(many).encode()))
    content[at] ^= 0xFF
    path = written(tmp_path / "graph.tsv.gz", bytes(content))
    assert refusal(TsvSource(path)).startswith(f"{path}: damaged or truncated in line ")


@pytest.mark.parametrize("size", [0, -1, 1], ids=["touched", "shorter", "longer"])
def test_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 6)
    growing = source(tmp_path, lines(GOOD))
    batches = growing.batches(Rejects())
    next(batches)
    content = growing.path.read_bytes()
    growing.path.write_bytes({0: content, -1: content[:-6], 1: content * 2}[size])
    with pytest.raises(SourceError) as caught:
        list(batches)
    assert str(caught.value) == f"{growing.path}: changed while it was read: is it still being written?"


def test_pipe_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    keep_open = os.open(path, os.O_RDWR)
    try:
        assert refusal(TsvSource(path)) == f"{path}: a pipe cannot be read, give a file"
    finally:
        os.close(keep_open)


@pytest.mark.parametrize("chunk", [3, 4, 7, 1 << 20])
def test_chunks_are_whole_lines_with_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    content = ["one", "", "três", "x" * 30, "last"]
    given = source(tmp_path, "\ufeff" + "\n".join(content))
    chunks = list(read_line_chunks(given.path, given, Rejects()))
    assert all(part.data[-1] == ord("\n") for part in chunks)
    found = [line for part in chunks for line in part.data.tobytes().decode().split("\n")[:-1]]
    assert found == content
    counts = [part.data.tobytes().count(b"\n") for part in chunks]
    assert [part.first_line for part in chunks] == [1 + sum(counts[:i]) for i in range(len(chunks))]


def test_text_of_a_line_ends_at_its_newline_or_where_it_is_very_long() -> None:
    data = b"first\nsecond\r\n" + b"x" * 5000
    given = np.frombuffer(data, np.uint8)
    assert (line_text(given, 0), line_text(given, 6)) == ("first", "second")
    assert line_text(given, 14) == "x" * 1000


STREAM = lzma.compress(lines(GOOD).encode())


@pytest.mark.parametrize(
    "tail", [b"rubbish", b"\x00" * 3, b"\x00" * 8 + b"x", STREAM[:-1], STREAM[:4], b"\xfd7zXZ\x01"]
)
def test_bytes_after_an_xz_file_are_refused(tmp_path: Path, tail: bytes) -> None:
    """Python's own reader takes them for padding."""
    path = written(tmp_path / "graph.tsv.xz", STREAM + tail)
    assert refusal(TsvSource(path)).startswith(f"{path}: damaged or truncated in line ")


@pytest.mark.parametrize("padding", [0, 4, 400_000])
@pytest.mark.parametrize("size", [1, 7, 1 << 18])
def test_several_xz_streams_are_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding: int, size: int
) -> None:
    monkeypatch.setattr(files, "READ_BYTES", max(size, padding // 1000))
    path = written(tmp_path / "graph.tsv.xz", STREAM + bytes(padding) + STREAM + bytes(padding))
    assert triples(TsvSource(path)) == 2 * GOOD


def test_an_xz_file_that_asks_for_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 26}]
    monster = lzma.compress(lines(GOOD).encode(), filters=filters)
    assert triples(TsvSource(written(tmp_path / "good.tsv.xz", monster))) == GOOD
    # The size of the dictionary is a byte of the block's header, which has a checksum of its own.
    block = bytearray(monster)
    header = 12
    size = (block[header] + 1) * 4
    at = block.index(b"\x21\x01", header, header + size) + 2
    block[at] = 40
    block[header + size - 4 : header + size] = zlib.crc32(block[header : header + size - 4]).to_bytes(4, "little")
    path = written(tmp_path / "graph.tsv.xz", bytes(block))
    assert "emory" in refusal(TsvSource(path))


NO_CHECKSUM = "compressed files without a checksum: damage would not be noticed"


def test_files_without_a_checksum_are_counted(tmp_path: Path) -> None:
    text = lines(GOOD).encode()
    by_kind = {
        "plain": text,
        "gzip": gzip.compress(text),
        "xz": STREAM,
        "xz without": lzma.compress(text, check=lzma.CHECK_NONE),
        "lz4 without": lz4(text),
    }
    for kind, content in by_kind.items():
        one = source(tmp_path, content)
        assert triples(one) == GOOD
        assert one.counts[NO_CHECKSUM] == kind.endswith("without"), kind


MANY: list[Labelled] = [(f"head{i * 7919}", "r", f"tail{i * 104729}") for i in range(20_000)]


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Whatever is given comes through a pipe, in small pieces."""
    read, write = os.pipe()
    threads = []

    def feed(content: bytes) -> None:
        def run() -> None:
            with os.fdopen(write, "wb", buffering=0) as pipe:
                for start in range(0, len(content), 1000):
                    pipe.write(content[start : start + 1000])

        kept = [bytearray()]
        monkeypatch.setattr(files, "open_stdin", lambda: files.BufferedReader(files.StandardInput(kept, read)))
        threads.append(threading.Thread(target=run))
        threads[0].start()

    yield feed
    threads[0].join()
    os.close(read)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
def test_a_pipe_is_detected_and_read_whole(piped: Callable[[bytes], None], pack: Callable[[bytes], bytes]) -> None:
    piped(pack(("h\tr\tt\n" + lines(MANY)).encode()))
    source = open_source(STDIN)
    assert (source.format, source.name) == ("tsv", "stdin")
    assert triples(source) == MANY


def test_what_was_let_go_cannot_be_read_again(piped: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STDIN_KEPT_BYTES", 100_000)
    piped(lines(MANY).encode())
    source = open_source(STDIN)
    assert triples(source) == MANY
    with pytest.raises(SourceError, match="was read already"):
        triples(source)


def test_errors_name_the_line(piped: Callable[[bytes], None]) -> None:
    piped((lines(GOOD) + "a\tb\n").encode())
    assert refusal(open_source(STDIN)) == "-:4: 2 columns instead of 3: 'a\\tb'"


def test_nothing_is_refused(piped: Callable[[bytes], None]) -> None:
    piped(b"")
    with pytest.raises(SourceError, match=r"^-: empty, no triples in it$"):
        open_source(STDIN)


def test_parquet_needs_a_file(piped: Callable[[bytes], None]) -> None:
    piped(b"PAR1 and so on")
    assert refusal(open_source(STDIN)) == "-: Parquet is not read from a pipe; give the file"
