"""Sound inputs made malformed by chance, and how a reader that took one for something else is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Rng = np.random.Generator
Triple = tuple[str, ...]


class SilentError(AssertionError):
    """Something malformed was taken for something else, and nobody said so."""


ODD = [
    b"\x00", b"\x1c", b"\x85", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\t", b"\t\t", b" ", b'"', b"\\", b"<",
    b">", b"_:", b"#", b"-1", b"999999999999999999999", b"1e400", b"NaN", b"\\N", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"\xe2\x80\xa8", b"[" * 5000, b"{" * 5000, b'{"a":' * 2000, b"- " * 3000, b"&a [*a]", b"!!python/object:os.system",
    b"x" * 70_000, b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18", b"PAR1", b"ARROW1\x00\x00",
]  # fmt: skip


STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 4, 5, 7, 2**31, 2**63, 2**80, 1.5, float("inf"), "", "x", "../../etc", "0" * 64, [], {},
    [[]], "1" * 16, [1, 2],
]  # fmt: skip
"""Values in the place of others, in JSON and in tables."""


def mutated(rng: Rng, data: bytes) -> bytes:
    """Some bits, bytes, runs or lines of `data` changed; never the same bytes."""
    made = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(made) + 1))
        run = int(rng.choice([1, 2, 8, 64, 1000]))
        match int(rng.integers(8)):
            case 0 if made:
                made[at % len(made)] ^= 1 << int(rng.integers(8))
            case 1:
                del made[at : at + run]
            case 2:
                made[at:at] = ODD[int(rng.integers(len(ODD)))]
            case 3:
                made[at:at] = rng.bytes(run)
            case 4:
                del made[at:]
            case 5:
                made[at:at] = made[max(0, at - run) : at]
            case 6 if made:
                made[at : at + run] = bytes(len(made[at : at + run]))
            case _:
                some = bytes(made).split(b"\n")
                some.insert(int(rng.integers(len(some))), some[int(rng.integers(len(some)))])
                made = bytearray(b"\n".join(some))
    return bytes(made) if made != data else bytes(made) + b"\x01"


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def compare(found: list[Triple], expected: list[Triple] | None) -> None:
    """`expected`: what the slow twin reads; None if it refuses."""
    if expected is None:
        raise SilentError(f"accepted, {len(found)} triples")
    if found != expected:
        raise SilentError(f"{len(found)} triples instead of {len(expected)}")
