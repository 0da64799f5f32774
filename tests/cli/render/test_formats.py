"""Counts as text."""

from __future__ import annotations

from dkge_dist.surfaces.cli.render.formats import format_counts


def test_counts_leave_out_zeros_and_what_is_no_number() -> None:
    assert format_counts({"bad_lines": 1200, "duplicates": 0, "files": ["x"], "share": 0.5}) == (
        "bad lines 1,200, share 0.5"
    )
