"""Write a synthetic evolving movie graph."""

from __future__ import annotations

import time
from pathlib import Path

from dkge_dist.jobs.report import ProgressCallback, Report, seconds_since
from dkge_dist.synthetic import PRESETS, write_synth
from dkge_dist.types import UsageError

Sizes = tuple[int | None, int | None, int | None, int | None]


def synth(out: Path, preset: str, sizes: Sizes, full: bool, progress: ProgressCallback | None) -> Report:
    """Write a preset to a folder; `sizes` (entities, triples, nights, seed) replace those of the preset."""
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}: one of {', '.join(PRESETS)}")
    began = time.monotonic()
    try:
        report = write_synth(PRESETS[preset].resized(*sizes), out, full, progress)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {**report, "seconds": seconds_since(began)}
