"""Harm to the files of a store."""

from __future__ import annotations

from pathlib import Path


def flipped(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
