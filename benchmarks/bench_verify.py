"""What verifying a store of IMDB-13 size costs whoever opens it and answers one question, and an update that opens it.

`none` verifies nothing and checks no rows (no setting does that), `folded` all but the blocks of tables, `mapped`
everything (the default), `sha256` everything by its name, as stores without checksums are. The ways take turns in one
process, whose modules and kernels are loaded, and are compared turn by turn in processor seconds: a difference of some
hundredths of a second is not seen in the clock of a machine that others use too. The interval is that of the median.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.random_model import publish_random_model
from benchmarks.report import options, publish
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store import graph_parts, parts, tables
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Field, Split

WAYS = ("none", "folded", "mapped", "sha256")
COMMANDS = 5
REAL = (parts.verify_bytes, graph_parts.first_unsound, graph_parts.first_outside, graph_parts.is_sound)  # type: ignore[attr-defined]


def verified_by_name(path: Path, part: Any, data: Any) -> None:
    if hashlib.sha256(data).hexdigest() != part.digest:
        raise SystemExit(f"{path} is damaged")


def use(way: str) -> None:
    """Let this process verify in that way."""
    os.environ[parts.SETTING] = "folded" if way in ("none", "folded") else "mapped"
    check, unsound, outside, sound = REAL
    if way == "none":
        check, unsound, outside, sound = (lambda *_: None), (lambda *_: -1), (lambda *_: -1), (lambda _: True)
    elif way == "sha256":
        check = verified_by_name
    parts.verify_bytes = tables.verify_bytes = check  # type: ignore[attr-defined]
    graph_parts.first_unsound, graph_parts.first_outside, graph_parts.is_sound = unsound, outside, sound  # type: ignore[attr-defined]


def once(store: Path, way: str, question: list[str]) -> tuple[float, float]:
    """Processor seconds of opening the store and answering, and of opening all tables as an update does."""
    use(way)
    began = time.process_time()
    api.answer(store, *question)
    answered = time.process_time() - began
    opened = Store.open(store)
    model = opened.find_model()
    rows = (model.model.entities[Field.JOINT].rows, model.model.relations[Field.JOINT].rows)
    began = time.process_time()
    with LocalRuntime().open_tables(opened, model, rows):
        return answered, time.process_time() - began


def first_question(store: Path) -> list[str]:
    opened = Store.open(store)
    manifest = opened.snapshot_manifest(opened.find_model().model.snapshot)
    names, triples = opened.dictionaries(manifest), opened.snapshot(manifest).triples(Split.TRAIN)
    return [names[0].label(int(triples.head[0])), names[1].label(int(triples.relation[0]))]


def whole_command(store: Path, question: list[str]) -> float:
    """Processor seconds of `dkge answer`, the start of Python and all imports included; the least of some runs."""
    seconds = []
    for _ in range(COMMANDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "dkge_dist.surfaces.cli", "answer", str(store), *question]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def median_interval(values: Any, rng: Any) -> list[float]:
    """The median and its 95% interval, by bootstrap."""
    drawn = np.median(rng.choice(values, (2000, values.shape[0])), axis=1)
    return [float(np.median(values)), *np.percentile(drawn, [2.5, 97.5]).tolist()]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--entities", type=int, help="another size of the graph")
    parser.add_argument("--times", type=int, default=40)
    arguments = parser.parse_args()
    store = store_of(arguments.work, arguments.preset, entities=arguments.entities, held_out=1000)
    if Store.open(store).current_model() is None:
        publish_random_model(Store.open(store), 1, ["model.dim=100"])
    question = first_question(store)
    rng = np.random.default_rng(0)
    for way in WAYS:
        once(store, way, question)  # Kernels are loaded and the page cache is filled.
    runs: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for _ in range(arguments.times):
        for way in rng.permutation(WAYS).tolist():
            runs[way].append(once(store, way, question))
    use("mapped")
    command = whole_command(store, question)
    answers = {way: np.array(found)[:, 0] for way, found in runs.items()}
    plain = float(np.median(answers["none"]))
    more = {way: median_interval(answers[way] - answers["none"], rng) for way in WAYS[1:]}
    figures: dict[str, tuple[Any, Any]] = {"opening and answering, nothing verified, processor s": (plain, "")}
    for way, (cost, _, _) in more.items():
        limit = "<= 0.05" if way == "mapped" else ""
        figures[f"  {way}: seconds more"] = (cost, "")
        figures[f"  {way}: share of opening and answering"] = (cost / plain, limit)
    figures["mapped: share of the whole command"] = (more["mapped"][0] / command, "")
    for way in WAYS:
        figures[f"opening all tables for an update, {way}, processor s"] = (
            float(np.median(np.array(runs[way])[:, 1])),
            "",
        )
    result = {"times": arguments.times, "command_seconds": command, "more_with_interval": more, "runs": runs}
    publish("bench_verify", result, arguments, figures)


if __name__ == "__main__":
    main()
