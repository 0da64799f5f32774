"""Harm to the files of a store."""

from __future__ import annotations

from pathlib import Path

HARMS = ("truncated", "longer", "missing", "link")


def flipped(path: Path, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def harm_file(path: Path, harm: str, aside: Path) -> None:
    """Harm a file in one of these ways. What it was is `aside`, if it is missing or but a link now."""
    content = path.read_bytes()
    if harm == "truncated":
        path.write_bytes(content[:-1])
    elif harm == "longer":
        path.write_bytes(content + b"0")
    else:
        path.rename(aside)
        if harm == "link":
            path.symlink_to(aside)
