"""What every benchmark shares: options, facts about the machine, and published results that name no path of it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PROJECT = Path(__file__).resolve().parents[1]
DATA = "DKGE_DATA"

# A path: a slash, or dots or a tilde and a slash, where a word begins; not that of a URL, a ratio or a date.
_PATH = re.compile(r"(?<![\w./:~-])(?:~|\.\.|\.)?/[\w.@%~][\w.@%+~/-]*")


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
        # Those that this process may use: `taskset` measures several things at a time, a core each.
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("dkge_dist", "numpy", "numba", "pyarrow")},
        "load_before": round(os.getloadavg()[0], 2),
    }


def command_line(name: str, words: list[str]) -> str:
    """The command without `--work`, which changes no result, and with portable paths."""
    at = words.index("--work") if "--work" in words else len(words)
    # Quoted before paths are replaced: `$DKGE_DATA` has to stay open to the shell.
    return portable(shlex.join(["python", "-m", f"benchmarks.{name}", *words[:at], *words[at + 2 :]]))


def portable(value: Any) -> Any:
    """`value`, a report or a part of one, with every path replaced by one that means something elsewhere.

    Paths of the project become relative to it, those of published data relative to $DKGE_DATA; of others only the last
    component is left.
    """
    if isinstance(value, Mapping):
        return {portable(key): portable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [portable(item) for item in value]
    if isinstance(value, Path):
        return _portable_path(str(value)) if value.is_absolute() or ".." in value.parts else str(value)
    return _PATH.sub(lambda match: _portable_path(match[0]), value) if isinstance(value, str) else value


def _portable_path(text: str) -> str:
    path = Path(os.path.abspath(os.path.expanduser(text)))
    data = os.environ.get(DATA)
    if data and path.is_relative_to(os.path.abspath(data)):
        return str(Path(f"${DATA}") / path.relative_to(os.path.abspath(data)))
    if path.is_relative_to(PROJECT):
        return str(path.relative_to(PROJECT))
    return path.name


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
    report = portable(
        {
            "benchmark": name,
            "command": command_line(name, sys.argv[1:]),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "figures": {figure: {"measured": measured, "asked": limit} for figure, (measured, limit) in asked.items()},
            **result,
        }
    )
    if arguments.save:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    if arguments.json:
        print(json.dumps(report))
        return
    print(report["command"])
    width = max(len(figure) for figure in asked)
    for figure, (measured, limit) in asked.items():
        shown = f"{measured:,.3f}" if isinstance(measured, float) else f"{measured:,}"
        print(f"{figure:{width}}  {shown:>16}  {limit}")
