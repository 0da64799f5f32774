"""Embeddings of knowledge graphs that change every night.

    import dkge_dist as dkge
    dkge.synth("movies", preset="demo")              # or your own triples
    dkge.ingest("store", "movies/snapshot-000.tsv")  # source -> Snapshot
    dkge.ingest("store", "movies/night-001.changes") # -> Diff to the snapshot before
    dkge.diff("store", "1", "2", affected=True)      # -> who is affected
    dkge.train("store")                              # Snapshot -> model version
    dkge.evaluate("store")                           # -> link prediction on held-out triples
    dkge.answer("store", "tt0000010", "director")    # -> the best answers
    dkge.fidelity("store")                           # -> was the last night learnt?
    dkge.evidence_table("store")                     # -> what supports which relation, and how strongly
    dkge.open_version("store")["entities/joint"]     # -> vectors as a zarr array, read lazily
    dkge.log("store"); dkge.check("store")

Every function returns what its command prints with --json. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any

# Numba and torch have a pool of threads each, and one that spins while it waits takes the cores from the other
# (measured on two cores: a training step takes seven times as long). Read when a pool starts, so it is said first.
if "torch" in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
    warnings.warn(
        "torch was imported before dkge_dist and did not hear how its threads are to wait, which may make learning "
        "several times slower: import dkge_dist first, or set OMP_WAIT_POLICY=PASSIVE",
        RuntimeWarning,
        stacklevel=2,
    )
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
__all__ = [
    "__version__",
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
    "open_version",
    "rollback",
    "synth",
    "train",
    "update",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("dkge_dist.api"), name)
    raise AttributeError(f"module 'dkge_dist' has no attribute {name!r}")
