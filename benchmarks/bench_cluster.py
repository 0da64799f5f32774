"""A graph of IMDB-13 size on shards: load, train for a while, play nights; the memory of all processes together.

The commands are run as users run them, each with a Ray of its own; memory counts shared pages once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.movies import movies
from benchmarks.processes import peak_memory
from benchmarks.report import options, publish
from dkge_dist.surfaces import api

HELD_OUT = 1000


def dkge(*words: str) -> dict[str, Any]:
    """Run a command; what it reported, with its seconds and the peak memory of all its processes."""
    began = time.monotonic()
    with peak_memory() as peak:
        done = subprocess.run(
            [sys.executable, "-m", "dkge_dist.surfaces.cli", *words, "--json"], capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(f"dkge {' '.join(words)}: {done.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return {**report, "wall_seconds": round(time.monotonic() - began, 1), "peak_gb": peak[0] / 1e9}


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--nights", type=int, default=2)
    parser.add_argument("--train-seconds", type=float, default=180)
    arguments = parser.parse_args()
    folder = movies(arguments.work, arguments.preset, arguments.nights)
    store = Path(arguments.work) / f"{arguments.preset}-cluster-store"
    shutil.rmtree(store, ignore_errors=True)  # A night that it has already would be no work.
    api.ingest(store, folder / "snapshot-000.tsv", valid=HELD_OUT, test=HELD_OUT)
    shards = ["--shards", str(arguments.shards)]
    trained = dkge(
        "train", str(store), "--fresh", *shards, "model.dim=100", "train.batch_size=8000", "threads=2",
        f"train.max_seconds={arguments.train_seconds}", "online.retrain_when=never",
    )  # fmt: skip
    print(
        {key: trained[key] for key in ("triples_per_second", "seconds", "wall_seconds", "peak_gb")},
        file=sys.stderr,
        flush=True,
    )
    nights = []
    for source in sorted(folder.glob("night-*.changes"))[: arguments.nights]:
        nights.append(dkge("nightly", str(store), str(source), *shards))
        print(
            {key: nights[-1][key] for key in ("decision", "seconds", "wall_seconds", "peak_gb")},
            file=sys.stderr,
            flush=True,
        )
    figures = {
        "triples/s of training": (trained["triples_per_second"], "reported"),
        "seconds of a night (slowest)": (max(night["wall_seconds"] for night in nights), "reported"),
        "peak GB of all processes": (max(run["peak_gb"] for run in (trained, *nights)), "<= 12"),
        "shards touched by the last night": (nights[-1]["update"]["shards_touched"], f"of {arguments.shards}"),
    }
    publish("bench_cluster", {"train": trained, "nights": nights}, arguments, figures)


if __name__ == "__main__":
    main()
