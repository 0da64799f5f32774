"""Many labels as slices of one byte buffer; Python strings are made only where a label is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dkge_dist.types import OFFSET, Array


@dataclass(frozen=True)
class Labels:
    """UTF-8 labels: label i is `data[start[i]:stop[i]]`. Slices may overlap, repeat and be in any order."""

    data: Array
    start: Array
    stop: Array

    def __len__(self) -> int:
        return int(self.start.shape[0])

    def __getitem__(self, i: int) -> str:
        return self.data[self.start[i] : self.stop[i]].tobytes().decode("utf-8")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def take(self, where: Array | slice) -> Labels:
        """The labels at `where` (indices, mask or slice), over the same bytes."""
        return Labels(self.data, self.start[where], self.stop[where])

    def replaced(self, where: Array, others: Labels) -> Labels:
        """The labels with `others` in the places `where`."""
        start, stop = self.start.astype(OFFSET), self.stop.astype(OFFSET)
        start[where], stop[where] = others.start + self.data.shape[0], others.stop + self.data.shape[0]
        return Labels(np.concatenate([self.data, others.data]), start, stop)

    def compacted(self) -> Labels:
        """The same labels one after the other in bytes of their own: nothing else is kept in memory by them."""
        # Here, because it loads numba, which takes half a second that a source that is refused need not wait for.
        from dkge_dist.kernels.text import copy_fields

        offsets = np.concatenate([np.zeros(1, OFFSET), np.cumsum(self.stop - self.start)])
        data = np.empty(int(offsets[-1]), np.uint8)
        copy_fields(self.data, self.start, self.stop, data)
        return Labels(data, offsets[:-1], offsets[1:])

    @staticmethod
    def concat(parts: Sequence[Labels]) -> Labels:
        """One after the other."""
        if not parts:
            return Labels.from_strings([])
        shifts = np.cumsum([0, *(part.data.shape[0] for part in parts[:-1])])
        start, stop = (
            np.concatenate([getattr(part, end) + shift for part, shift in zip(parts, shifts, strict=True)])
            for end in ("start", "stop")
        )
        return Labels(np.concatenate([part.data for part in parts]), start, stop)

    def to_arrow(self) -> pa.LargeStringArray:
        """As an Arrow column, in bytes of its own."""
        compact = self.compacted()
        offsets = np.append(compact.start, compact.data.shape[0])
        return pa.LargeStringArray.from_buffers(len(self), pa.py_buffer(offsets), pa.py_buffer(compact.data))

    @staticmethod
    def from_arrow(column: pa.Array | pa.ChunkedArray) -> Labels:
        """Over the buffers of an Arrow string column without nulls; copies only what is not large_string."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if column.null_count:
            raise ValueError(f"{column.null_count} null labels")
        if column.type != pa.large_string():
            # Not even to the same type without need: it imports all of Arrow's functions, a twentieth of a second.
            column = column.cast(pa.large_string())
        _, offset_buffer, value_buffer = column.buffers()
        if len(column) == 0:
            return Labels.from_strings([])
        offsets = np.frombuffer(offset_buffer, OFFSET)[column.offset : column.offset + len(column) + 1]
        data = np.frombuffer(value_buffer, np.uint8) if value_buffer is not None else np.empty(0, np.uint8)
        return Labels(data, offsets[:-1], offsets[1:])

    @staticmethod
    def from_strings(labels: Iterable[str]) -> Labels:
        """From Python strings; for small inputs."""
        encoded = [label.encode("utf-8") for label in labels]
        offsets = np.cumsum([0, *(len(label) for label in encoded)], dtype=OFFSET)
        return Labels(np.frombuffer(b"".join(encoded), np.uint8), offsets[:-1], offsets[1:])

    @staticmethod
    def constant(label: str, count: int) -> Labels:
        """One label, `count` times."""
        data = np.frombuffer(label.encode("utf-8"), np.uint8)
        return Labels(data, np.zeros(count, OFFSET), np.full(count, data.shape[0], OFFSET))
