"""Files as chunks of whole lines, compressed or not, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import itertools
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from dkge_dist.graph.sources.base import Rejects, Source, SourceError
from dkge_dist.types import Array

CHUNK_BYTES = 16 << 20
MAX_LINE_BYTES = 256 << 20
UTF8_MARK = b"\xef\xbb\xbf"


class LineChunk(NamedTuple):
    """Whole lines of one file: `data` ends in a newline, its first line has number `first_line` (from 1).

    `emptied` are the numbers of the lines that stand empty because their UTF-8 is broken.
    """

    data: Array
    first_line: int
    emptied: frozenset[int] = frozenset()


def open_raw(path: Path) -> BinaryIO:
    """Open `path` for reading, with an error a user understands."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None


def decompressed(raw: BinaryIO) -> BinaryIO:
    """The content of `raw`, decompressed by what the file is, not by what it is called."""
    magic = raw.read(6)
    raw.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if magic == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(raw)  # type: ignore[return-value]
    if magic[:4] == b"\x04\x22\x4d\x18":
        return pa.CompressedInputStream(raw, "lz4")  # type: ignore[no-any-return]
    return raw


def read_blocks(path: Path, source: Source) -> Iterator[bytes]:
    """The decompressed bytes of `path` in large blocks; advances `source.bytes_read` by what was read of the file."""
    before = source.bytes_read
    with open_raw(path) as raw:
        stream = decompressed(raw)
        while True:
            try:
                block = stream.read(CHUNK_BYTES)
            except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                raise SourceError(f"{path}: damaged or truncated: {error}") from None
            source.bytes_read = before + raw.tell()
            if not block:
                return
            yield block


def read_line_chunks(path: Path, source: Source, rejects: Rejects) -> Iterator[LineChunk]:
    """The lines of `path`, in chunks that are valid UTF-8 and end in a newline.

    A last line without a newline gets one, a byte order mark is dropped. A line with broken UTF-8 goes to `rejects`;
    where that allows it, an empty line takes its place, so that line numbers stay right. Readers skip empty lines.
    """
    first_line = 1
    rest = b""
    for number, block in enumerate(itertools.chain(read_blocks(path, source), [b""])):
        if number == 0 and block.startswith(UTF8_MARK):
            block = block[len(UTF8_MARK) :]
        text = rest + (block or (b"\n" if rest else b""))
        cut = text.rfind(b"\n") + 1
        whole, rest = text[:cut], text[cut:]
        if len(rest) > MAX_LINE_BYTES:
            line = first_line + whole.count(b"\n")
            raise SourceError(f"{path}:{line}: a line of over {MAX_LINE_BYTES >> 20} MiB")
        if whole:
            valid, emptied = _valid_utf8(whole, path, first_line, rejects)
            yield LineChunk(np.frombuffer(valid, np.uint8), first_line, emptied)
            first_line += whole.count(b"\n")


def line_text(data: Array, start: int) -> str:
    """The line of a chunk that begins at `start`, for an error message."""
    head = data[start : start + 1000].tobytes()
    return head.split(b"\n", 1)[0].decode("utf-8", "replace")


def _valid_utf8(block: bytes, path: Path, first_line: int, rejects: Rejects) -> tuple[bytes, frozenset[int]]:
    """`block` itself, or with its broken lines emptied after they went to `rejects`, and their numbers."""
    emptied: set[int] = set()
    while True:
        try:
            block.decode("utf-8")
            return block, frozenset(emptied)
        except UnicodeDecodeError as error:
            begin = block.rfind(b"\n", 0, error.start) + 1
            end = block.index(b"\n", error.start)
            line = first_line + block.count(b"\n", 0, error.start)
            text = block[begin:end].decode("utf-8", "backslashreplace")
            rejects.add(path, line, f"broken UTF-8 at byte {error.start - begin + 1} of the line", text)
            emptied.add(line)
            block = block[:begin] + block[end:]
