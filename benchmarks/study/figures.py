"""What has been measured so far, to look up: from the cells of a work folder, or from the file in the repository."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, portable
from benchmarks.study.cells import Ledger, Result

EXPORTED = RESULTS / "study.json"


class Figures:
    """Envelopes of cells. Of cells that differ in nothing but their budget, those with the largest one count."""

    def __init__(self, envelopes: Iterable[Result]) -> None:
        every = list(envelopes)
        self.failed = [one for one in every if one["status"] != "done"]
        self.done = [one for one in every if one["status"] == "done"]

    @staticmethod
    def of(work: Path | None) -> Figures:
        """Those of a work folder; without one, those that the repository keeps."""
        if work is not None and (work / "cells").is_dir():
            return Figures(Ledger(work / "cells").all())
        return Figures(json.loads(EXPORTED.read_text())["cells"] if EXPORTED.exists() else [])

    def find(self, part: str, **wanted: Any) -> list[Result]:
        """The envelopes of a part whose cells have these values, all of the largest budget among them."""
        found = [
            one
            for one in self.done
            if one["cell"]["part"] == part and all(one["cell"][name] == value for name, value in wanted.items())
        ]
        most = max((one["cell"]["budget"] for one in found), default=0.0)
        return [one for one in found if one["cell"]["budget"] == most]

    def mean(self, found: list[Result], *path: str) -> float | None:
        """The mean over seeds of a value in the results; None if no result has it."""
        values = [value for one in found if (value := value_at(one["result"], path)) is not None]
        return statistics.mean(values) if values else None

    def values(self, part: str, name: str) -> list[str]:
        """The different values of a field of the cells of a part, in the order they are found."""
        return list(dict.fromkeys(one["cell"][name] for one in self.done if one["cell"]["part"] == part))

    def command(self, part: str) -> str:
        """How a part was measured, or would be."""
        commands = {one["command"] for one in self.done if one["cell"]["part"] == part and one["command"]}
        return sorted(commands, key=len)[0] if commands else f"python -m benchmarks.study {part}"

    def told(self, part: str, data: str | None = None) -> str:
        """How long, on how much of a machine: the most seconds of a training on each data set, and its cores."""
        found = [one for one in self.done if one["cell"]["part"] == part and data in (None, one["cell"]["data"])]
        cores = sorted({one["machine"]["cores"] for one in found})
        most: dict[str, float] = {}
        for cell in (one["cell"] for one in found):
            most[cell["data"]] = max(most.get(cell["data"], 0.0), cell["budget"])
        budgets = " or ".join(f"{budget:g}" for budget in sorted(set(most.values())) if budget)
        where = f"{' or '.join(map(str, cores))} core{'s' * (cores != [1])} for each training"
        return f"at most {budgets} s of learning, {where}" if budgets else where

    def machine(self, part: str) -> str:
        """Where and how long: processor, cores, seconds of a training, and how busy the machine was."""
        found = [one["machine"] for one in self.done if one["cell"]["part"] == part]
        if not found:
            return ""
        loads = [one["load_before"] for one in found]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(found[-1]["versions"].items()))
        busy = f"load before cells {min(loads):.1f} to {max(loads):.1f}"
        return f"{found[-1]['cpu']}, {self.told(part)}, {busy}; {versions}"


def value_at(result: Any, path: Iterable[str]) -> float | None:
    """A number deep in a result."""
    for name in path:
        if not isinstance(result, dict) or name not in result:
            return None
        result = result[name]
    return float(result) if isinstance(result, int | float) else None


def export(work: Path, path: Path = EXPORTED, tell: Callable[[str], None] = print) -> None:
    """Copy what is collected in a work folder to the file that the repository keeps. What that has besides stays."""
    figures = Figures(Ledger(work / "cells").all())
    if not figures.done:
        raise SystemExit(f"{work}: nothing measured there")
    known = json.loads(path.read_text())["cells"] if path.exists() else []
    cells = {json.dumps(one["cell"], sort_keys=True): one for one in [*known, *portable(figures.done)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    # A cell is a line: a third of the size of one value a line, and what changed shows cell by cell.
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in cells.values())
    path.write_text(f'{{"benchmark": "study", "cells": [\n{lines}\n]}}\n')
    kept = len(cells) - len(figures.done)
    tell(f"{len(figures.done)} cells, {len(figures.failed)} failed ones left out, {kept} from elsewhere kept")


def restore(work: Path, path: Path = EXPORTED, tell: Callable[[str], None] = print) -> None:
    """The other way: cells of the repository become done in a work folder, but for those that it has."""
    if not path.exists():
        raise SystemExit(f"{path}: nothing exported yet")
    ledger = Ledger(work / "cells")
    taken = [ledger.take(one) for one in json.loads(path.read_text())["cells"]]
    tell(f"{sum(taken)} of {len(taken)} cells taken, the others were there")
