"""A night: what it costs at IMDB-13 size, and whether one and the same night costs the same in a larger graph.

For the second question a graph of 32,000 entities and its night are embedded in larger ones: the same triples and the
same change, the rest another movie graph. Opening the store (building neighbour lists, counting relation paths) follows
the size and is reported apart. The sizes take turns, and the ratios are those within a turn: what else the machine does
then hits all of them alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.movies import movies, store_of
from benchmarks.published import online_words
from benchmarks.report import options, publish
from dkge_dist.surfaces import api

SMALL = 32_000
SIZES = (SMALL, 320_000, 3_200_000)
SHORT = ["model.dim=100", "train.max_seconds=20", "train.batch_size=4000", "train.patience=0"]

FIXED = ["train.valid_candidates=20000"]
"""As many candidates of the last validation at every size; the default takes all there are up to 100,000."""

IN_ITS_OWN_PROCESS = """
import json, sys
from pathlib import Path
from dkge_dist.surfaces import api
report = api.update(sys.argv[1], since_version=sys.argv[2], settings=sys.argv[3:])
status = Path("/proc/self/status").read_text().splitlines()
peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(json.dumps({**report, "peak_gb": 1024 * int(peak) / 1e9}))
"""
"""Prints the report of an update with the peak memory of it alone: what a parent sees of a child holds its own too."""


def base_model(store: Path) -> str:
    """The version of the first model."""
    return str(next(line["version"] for line in api.log(store)["versions"] if line["kind"] == "model"))


def night_at_full_size(work: Path, preset: str, seconds: float) -> dict[str, Any]:
    """The report of the update of a night."""
    store = store_of(work, preset)
    if not any(line["kind"] == "model" for line in api.log(store)["versions"]):
        words = ["model.dim=100", f"train.max_seconds={seconds}", "train.batch_size=4000"]
        api.train(store, snapshot="1", settings=words)
    command = [sys.executable, "-c", IN_ITS_OWN_PROCESS, str(store), base_model(store), *online_words()]
    began = time.monotonic()
    report: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {**report, "command_seconds": round(time.monotonic() - began, 2)}


def _believed(night: dict[str, Any], way: str) -> float:
    """How much of what it believes of the surroundings a model believes of what was added."""
    found = night["fidelity"]
    return float(found["added_existing"][way]["mrr"] / found["kept_near"][way]["mrr"])


def embedded(work: Path, size: int) -> Path:
    """A store with the small graph inside one of `size` entities, a short training, and the night ingested."""
    small = movies(work, "imdb-13", 1, entities=SMALL)
    store = work / f"night-in-{size}-store"
    if store.exists():
        return store
    source = work / f"night-in-{size}.tsv"
    with source.open("w", encoding="utf-8") as out:
        out.write((small / "snapshot-000.tsv").read_text(encoding="utf-8"))
        if size > SMALL:
            around = movies(work, "imdb-13", 0, entities=size - SMALL)
            for line in (around / "snapshot-000.tsv").open(encoding="utf-8"):
                head, relation, tail = line.rstrip("\n").split("\t")
                out.write(f"x{head}\t{relation}\tx{tail}\n")
    api.ingest(store, source, name="base", valid=200)
    source.unlink()
    api.train(store, settings=SHORT)
    api.ingest(store, small / "night-001.changes", name="night")
    return store


def flat(work: Path, times: int) -> list[dict[int, Any]]:
    """The reports of one and the same update by size, turn by turn."""
    stores = {size: embedded(work, size) for size in SIZES}
    bases = {size: base_model(store) for size, store in stores.items()}
    turns = [
        {size: api.update(store, since_version=bases[size], settings=FIXED) for size, store in stores.items()}
        for _ in range(times + 1)
    ]
    # The first one loads the compiled kernels.
    return turns[1:]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--train-seconds", type=float, default=120, help="of the base model at full size")
    parser.add_argument("--times", type=int, default=9)
    parser.add_argument("--no-flatness", action="store_true")
    arguments = parser.parse_args()
    night = night_at_full_size(arguments.work, arguments.preset, arguments.train_seconds)
    figures: dict[str, tuple[Any, Any]] = {
        f"update of an {arguments.preset} night, s": (night["command_seconds"], "<= 60"),
        "  of which opening the store": (night["open_seconds"], ""),
        "  peak GB": (night["peak_gb"], "<= 6"),
        **{f"  {name}": (night[f"{name}_seconds"], "") for name in ("plan", "learn", "measure", "publish")},
        "  added_existing / kept_near, MRR by vectors (sampled)": (_believed(night, "vectors"), ">= 0.9"),
        "  added_existing / kept_near, MRR with evidence (sampled)": (_believed(night, "with_evidence"), ""),
    }
    overhead = _overhead(night)
    if overhead > 0.5:
        # A night that was learnt before writes the same parts, which are there already.
        figures["  bytes written / bytes of changed rows"] = (overhead, "<= 3")
    result: dict[str, Any] = {"night": night}
    if not arguments.no_flatness:
        turns = flat(arguments.work, arguments.times)
        limits = {"plan_seconds": "<= 1.3", "publish_seconds": "<= 1.3", "learn_seconds": "<= 1.3", "open_seconds": ""}
        keys = (*limits, "trained_triples")
        by_size = {size: {key: [turn[size][key] for turn in turns] for key in keys} for size in SIZES}
        result["flatness"] = {
            size: {key: {"median": median(found), "least": min(found)} for key, found in runs.items()}
            for size, runs in by_size.items()
        }
        for key, limit in limits.items():
            ratios = [turn[SIZES[-1]][key] / turn[SIZES[0]][key] for turn in turns]
            figures[f"same night, {key}, 3,200,000 against 32,000 entities"] = (median(ratios), limit)
    publish("bench_night", result, arguments, figures)


def _overhead(night: dict[str, Any]) -> float:
    """`^k` and o* of trained objects, `^c` of emerging ones, 100 numbers each."""
    new = night["emerging_entities"] + night["emerging_relations"]
    trained = new + night["affected_entities"] + night["affected_relations"]
    return float(night["bytes_written"]) / (400 * (2 * trained + new))


if __name__ == "__main__":
    main()
