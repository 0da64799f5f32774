"""Cells: the units in which the study is measured and resumed. One JSON file each, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.report import machine, portable

Result = dict[str, Any]
LIBRARIES = ("torch", "numba", "numpy", "scipy", "ray", "pykeen")


@dataclass(frozen=True)
class Cell:
    """What is measured. `setting` says what differs from the usual; `budget` is in seconds, 0 where there is none."""

    part: str
    system: str
    data: str
    snapshot: str
    seed: int
    setting: str = ""
    budget: float = 0.0

    @property
    def name(self) -> str:
        """For people and for the file; the digest tells apart what looks alike."""
        words = [self.system, self.data, self.snapshot, f"seed {self.seed}", self.setting, f"{self.budget:g} s"]
        text = ", ".join(word for word in words if word)
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', text).strip('-')[:120]}-{digest}"


class Ledger:
    """The results in a folder. `command` says, of a part, what a reader types to get its results again."""

    def __init__(self, folder: Path, command: Callable[[str], str] = "python -m benchmarks.study {}".format) -> None:
        self.folder, self.command = folder, command
        self.failed: list[Cell] = []

    def path(self, cell: Cell) -> Path:
        """Where the result of a cell is, or will be."""
        return self.folder / cell.part / f"{cell.name}.json"

    def result(self, cell: Cell) -> Result | None:
        """What was measured; None if it was not, or failed."""
        found = self._read(self.path(cell))
        return found["result"] if found is not None and found["status"] == "done" else None

    def run(self, cell: Cell, work: Callable[[], Result]) -> Result | None:
        """The result of a cell, measured now if it has not been; None if that fails."""
        known = self.result(cell)
        if known is not None:
            return known
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        running = path.with_suffix(".running")
        self._tell_of_before(cell, path, running)
        print(f"{datetime.now(UTC):%H:%M:%S} {cell.part}: {cell.name}", file=sys.stderr, flush=True)
        running.touch()
        envelope = self._envelope(cell)
        began = time.perf_counter()
        try:
            result = work()
        except Exception as error:
            traceback.print_exc()
            self._write(path, {**envelope, "status": "failed", "error": f"{type(error).__name__}: {error}"}, began)
            self.failed.append(cell)
            result = None
        else:
            self._write(path, {**envelope, "status": "done", "result": result}, began)
        running.unlink(missing_ok=True)
        return result

    def take(self, envelope: Result) -> bool:
        """Keep what was measured elsewhere, unless the cell was measured here."""
        cell = Cell(**envelope["cell"])
        if self.result(cell) is not None:
            return False
        self.path(cell).parent.mkdir(parents=True, exist_ok=True)
        self._replace(self.path(cell), envelope)
        return True

    def all(self, part: str | None = None) -> Iterator[Result]:
        """Every envelope of a part, or of all, in the order of their names."""
        for path in sorted((self.folder / part if part else self.folder).glob("*.json" if part else "*/*.json")):
            found = self._read(path)
            if found is not None:
                yield found

    def _tell_of_before(self, cell: Cell, path: Path, running: Path) -> None:
        before = self._read(path)
        if before is not None:
            print(f"failed before, tried again: {cell.name}: {before.get('error')}", file=sys.stderr)
        elif running.exists():
            print(f"interrupted before, tried again: {cell.name}", file=sys.stderr)

    def _envelope(self, cell: Cell) -> Result:
        facts = machine()
        facts["versions"] = facts["versions"] | _versions()
        return {"cell": asdict(cell), "command": self.command(cell.part), "machine": facts, "seed": cell.seed}

    def _write(self, path: Path, envelope: Result, began: float) -> None:
        content = portable({
            **envelope,
            "date": datetime.now(UTC).date().isoformat(),
            "seconds": round(time.perf_counter() - began, 3),
            "load_after": round(os.getloadavg()[0], 2),
        })  # fmt: skip
        self._replace(path, content)

    @staticmethod
    def _replace(path: Path, content: Result) -> None:
        temporary = path.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    @staticmethod
    def _read(path: Path) -> Result | None:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(path.read_text())
            if isinstance(found, dict) and "status" in found:
                return found
        return None


def _versions() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[library] = version(library)
    return found
