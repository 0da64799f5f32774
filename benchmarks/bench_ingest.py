"""How fast a dump of IMDB-13 size becomes a snapshot, and what its next night costs as a dump and as a change."""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.movies import movies
from benchmarks.processes import measured_command
from benchmarks.report import options, publish
from dkge_dist.graph.source_diff import encode
from dkge_dist.graph.sources.base import Rejects
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.store.store import Store

NONE_HELD_OUT = ["--valid", "0", "--test", "0"]


def ingest(store: Path, source: Path) -> dict[str, Any]:
    """Run the command in a process of its own, as a user would; adds its wall time and peak memory."""
    found = measured_command(["ingest", str(store), str(source), *NONE_HELD_OUT])
    return {**found["report"], "wall_seconds": found["seconds"], "peak_gb": found["peak_bytes"] / 1e9}


def read_only(store: Path, source: Path) -> float:
    """Seconds to read a source and look up its labels, without diff or store."""
    opened = Store.open(store)
    names = opened.dictionaries(opened.manifest(1))
    began = time.perf_counter()
    encode(open_source(source), *names, Rejects())
    return time.perf_counter() - began


def share_of_changes(source: Path, share: float, out: Path) -> Path:
    lines = source.read_text().splitlines(keepends=True)
    step = round(1 / share)
    out.write_text("".join(lines[::step]))
    return out


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    arguments = parser.parse_args()
    folder = movies(arguments.work, arguments.preset, nights=1, full=True)
    store = arguments.work / "ingest-store"
    shutil.rmtree(store, ignore_errors=True)
    # Kernels are compiled once per machine and cached; a small run keeps that out of the figures.
    small = movies(arguments.work, "demo", nights=1, full=True)
    for source in ("snapshot-000.tsv", "night-001.changes"):
        ingest(arguments.work / "warm-store", small / source)
    shutil.rmtree(arguments.work / "warm-store")

    base = ingest(store, folder / "snapshot-000.tsv")
    reading = read_only(store, folder / "snapshot-001.tsv")
    night = ingest(store, folder / "snapshot-001.tsv")
    (store / "versions" / f"{night['version']:08d}.json").unlink()
    changes = {}
    for share in (0.25, 0.5, 1.0):
        part = share_of_changes(folder / "night-001.changes", share, arguments.work / "part.changes")
        report = ingest(store, part)
        changes[share] = {key: report[key] for key in ("lines", "seconds", "wall_seconds", "bytes_written", "peak_gb")}
        (store / "versions" / f"{report['version']:08d}.json").unlink()
    shutil.rmtree(store)
    publish(
        "bench_ingest",
        {"base": base, "night_as_snapshot": night, "reading_seconds": reading, "night_as_change": changes},
        arguments,
        {
            "ingest, triples/s (whole command)": (base["lines"] / base["wall_seconds"], ">= 300,000"),
            "ingest, peak GB": (base["peak_gb"], "<= 4"),
            "night as snapshot, s on top of reading": (night["wall_seconds"] - reading, "<= 15"),
            "night as change, s (whole command)": (changes[1.0]["wall_seconds"], "in proportion"),
            "half of the night as change, s": (changes[0.5]["wall_seconds"], "in proportion"),
            "a quarter of the night as change, s": (changes[0.25]["wall_seconds"], "in proportion"),
            "this process, peak GB": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, ""),
        },
    )


if __name__ == "__main__":
    main()
