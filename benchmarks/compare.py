"""The same measurement in an older checkout and in this one, side by side.

Each side is a process that stays (`epochs.py`), and they take turns, now one first, now the other: what else the
machine does then hits both alike. The first turn of each loads compiled kernels and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
LIMIT = 0.97
UNDISTURBED = 0.1
"""The share of batches that nothing else on the machine has slowed down, one hopes; they are the fastest ones."""


def add_before(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, metavar="PATH", help="compare with the checkout there, and nothing else")
    parser.add_argument("--times", type=int, default=7, help="turns of each side, with --before")


@contextmanager
def epochs_of(checkout: Path, words: list[str]) -> Iterator[Callable[[], dict[str, Any]]]:
    """A process of a checkout, and a function that lets it run one epoch.

    It runs in the checkout: Ray's workers import from where their driver runs before they look elsewhere.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, str(HERE / "benchmarks" / "epochs.py"), *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout, env=environment
    ) as process:
        asked, answered = process.stdin, process.stdout
        assert asked is not None
        assert answered is not None

        def turn() -> dict[str, Any]:
            with suppress(BrokenPipeError):
                print(file=asked, flush=True)
            line = answered.readline()
            if not line:
                raise SystemExit(f"{checkout}: its side of the comparison ended with {process.wait()}")
            found: dict[str, Any] = json.loads(line)
            return found

        try:
            yield turn
        finally:
            with suppress(BrokenPipeError):
                asked.close()  # No more lines: it ends by itself.


def side_by_side(before: Path, words: list[str], times: int) -> dict[str, Any]:
    """Both sides of one case: every turn, and the ratios of medians, now to before."""
    if not (before / "dkge_dist").is_dir():
        raise SystemExit(f"--before {before}: no dkge_dist there; name a checkout")
    turns: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    with epochs_of(before, words) as one, epochs_of(HERE, words) as other:
        sides = [("before", one), ("now", other)]
        for number in range(times + 1):
            for name, turn in sides if number % 2 else reversed(sides):
                found = turn()
                if number:
                    turns[name].append(found)
            print(f"turn {number} of {times}", file=sys.stderr, flush=True)
    found = {name: _medians(some) for name, some in turns.items()}
    ratios = {key: found["now"][key] / found["before"][key] for key in found["now"]}
    return {"turns": turns, **found, "ratios": ratios}


def _medians(turns: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over turns; batches are pooled, and the fastest of them taken for undisturbed."""
    batches = sorted(seconds for turn in turns for seconds in turn.pop("batch_seconds"))
    medians = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    return {**medians, "undisturbed_batches_per_second": 1 / batches[int(UNDISTURBED * len(batches))]}


def compared(cases: dict[str, list[str]], arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every case side by side: what was measured, and the figures to print."""
    result: dict[str, Any] = {}
    figures: dict[str, tuple[Any, str]] = {}
    for name, words in cases.items():
        result[name] = side_by_side(arguments.before, words, arguments.times)
        for side in ("before", "now"):
            figures[f"{name}: triples/s, {side}"] = (result[name][side]["triples_per_second"], "")
        ratios = result[name]["ratios"]
        figures[f"{name}: throughput, now / before"] = (ratios["triples_per_second"], f">= {LIMIT}")
        figures[f"{name}: throughput of undisturbed batches, now / before"] = (
            ratios["undisturbed_batches_per_second"],
            f">= {LIMIT}",
        )
        figures[f"{name}: CPU a triple, now / before"] = (ratios["cpu_per_million"], "")
    return result, figures
