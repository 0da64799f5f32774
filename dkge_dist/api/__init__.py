"""The public functions, by what they are about. The command line is thin over these.

A function's module is imported when it is first asked for: nobody waits for torch to see a log.
"""

from __future__ import annotations

import importlib
from typing import Any

FUNCTIONS = {
    "synth": "graphs",
    "ingest": "graphs",
    "log": "graphs",
    "diff": "graphs",
    "check": "graphs",
    "train": "training",
    "update": "updating",
    "nightly": "nights",
    "rollback": "nights",
    "gc": "nights",
    "evaluate": "questions",
    "answer": "questions",
    "export": "questions",
}


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return getattr(importlib.import_module(f"dkge_dist.api.{FUNCTIONS[name]}"), name)
    raise AttributeError(f"module 'dkge_dist.api' has no attribute {name!r}")
