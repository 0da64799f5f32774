"""The beginning of CSV files; formats are sniffed in `test_detect`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dkge_dist.graph.sources.columns import first_record


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"a,r,b\n", (",", ["a", "r", "b"])),
        (b"a;r;b\n", (";", ["a", "r", "b"])),
        (b"a;r;b,c\n", (";", ["a", "r", "b,c"])),
        (b"a,r;s,b;c\n", (",", ["a", "r;s", "b;c"])),
        (b"head;note,x,y;relation;tail\n", (";", ["head", "note,x,y", "relation", "tail"])),
        (b"\n\r\n\"a,1\";r;b\n", (";", ["a,1", "r", "b"])),
        (b"one\n", (",", ["one"])),
        (b"", (",", None)),
    ],
)  # fmt: skip
def test_delimiter_and_first_record(start: bytes, expected: tuple[str, list[str] | None]) -> None:
    assert first_record(start) == expected


def test_no_kernel_is_needed_to_refuse_a_source() -> None:
    script = "import sys; from dkge_dist.graph.sources import detect; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout == "False\n"
