"""Standard input as a file that can be opened again while little of it was read: a format is told by its beginning."""

from __future__ import annotations

import os
from io import SEEK_SET, BufferedReader, RawIOBase
from typing import Any

from dkge_dist.graph.sources.base import SourceError

MAX_KEPT_BYTES = 64 << 20
"""What is kept to be read again; a beginning that unpacks to a few lines is far smaller."""


class _Kept:
    """The beginning of standard input, as far as it was read; None once that is too much."""

    def __init__(self) -> None:
        self.data: bytearray | None = bytearray()


_kept = _Kept()


class ReplayedInput(RawIOBase):
    """Standard input from its beginning, or from where it was read to."""

    def __init__(self, kept: _Kept, descriptor: int = 0) -> None:
        if kept.data is None:
            raise SourceError("-: standard input was read already and cannot be read again")
        self._kept, self._descriptor, self._position = kept, descriptor, 0

    def readable(self) -> bool:
        """Yes."""
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
            if self._kept.data is None or whence > 1 or not 0 <= position <= len(self._kept.data):
                raise OSError("a pipe cannot be read from there")
            self._position = position
        return self._position

    def readinto(self, buffer: Any) -> int:
        """What is kept, then more of the input."""
        room = memoryview(buffer).cast("B")
        kept = self._kept.data
        data = bytes(kept[self._position : self._position + len(room)]) if kept is not None else b""
        if not data:
            data = os.read(self._descriptor, len(room))
            if kept is not None:
                kept += data
                if len(kept) > MAX_KEPT_BYTES:
                    self._kept.data = None
        room[: len(data)] = data
        self._position += len(data)
        return len(data)


def open_stdin() -> BufferedReader:
    """Standard input from its beginning."""
    return BufferedReader(ReplayedInput(_kept))
