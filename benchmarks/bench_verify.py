"""What verifying a store of IMDB-13 size costs whoever opens it and answers one question, and an update that opens it.

Every run is a process of its own, and the ways take turns: `none` verifies nothing and checks no rows (no setting does
that), `folded` all but the blocks of tables, `mapped` everything (the default), `sha256` everything by its name, as
stores without checksums are.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.movies import store_of
from benchmarks.random_model import publish_random_model
from benchmarks.report import options, publish
from dkge_dist import api
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store import parts, tables, verify
from dkge_dist.store.store import Store
from dkge_dist.types import Split

WAYS = ("none", "folded", "mapped", "sha256")
LIMIT = 1.05


def verified_by_name(path: Path, part: Any, data: Any) -> None:
    if hashlib.sha256(data).hexdigest() != part.digest:
        raise SystemExit(f"{path} is damaged")


def use(way: str) -> None:
    """Let this process verify in that way."""
    os.environ[verify.SETTING] = "folded" if way == "folded" else "mapped"
    if way in ("none", "sha256"):
        check = verified_by_name if way == "sha256" else lambda *_: None
        verify.verify_bytes = tables.verify_bytes = check  # type: ignore[assignment]
    if way == "none":
        parts.first_unsound = parts.first_outside = lambda *_: -1  # type: ignore[assignment]
        parts.is_sound = lambda _: True  # type: ignore[assignment]


def once(store: Path, way: str, question: list[str], began: float) -> None:
    """In a process begun at that time: seconds of an answer, and of opening all tables as an update does."""
    use(way)
    api.answer(store, *question)
    answered, used = time.time() - began, time.process_time()
    opened = Store.open(store)
    model = opened.find_model()
    rows = (model.model.entities["joint"].rows, model.model.relations["joint"].rows)  # type: ignore[index]
    began = time.perf_counter()
    with LocalRuntime().open_tables(opened, model, rows):
        seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"answer": answered, "processor": used, "open_tables": seconds, "peak_gb": peak}))


def first_question(store: Path) -> list[str]:
    opened = Store.open(store)
    manifest = opened.snapshot_manifest(opened.find_model().model.snapshot)
    names, triples = opened.dictionaries(manifest), opened.snapshot(manifest).triples(Split.TRAIN)
    return [names[0].label(int(triples.head[0])), names[1].label(int(triples.relation[0]))]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--entities", type=int, help="another size of the graph")
    parser.add_argument("--times", type=int, default=9)
    words = ("STORE", "WAY", "HEAD", "RELATION", "BEGAN")
    parser.add_argument("--once", nargs=len(words), metavar=words, help="one run, in a process of its own")
    arguments = parser.parse_args()
    if arguments.once:
        path, way, *question, began = arguments.once
        once(Path(path), way, question, float(began))
        return
    store = store_of(arguments.work, arguments.preset, entities=arguments.entities, held_out=1000)
    if Store.open(store).current_model() is None:
        publish_random_model(Store.open(store), 1, ["model.dim=100"])
    question = first_question(store)
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(arguments.times + 1):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.bench_verify", "--once", str(store), way, *question]
            done = subprocess.run([*command, str(time.time())], stdout=subprocess.PIPE, text=True, check=True)
            runs[way].append(json.loads(done.stdout))
    # The first turn fills the page cache. The least of several turns has least of other programs in it.
    least = {way: {key: min(run[key] for run in found[1:]) for key in found[0]} for way, found in runs.items()}
    none = least["none"]
    figures: dict[str, tuple[Any, Any]] = {"start, opening and answering, nothing verified, s": (none["answer"], "")}
    for way in WAYS[1:]:
        limit = f"<= {LIMIT}" if way == "mapped" else ""
        figures[f"  times as long, {way}"] = (least[way]["answer"] / none["answer"], limit)
        figures[f"  times the processor time, {way}"] = (least[way]["processor"] / none["processor"], "")
    for way in WAYS:
        figures[f"opening all tables for an update, {way}, s"] = (least[way]["open_tables"], "")
    publish("bench_verify", {"times": arguments.times, "runs": runs}, arguments, figures)


if __name__ == "__main__":
    main()
