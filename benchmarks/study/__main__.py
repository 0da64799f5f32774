"""The command line of the study."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from pathlib import Path

from benchmarks.study.cells import Ledger
from benchmarks.study.figures import Figures, export, restore
from benchmarks.study.graphs import BUDGET, Study
from benchmarks.study.page import write
from benchmarks.study.readme import write as write_readme

PARTS = ("comparison", "efficiency", "robustness", "sensitivity", "questions", "scale", "debian", "from_text")
QUICK_BUDGET = 1.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.study", description="The study: see benchmarks/study")
    made.add_argument(
        "part",
        nargs="+",
        choices=(*PARTS, "all", "report", "readme", "export", "import"),
        help="what to measure; `report` writes the page, `readme` the results in the README, `export` copies what is "
        "measured to benchmarks/results, `import` takes it from there, so that it is not measured again",
    )
    made.add_argument("--out", type=Path, default=Path("study.html"), help="the page (its tables: the same with .md)")
    made.add_argument("--quick", action="store_true", help="on small graphs, in seconds; its figures mean nothing")
    made.add_argument("--work", type=Path, default=Path(".bench/study"), help="folder of graphs and results (kept)")
    made.add_argument("--budget", type=float, help=f"seconds of a training ({BUDGET:g})")
    made.add_argument("--seeds", type=int, default=1, help="how many: 1, 2, ...")
    made.add_argument("--data", choices=("yago", "movies"), help="one data set of the comparison alone")
    made.add_argument("--systems", nargs="+", metavar="NAME", help="some systems of the comparison alone")
    made.add_argument("--debian", type=Path, nargs=2, metavar=("OLD", "NEW"), help="Packages files of two releases")
    return made


def study_of(arguments: argparse.Namespace) -> Study:
    """Quick runs have a folder of their own: their results are never taken for real ones."""
    work = arguments.work / "quick" if arguments.quick else arguments.work
    budget = arguments.budget or (QUICK_BUDGET if arguments.quick else BUDGET)
    # A part may run cells of another one: each cell names the command of its own.
    ledger = Ledger(work / "cells", lambda part: command_of(part, arguments))
    return Study(work, ledger, arguments.quick, budget, arguments.seeds, arguments)


def command_of(part: str, arguments: argparse.Namespace) -> str:
    """What a reader types to measure a part again."""
    words = ["python", "-m", "benchmarks.study", part, *(["--quick"] if arguments.quick else [])]
    if arguments.budget:
        words += ["--budget", f"{arguments.budget:g}"]
    if arguments.seeds != 1:
        words += ["--seeds", str(arguments.seeds)]
    return shlex.join(words)


def main(words: list[str] | None = None) -> int:
    """Measure some parts; 1 if a cell failed."""
    arguments = parser().parse_args(words)
    study = study_of(arguments)
    study.work.mkdir(parents=True, exist_ok=True)
    views = {
        "report": lambda: write(Figures.of(study.work), arguments.out),
        "readme": lambda: write_readme(Figures.of(study.work)),
        "export": lambda: export(study.work),
        "import": lambda: restore(study.work),
    }
    # Debian's releases are not here by themselves: `all` leaves them out unless they are given.
    every = [part for part in PARTS if part != "debian" or arguments.debian or arguments.quick]
    for part in [name for given in arguments.part for name in (every if given == "all" else [given])]:
        if part in views:
            views[part]()
            continue
        importlib.import_module(f"benchmarks.study.{part}").run(study)
    for cell in study.ledger.failed:
        print(f"failed: {cell.part}: {cell.name}; run it again to try again", file=sys.stderr)
    return 1 if study.ledger.failed else 0


if __name__ == "__main__":
    sys.exit(main())
