"""Seconds that numba takes to compile kernels on the way of `make demo`, command by command, with nothing compiled.

Each command is a process of its own; all share a cache of kernels that is empty at first, as in a fresh clone. The
seconds of a kernel are CPU seconds of the thread that compiles it, without those of the subkernels compiled amid it,
which have lines of their own.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.report import options, publish

CLI = "dkge_dist.surfaces.cli"
COMMANDS = {
    "synth": "synth {folder}/movies --preset demo",
    "ingest": "ingest {folder}/store {folder}/movies/snapshot-000.tsv --valid 200 --test 200",
    "train": "train {folder}/store train.max_epochs=2",
    "nightly": "nightly {folder}/store {folder}/movies/night-001.changes",
    "answer": "answer {folder}/store {head} {relation}",
    "demo": "demo --folder {folder}/demo --quiet",
}


def main() -> None:
    """Run all commands; with `--inner`, one of them and a listener in its process."""
    if sys.argv[1:2] == ["--inner"]:
        with _listening(Path(sys.argv[2])):
            sys.argv = ["dkge", *sys.argv[3:]]
            runpy.run_module(CLI, run_name="__main__")
        return
    arguments = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kernels = [row for command in COMMANDS for row in _compiled(command, Path(folder))]
    kernels.sort(key=lambda row: -row["seconds"])
    if not arguments.json:
        for row in kernels:
            print(f"{row['kernel']:48} {row['seconds']:8.2f}  {row['command']}")
    asked: dict[str, tuple[Any, Any]] = {}
    for command in COMMANDS:
        own = [row["seconds"] for row in kernels if row["command"] == command]
        asked[f"{command}: seconds of {len(own)} compilations"] = sum(own), ""
    asked["together, seconds"] = sum(row["seconds"] for row in kernels), "as few as can be"
    publish("bench_compile", {"kernels": kernels}, arguments, asked)


def _compiled(command: str, folder: Path) -> list[dict[str, Any]]:
    """What one command compiles, in a process of its own."""
    out = folder / "compiled.json"
    words = COMMANDS[command].format(folder=folder, **_question(folder)).split()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")}
    inner = [sys.executable, "-m", "benchmarks.bench_compile", "--inner", str(out), *words]
    subprocess.run(inner, check=True, stdout=subprocess.DEVNULL, env=environment)
    return [{**row, "command": command} for row in json.loads(out.read_text())]


def _question(folder: Path) -> dict[str, str]:
    """Head and relation of some triple, once there are any."""
    triples = folder / "movies" / "snapshot-000.tsv"
    head, relation = triples.read_text().split("\n", 1)[0].split("\t")[:2] if triples.exists() else ("", "")
    return {"head": head, "relation": relation}


@contextmanager
def _listening(out: Path) -> Iterator[None]:
    """Write what numba compiles meanwhile: kernel, number of its signature, and seconds of its own."""
    from numba.core import event

    rows: list[dict[str, Any]] = []
    open_events: list[list[float]] = []  # When each began, and the seconds of what was compiled amid it.

    class Listener(event.Listener):
        def on_start(self, started: event.Event) -> None:
            open_events.append([time.thread_time(), 0.0])

        def on_end(self, ended: event.Event) -> None:
            began, amid = open_events.pop()
            seconds = time.thread_time() - began
            if open_events:
                open_events[-1][1] += seconds
            function = ended.data["dispatcher"].py_func
            name = f"{function.__module__.removeprefix('dkge_dist.')}.{function.__name__}"
            rows.append({"kernel": name, "seconds": seconds - amid, "types": str(ended.data["args"])})

    # The lock of numba's compiler is held throughout, so that events of several threads nest too.
    with event.install_listener("numba:compile", Listener()):
        try:
            yield
        finally:
            out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
