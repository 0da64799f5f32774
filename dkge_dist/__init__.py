"""Embeddings of knowledge graphs that change every night.

    import dkge_dist as dkge
    dkge.synth("movies", preset="demo")              # or your own triples
    dkge.ingest("store", "movies/snapshot-000.tsv")  # source -> Snapshot
    dkge.ingest("store", "movies/night-001.changes") # -> Diff to the snapshot before
    dkge.diff("store", "1", "2", affected=True)      # -> who is affected
    dkge.train("store")                              # Snapshot -> model version
    dkge.evaluate("store")                           # -> link prediction on held-out triples
    with dkge.open("store") as store:                # kept open for many questions
        store.answer("tt0000010", "director")        # -> the best answers; or ("tt0000010", "?", "nm0000001")
        store.score("tt0000010", "director", "nm0000001")  # -> how plausible a triple is
        store.similar("tt0000010")                   # -> the nearest entities
    dkge.fidelity("store")                           # -> was the last night learnt?
    dkge.evidence_table("store")                     # -> what supports which relation, and how strongly
    dkge.open_version("store")["entities/joint"]     # -> vectors as a zarr array, read lazily
    dkge.report("store", "nights.html")              # -> what the nights did, as one page
    dkge.log("store"); dkge.check("store")

Every function returns what its command prints with --json; an open store gives values that print well.
Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dkge_dist.waiting import sleep_while_waiting

if TYPE_CHECKING:
    from dkge_dist.surfaces.api import (
        alias,
        answer,
        check,
        diff,
        evaluate,
        evidence_table,
        export,
        fidelity,
        gc,
        ingest,
        log,
        nightly,
        open,
        open_version,
        report,
        rollback,
        score,
        similar,
        synth,
        train,
        update,
    )
    from dkge_dist.surfaces.open_store import OpenStore
    from dkge_dist.types import DkgeError, UsageError

# Read when a pool of threads starts, so it is said before anything else is imported.
sleep_while_waiting()

__version__ = "0.1.0"
__all__ = [
    "DkgeError",
    "OpenStore",
    "UsageError",
    "__version__",
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

_ELSEWHERE = {
    "DkgeError": "dkge_dist.types",
    "OpenStore": "dkge_dist.surfaces.open_store",
    "UsageError": "dkge_dist.types",
}
"""Where names are that are no functions of `api`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module(_ELSEWHERE.get(name, "dkge_dist.surfaces.api")), name)
    raise AttributeError(f"module 'dkge_dist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
