"""The public functions. Each returns what its command prints with --json.

The module of a job is imported when it runs: nobody waits for torch to see a log.
"""

from __future__ import annotations

from dkge_dist.surfaces.api.history import alias, check, diff, gc, log, report, rollback
from dkge_dist.surfaces.api.learning import ingest, nightly, synth, train, update
from dkge_dist.surfaces.api.questions import (
    answer,
    evaluate,
    evidence_table,
    export,
    fidelity,
    open,
    open_version,
    score,
    similar,
)

__all__ = [
    "alias",
    "answer",
    "check",
    "diff",
    "evaluate",
    "evidence_table",
    "export",
    "fidelity",
    "gc",
    "ingest",
    "log",
    "nightly",
    "open",
    "open_version",
    "report",
    "rollback",
    "score",
    "similar",
    "synth",
    "train",
    "update",
]
