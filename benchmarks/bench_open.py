"""How long a question takes: as a whole command that opens the store, and in a store that is open.

`--store S --versions BASE NIGHT` asks a store of one's own, before and after a night.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import dkge_dist
from benchmarks.movies import store_of
from benchmarks.random_model import publish_random_model
from benchmarks.report import median_seconds, options, publish
from dkge_dist.store.store import Store
from dkge_dist.surfaces.open_store import OpenStore
from dkge_dist.types import Split

Named = tuple[str, str, str]


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--store", type=Path, default=None, help="a store with a model; by default one is made")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--entities", type=int, default=None)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--commands", type=int, default=5, help="how often the whole command is run")
    parser.add_argument("--versions", nargs="*", default=None, help="of the store; by default the current model")
    arguments = parser.parse_args()
    path = arguments.store or store_of(arguments.work, arguments.preset, entities=arguments.entities)
    if not any(line["kind"] == "model" for line in dkge_dist.log(path)["versions"]):
        publish_random_model(Store.open(path), 1, [f"model.dim={arguments.dim}"])
    result: dict[str, Any] = {}
    for version in arguments.versions or [None]:
        result |= _asked(path, version, arguments.times, arguments.commands)
    publish("bench_open", result, arguments, {name: (value, "") for name, value in result.items()})


def _asked(path: Path, version: str | None, times: int, commands: int) -> dict[str, Any]:
    """The figures of one version; the first opening brings kernels and pages into memory and is not counted."""
    of = "" if version is None else f"version {version}: "
    result: dict[str, Any] = {}
    with dkge_dist.open(path, version=version) as store:
        opened = store.model
        triples = _some_triples(store, times + 1)
        result |= {"entities": int(opened.snapshot.entity_rows), "changed": opened.snapshot.diff.train.size}
        result |= _commands(path, version, triples[0], commands)
        result |= _opening(path, version, 5)
        began = time.perf_counter()
        head, relation, _ = triples.pop()
        store.answer(head, relation)
        result["first_answer_seconds"] = time.perf_counter() - began
        result |= _questions(store, triples, times)
    return {of + name: value for name, value in result.items()}


def _opening(path: Path, version: str | None, times: int) -> dict[str, float]:
    """Medians of opening the store with kernels loaded."""
    walls, processor = [], []
    for _ in range(times):
        began, before = time.perf_counter(), time.process_time()
        dkge_dist.open(path, version=version).close()
        walls.append(time.perf_counter() - began)
        processor.append(time.process_time() - before)
    return {"open_seconds": statistics.median(walls), "open_processor_seconds": statistics.median(processor)}


def _some_triples(store: OpenStore, count: int) -> list[Named]:
    opened = store.model
    train, (entities, relations) = opened.snapshot.triples(Split.TRAIN), opened.names
    some = train.take(np.random.default_rng(0).choice(train.count, count, False))
    labels = (entities.labels(some.head), relations.labels(some.relation), entities.labels(some.tail))
    return list(zip(*labels, strict=True))


def _commands(path: Path, version: str | None, triple: Named, times: int) -> dict[str, float]:
    """Whole commands: medians of wall-clock and of processor time, which other work on the machine disturbs less."""
    head, relation, _ = triple
    words = [sys.executable, "-m", "dkge_dist.surfaces.cli", "answer", str(path), head, relation]
    words += [] if version is None else ["--version", version]
    # Python keeps what it compiled, as it does for everybody who does not forbid it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    walls, processor = [], []
    for _ in range(times + 1):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
        walls.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    # The first one may compile kernels.
    wall, used = (statistics.median(some[1:]) for some in (walls, processor))
    return {"command_seconds": wall, "command_processor_seconds": used}


def _questions(store: OpenStore, triples: list[Named], times: int) -> dict[str, float]:
    questions = {
        "answer": lambda h, r, t: store.answer(h, r),
        "answer without evidence": lambda h, r, t: store.answer(h, r, evidence=False),
        "relations": lambda h, r, t: store.answer(h, None, t),
        "score": lambda h, r, t: store.score(h, r, t),
        "score without ranks": lambda h, r, t: store.score(h, r, t, ranks=False),
        "similar": lambda h, r, t: store.similar(h),
    }
    result = {}
    for name, ask in questions.items():
        ask(*triples[0])
        asked = iter(triples * 2)
        result[f"{name}, seconds"] = median_seconds(lambda: ask(*next(asked)), times)  # noqa: B023
    return result


if __name__ == "__main__":
    main()
