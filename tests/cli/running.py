"""The `dkge` command as a process, and what it left: exit code, stdout and stderr."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DKGE = str(Path(sys.executable).with_name("dkge"))

TRAIN_KEYS = {"version", "epochs", "seconds", "triples_per_second", "best_valid"}
METRICS = {"mr", "mrr", "hits@1", "hits@3", "hits@10"}
EVALUATE_KEYS = METRICS | {"triples", "seconds", "filtered", "paper", "vectors"}
UPDATE_KEYS = {
    "version", "added", "deleted", "emerging_entities", "affected_entities", "emerging_relations",
    "affected_relations", "trained_triples", "epochs", "seconds", "shards_touched", "shards_total", "bytes_pulled",
    "bytes_pushed", "bytes_written", "fidelity",
}  # fmt: skip
FIDELITY_KEYS = {"added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far"}
"""Keys of the JSON reports that other programs rely on."""


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert self.stdout.endswith("\n")
        assert self.stdout.count("\n") == 1
        report = json.loads(self.stdout)
        assert isinstance(report, dict)
        return report


Run = Callable[..., Ended]

PROGRESS = re.compile(r"^dkge \w+: \d+%.*\n", re.MULTILINE)


def without_progress(stderr: str) -> str:
    """Where a command takes longer than usual (a busy machine, kernels to compile) it tells how far it is."""
    return PROGRESS.sub("", stderr)


def dkge(*arguments: str | Path, env: dict[str, str] | None = None) -> Ended:
    """Run the command in a process of its own. Whatever happens, there is no traceback."""
    done = subprocess.run(
        [DKGE, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=280,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, done.stdout, without_progress(done.stderr))


def error_of(ended: Ended, code: int) -> str:
    """The error of a command that failed: the same in one line on stderr and in the JSON."""
    assert ended.code == code
    assert ended.stderr.startswith("dkge: ")
    assert ended.stderr.count("\n") == 1
    assert ended.json == {"error": ended.stderr.removeprefix("dkge: ").removesuffix("\n")}
    return str(ended.json["error"])


def without_time(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if "seconds" not in key}
