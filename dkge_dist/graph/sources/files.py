"""Files as chunks of whole lines, decompressed where needed; errors name the file and the line.

What a file unpacks to is bounded here: lines, chunks, and the memory of decompressors.
"""

from __future__ import annotations

import gzip
import itertools
import lzma
import os
import re
import stat
import zlib
from collections.abc import Iterator
from io import SEEK_SET, BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dkge_dist.files import open_regular
from dkge_dist.graph.sources.base import Rejects, Source, SourceError
from dkge_dist.types import Array

CHUNK_BYTES = 16 << 20
MAX_LINE_BYTES = 256 << 20
READ_BYTES = 1 << 18
START_BYTES = 1 << 16
"""What is read to recognise a format or a header."""
STDIN = Path("-")
"""Not a file of this name, which is `./-`."""
STDIN_KEPT_BYTES = 64 << 20
"""What is kept of standard input to be read again; a beginning that unpacks to a few lines is far smaller."""

UTF8_MARK = b"\xef\xbb\xbf"
EMPTY_LINES = re.compile(rb"(?:\r?\n)*+")
XZ_MAGIC, LZ4_MAGIC = b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18"
XZ_MEMORY = 1 << 29
"""What a reader may need; `xz -9` makes files that need 65 MiB, and a crafted one could ask for 4 GiB."""
LZ4_CHECKSUMS = 0b0001_0100
"""In the flags of a frame: of its blocks, of its content."""
XZ_CHECK = 0b1111
"""In the flags of a stream: the kind of its checksum, 0 for none."""

UNREADABLE = (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError)
"""What the readers of compressed files raise when a file is damaged or ends too early."""


class DamagedError(SourceError):
    """A file that cannot be read to its end. `lines`: line ends that were read but not yet returned."""

    def __init__(self, path: Path, reason: object, lines: int = 0, line: int | None = None) -> None:
        place = f" in line {line}" if line is not None else ""
        super().__init__(f"{path}: damaged or truncated{place}: {reason}")
        self.reason = reason
        self.lines = lines


class LineChunk(NamedTuple):
    """Whole lines of one file: `data` ends in a newline, its first line has number `first_line` (from 1).

    `emptied` are the numbers of the lines that were emptied because their UTF-8 is invalid.
    """

    data: Array
    first_line: int
    emptied: frozenset[int] = frozenset()

    def numbered(self) -> Iterator[tuple[int, str]]:
        """The lines as strings, with their numbers."""
        return enumerate(self.data.tobytes().decode("utf-8").split("\n")[:-1], self.first_line)


class StandardInput(RawIOBase):
    """A pipe as a file that can be opened again while little of it was read, because a format is recognised first."""

    def __init__(self, kept: list[bytearray], descriptor: int = 0) -> None:
        if not kept:
            raise SourceError("-: standard input was read already and cannot be read again")
        self._kept, self._descriptor, self._position = kept, descriptor, 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """Back to what is kept."""
        return True

    def fileno(self) -> int:
        """The descriptor of the input itself."""
        return self._descriptor

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """To a place that is kept."""
        position = offset if whence == SEEK_SET else self._position + offset
        if position != self._position:
            if not self._kept or whence > 1 or not 0 <= position <= len(self._kept[0]):
                raise OSError("a pipe cannot be read from there")
            self._position = position
        return self._position

    def readinto(self, buffer: Any) -> int:
        """What is kept, then more of the input."""
        room = memoryview(buffer).cast("B")
        data = bytes(self._kept[0][self._position : self._position + len(room)]) if self._kept else b""
        if not data:
            data = os.read(self._descriptor, len(room))
            if self._kept:
                self._kept[0].extend(data)
                if len(self._kept[0]) > STDIN_KEPT_BYTES:
                    self._kept.clear()
        room[: len(data)] = data
        self._position += len(data)
        return len(data)


_stdin_kept = [bytearray()]
"""The beginning of standard input, as far as it was read; nothing once that is too much."""


def open_stdin() -> BufferedReader:
    """Standard input from its beginning."""
    return BufferedReader(StandardInput(_stdin_kept))


def open_raw(path: Path) -> BufferedReader:
    """Open `path` for reading, with errors that name it; `-` is standard input."""
    if path == STDIN:
        return open_stdin()
    try:
        # Not a pipe: detecting the format reads the beginning, which then has to be read again.
        return open_regular(path)
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file") from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from None


def decompressed(raw: BufferedReader) -> BufferedIOBase:
    """The content of `raw`, decompressed by its magic bytes and not by its name."""
    magic = raw.read(6)
    raw.seek(0)
    if magic[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=raw)
    if magic == XZ_MAGIC:
        return BufferedReader(BlockStream(_xz_blocks(raw)), CHUNK_BYTES)
    if magic[:4] == LZ4_MAGIC:
        return pa.CompressedInputStream(raw, "lz4")  # type: ignore[no-any-return]
    return raw


class BlockStream(RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some bytes; 0 at the end."""
        while not self._rest and (block := next(self._blocks, None)) is not None:
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _xz_blocks(raw: BufferedReader) -> Iterator[bytes]:
    """The content of one xz stream after the other. Python's own reader takes whatever follows the last for padding."""
    unused = raw.read1(READ_BYTES)
    while unused:
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
        while not decompressor.eof:
            if decompressor.needs_input and not unused and not (unused := raw.read1(READ_BYTES)):
                raise EOFError("the file ends within an xz stream")
            fed, unused = (unused, b"") if decompressor.needs_input else (b"", unused)
            yield decompressor.decompress(fed, READ_BYTES)
        # Zeros between two streams, four at a time, are padding.
        unused, padding = decompressor.unused_data, 0
        while True:
            text = unused.lstrip(b"\x00")
            padding += len(unused) - len(text)
            more = raw.read1(READ_BYTES) if len(text) < len(XZ_MAGIC) else b""
            unused = text + more
            if not more:
                break
        if not unused.startswith(XZ_MAGIC) and (unused or padding % 4):
            raise lzma.LZMAError("something else follows the end of an xz stream")


def _has_checksum(raw: BufferedReader) -> bool:
    """Would damage of a compressed file be noticed? In lz4 and xz a checksum is an option; gzip always has one."""
    start = raw.read(8).ljust(8, b"\x00")
    raw.seek(0)
    if start[:4] == LZ4_MAGIC:
        return bool(start[4] & LZ4_CHECKSUMS)
    return start[:6] != XZ_MAGIC or bool(start[7] & XZ_CHECK)


def only_file(names: list[Path]) -> Path | None:
    """The one of `names` that is a file, or None; several are an error, for it is not known which is meant."""
    present = [path for path in names if path.is_file()]
    if len(present) > 1:
        raise SourceError(f"{present[0]}: is there as {present[1].name} too; keep the one that is meant")
    return present[0] if present else None


def read_start(path: Path, size: int = START_BYTES) -> bytes:
    """The first bytes of `path`, decompressed, without a byte order mark."""
    with open_raw(path) as raw:
        try:
            return decompressed(raw).read(size).removeprefix(UTF8_MARK)
        except UNREADABLE as error:
            raise DamagedError(path, error) from None


def whole_lines(start: bytes) -> bytes:
    """The beginning of a file without a line that is cut."""
    return start if len(start) + len(UTF8_MARK) < START_BYTES else start[: start.rfind(b"\n") + 1]


def first_rows(path: Path) -> tuple[bytes, int]:
    """The whole lines at the beginning of `path` from the first that is not empty on, and the number of that one.

    No lines if the first is very long, or the file is damaged: reading all of it reports where.
    """
    try:
        start = read_start(path)
    except DamagedError:
        return b"", 1
    start = whole_lines(start)
    empty = EMPTY_LINES.match(start)
    assert empty is not None
    return start[empty.end() :], 1 + start.count(b"\n", 0, empty.end())


def read_blocks(path: Path, source: Source) -> Iterator[bytes]:
    """The decompressed bytes of `path` in large blocks; advances `source.bytes_read` by what was read of the file."""
    before = source.bytes_read
    with open_raw(path) as raw:
        written = _last_written(raw)
        if not _has_checksum(raw):
            source.counts["compressed files without a checksum: damage would not be noticed"] += 1
        stream = decompressed(raw)
        while True:
            pieces: list[bytes] = []
            missing = CHUNK_BYTES
            try:
                # One piece at a time, so that it is known how far a damaged block could be read.
                while missing and (piece := stream.read1(missing)):
                    pieces.append(piece)
                    missing -= len(piece)
            except UNREADABLE as error:
                raise DamagedError(path, error, sum(piece.count(b"\n") for piece in pieces)) from None
            source.bytes_read = before + raw.tell()
            if not pieces:
                break
            yield b"".join(pieces)
        if _last_written(raw) != written:
            raise SourceError(f"{path}: changed while it was read: is it still being written?")


def _last_written(file: BufferedReader) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    # The times of a pipe are those of its last bytes.
    return (state.st_size, state.st_mtime_ns) if stat.S_ISREG(state.st_mode) else (0, 0)


def read_lines(path: Path, source: Source) -> Iterator[tuple[bytes, int]]:
    """The bytes of `path` in chunks that end in a newline, each with the number of its first line.

    A last line without a newline gets one, a byte order mark is dropped.
    """
    line = 1
    rest = b""
    try:
        for number, block in enumerate(itertools.chain(read_blocks(path, source), [b""])):
            if number == 0:
                block = block.removeprefix(UTF8_MARK)
            text = rest + (block or (b"\n" if rest else b""))
            cut = text.rfind(b"\n") + 1
            whole, rest = text[:cut], text[cut:]
            if len(rest) > MAX_LINE_BYTES:
                line += whole.count(b"\n")
                raise SourceError(f"{path}:{line}: a line of over {MAX_LINE_BYTES >> 20} MiB")
            if whole:
                yield whole, line
                line += whole.count(b"\n")
    except DamagedError as error:
        raise DamagedError(path, error.reason, line=line + error.lines) from None


def read_line_chunks(path: Path, source: Source, rejects: Rejects) -> Iterator[LineChunk]:
    """The lines of `path`, in chunks that are valid UTF-8 and end in a newline.

    A line with invalid UTF-8 goes to `rejects`; if these allow it, an empty line replaces it, so that line numbers stay
    right. Readers skip empty lines.
    """
    for whole, line in read_lines(path, source):
        if not utf8_problem(whole):
            yield LineChunk(np.frombuffer(whole, np.uint8), line)
            continue
        lines, emptied = whole.split(b"\n"), set()
        # Line by line: in a file of another encoding many lines may be invalid.
        for i, text in enumerate(lines):
            if problem := utf8_problem(text):
                shown = text.decode("utf-8", "backslashreplace").removesuffix("\r")
                rejects.add(path, line + i, f"{problem} of the line", shown)
                emptied.add(line + i)
                lines[i] = b""
        yield LineChunk(np.frombuffer(b"\n".join(lines), np.uint8), line, frozenset(emptied))


def utf8_problem(text: bytes) -> str:
    """Where its UTF-8 is invalid; an empty string if it is not."""
    try:
        text.decode("utf-8")
        return ""
    except UnicodeDecodeError as error:
        return f"broken UTF-8 at byte {error.start + 1}"


def line_text(data: Array, start: int) -> str:
    """The line of a chunk that begins at `start`, for an error message: cut where it is very long."""
    head = data[start : start + 1000].tobytes()
    return head.split(b"\n", 1)[0].removesuffix(b"\r").decode("utf-8", "replace")
