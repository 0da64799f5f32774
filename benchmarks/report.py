"""What every benchmark shares: options, facts about the machine, and where results go."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    parser.add_argument("--work", type=Path, default=Path(".bench"), help="folder for generated graphs (kept)")
    return parser


def machine() -> dict[str, Any]:
    model = platform.processor()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("dkge_dist", "numpy", "numba", "pyarrow")},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _words(given: list[str]) -> list[str]:
    """The words of a command, without where generated graphs were kept: that changes nothing."""
    at = given.index("--work") if "--work" in given else len(given)
    return given[:at] + given[at + 2 :]


def median_seconds(work: Callable[[], Any], times: int, before: Callable[[], Any] = lambda: None) -> float:
    """Median of several runs; `before` runs before each and is not counted."""
    seconds = []
    for _ in range(times):
        before()
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def publish(
    name: str, result: dict[str, Any], arguments: argparse.Namespace, asked: dict[str, tuple[Any, Any]]
) -> None:
    """Print a result; `asked` maps each figure to (measured, limit as text)."""
    report = {
        "benchmark": name,
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *_words(sys.argv[1:])]),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "figures": {figure: {"measured": measured, "asked": limit} for figure, (measured, limit) in asked.items()},
        **result,
    }
    if arguments.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(report))
        return
    width = max(len(figure) for figure in asked)
    for figure, (measured, limit) in asked.items():
        shown = f"{measured:,.3f}" if isinstance(measured, float) else f"{measured:,}"
        print(f"{figure:{width}}  {shown:>16}  {limit}")
