"""A night with the store in a bucket against the same night with the store in a folder.

The bucket is in moto, a server on loopback in a process of its own. Both stores hold the same versions; their nights
take turns, each in a process of its own. The first turn fills the cache of the bucket's blocks and is not counted:
every later night finds there what the nights before it wrote or read. At the end, one night is learnt by a machine
whose cache is empty.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.movies import movies
from benchmarks.random_model import publish_random_model
from benchmarks.report import options, publish
from dkge_dist.store.storage.objects import Objects
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.bucket_server import BUCKET, Proxy, bucket_server, environment

NIGHT = """
import json, sys, time
began = time.perf_counter()
from dkge_dist.surfaces import api
report = api.nightly(sys.argv[1], sys.argv[2], settings=["online.retrain_when=never"])
print(json.dumps({"seconds": time.perf_counter() - began, "learn_seconds": report["update"]["learn_seconds"]}))
"""


def night(store: Path | str, source: Path) -> dict[str, float]:
    """Seconds of a night in a process of its own, its imports included."""
    command = [sys.executable, "-c", NIGHT, str(store), str(source)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def upload(store: Path, location: str) -> None:
    """A store in a bucket has the names of a store in a folder."""
    objects = Objects(location)
    for path in store.rglob("*"):
        if path.is_file():
            objects.put(str(path.relative_to(store)), path)


def downloaded(proxy: Proxy) -> int:
    """Parts that were read from the bucket since this was last asked."""
    count = sum(line.startswith(b"GET") and b"/parts/" in line for line in proxy.seen)
    proxy.seen.clear()
    return count


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-30")
    parser.add_argument("--entities", type=int, default=None)
    parser.add_argument("--nights", type=int, default=6)
    arguments = parser.parse_args()
    graph = movies(arguments.work, arguments.preset, arguments.nights, entities=arguments.entities)
    sources = sorted(graph.glob("night-*.changes"))
    local, cache = arguments.work / "bucket-local", arguments.work / "bucket-cache"
    for left in (local, cache, arguments.work / "bucket-cold"):
        shutil.rmtree(left, ignore_errors=True)
    api.ingest(local, graph / "snapshot-000.tsv", valid=500, test=500)
    publish_random_model(Store.open(local), 1, ["model.dim=100"])
    turns: list[dict[str, Any]] = []
    with bucket_server() as port:
        proxy = Proxy(port)  # It counts, and delays nothing; its own time counts against the bucket.
        os.environ.update(environment(proxy.port, cache.absolute()))
        remote = f"s3://{BUCKET}/store"
        upload(local, remote)
        for number, source in enumerate(sources):
            turn: dict[str, Any] = {}
            places = [("folder", local), ("bucket", remote)]
            proxy.seen.clear()
            if number == len(sources) - 1:
                os.environ["DKGE_CACHE"] = str((arguments.work / "bucket-cold").absolute())
            for name, store in places if number % 2 else reversed(places):
                turn[name] = night(store, source)
            turn["requests"], turn["downloaded"] = len(proxy.seen), downloaded(proxy)
            turn["ratio"] = turn["bucket"]["seconds"] / turn["folder"]["seconds"]
            turns.append(turn)
            print(number, turn, file=sys.stderr, flush=True)
    warm, cold = turns[1:-1], turns[-1]
    figures: dict[str, tuple[Any, Any]] = {
        f"{arguments.preset} night, bucket / folder (median of {len(warm)})": (
            median(t["ratio"] for t in warm),
            "<= 1.5",
        ),
        "  s in a folder": (median(t["folder"]["seconds"] for t in warm), ""),
        "  s in a bucket": (median(t["bucket"]["seconds"] for t in warm), ""),
        "  requests": (median(t["requests"] for t in warm), ""),
        "  parts downloaded": (median(t["downloaded"] for t in warm), ""),
        "with an empty cache, bucket / folder": (cold["ratio"], ""),
        "  parts downloaded with it": (cold["downloaded"], ""),
    }
    publish("bench_bucket", {"turns": turns}, arguments, figures)


if __name__ == "__main__":
    main()
