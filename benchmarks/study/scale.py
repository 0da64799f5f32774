"""Scale: a graph of the size of IMDB-13, learnt for a stated budget, five nights, and what a night costs by size.

Ingest, training for parts of the budget (validation MRR over time), nights with their fidelity; the same change on
graphs of 32,000 to 3.2 million entities; changes of 100 to a million triples on one graph, with the shards that they
touch; throughput by batch and dimension beside a matrix product of the same run; in-process against Ray with 8 shards
and 1, 2 and 4 workers. Every measurement of a command is that of a process of its own: CPU and peak memory are exact. A
cost model is fitted to these nights (`cost_model`) when the page is made.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.movies import movies
from benchmarks.processes import measured_command
from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import QUICK_ENTITIES, Study, snapshots_of
from dkge_dist import api
from dkge_dist.store.store import Store
from dkge_dist.synthetic import PRESETS, RELATIONS
from dkge_dist.synthetic.evolving import EvolvingGraph
from dkge_dist.types import Triples

PART = "scale"
NIGHTS = 5
BUDGET_SHARES = (8, 4, 2, 1)
GRAPHS = (32_000, 320_000, 3_200_000)
CHANGE = 4000
"""Triples of the change that graphs of all sizes get, half of them added."""
CHANGES = (100, 1000, 10_000, 100_000, 1_000_000)
SHARDS = 64
"""That a change may touch, for the count; none are started."""
BATCHES, DIMENSIONS = (500, 2000, 8000), (50, 100, 200)
ON_RAY = ((8, 1), (8, 2), (8, 4))
"""(shards, workers)."""


def run(study: Study) -> None:
    """All cells; large graphs last."""
    _throughput(study)
    _by_graph_size(study)
    _by_change_size(study)
    _large(study)


def _words(study: Study, dim: int, *more: str) -> list[str]:
    """Settings of a training, and in quick runs next to nothing of it."""
    quick = ["train.negatives=32", "threads=1"] if study.quick else []
    return [f"model.dim={dim}", *quick, *more]


def _cell(data: str, setting: str, snapshot: str = "1", budget: float = 0.0) -> Cell:
    return Cell(PART, "ours", data, snapshot, 1, setting, budget)


def evolving_store(study: Study, entities: int, sizes: list[int]) -> Path:
    """A store with one night of each size (half added, half deleted), each after the one before."""
    base = PRESETS["imdb-13"].resized(entities=entities, nights=0)
    store = study.work / f"scale-{entities}-{'-'.join(map(str, sizes))}-store"
    known = snapshots_of(store) if store.exists() else ()
    if len(known) == len(sizes) + 1:
        return store
    graph = EvolvingGraph(base)
    folder = study.work / f"scale-{entities}"
    folder.mkdir(exist_ok=True)
    for number, size in enumerate([0, *sizes]):
        if number:
            graph.spec = replace(graph.spec, added=size - size // 2, deleted=size // 2)
            night = graph.advance()
        name = f"{number} of {len(sizes)}, {size} changed"
        if name in known:
            continue
        path = folder / f"{number}-{size}.{'changes' if number else 'tsv'}"
        with path.open("w") as file:
            if number:
                _write(file, graph, night.added, "+\t")
                _write(file, graph, night.deleted, "-\t")
            else:
                _write(file, graph, graph.triples, "")
        held_out = 40 if study.quick else 3000
        options = {} if number else {"valid": held_out, "test": held_out}
        api.ingest(store, path, name=name, force=True, **options)
        path.unlink()
    return store


def _write(file: object, graph: EvolvingGraph, triples: Triples, sign: str) -> None:
    """Lines of triples by labels; of a change with a sign before each."""
    rows, place = np.unique(np.concatenate([triples.head, triples.tail]), return_inverse=True)
    labels = [bytes(text[text != 0]).decode() for text in graph.label_bytes(rows)]
    heads, tails = place[: triples.count].tolist(), place[triples.count :].tolist()
    lines = (
        f"{sign}{labels[head]}\t{RELATIONS[relation]}\t{labels[tail]}\n"
        for head, relation, tail in zip(heads, triples.relation.tolist(), tails, strict=True)
    )
    file.writelines(lines)  # type: ignore[attr-defined]


def _nights(study: Study, data: str, entities: int, sizes: list[int], dim: int) -> None:
    """Every night of a store as a command of its own, after a short training."""
    store = study.work / f"scale-{entities}-{'-'.join(map(str, sizes))}-store"

    def start() -> Result:
        made = evolving_store(study, entities, sizes)
        first = snapshots_of(made)[0]
        # How well it is learnt does not matter to what a night costs.
        limit = f"train.max_seconds={min(60.0, study.budget):g}"
        words = ["train", str(made), "--snapshot", first, *_words(study, dim, "train.max_epochs=1", limit)]
        return measured_command(words)

    base = study.ledger.run(_cell(data, "training", budget=study.budget), start)
    if base is None:
        return
    since = base["report"]["version"]
    for name in snapshots_of(store)[1:]:

        def night(name: str = name, since: int = since) -> Result:
            plan = api.update(store, to=name, since_version=since, plan=True, shards=SHARDS)
            words = ["update", str(store), "--to", name, "--since", str(since)]
            done = measured_command(words)
            shards = {"shards_touched": plan["shards_touched"], "shards_total": SHARDS}
            return {**done, **shards, "rows": _rows(store), "triples": _triples(store, name), "dim": dim}

        found = study.ledger.run(_cell(data, "night", name, study.budget), night)
        if found is None:
            return
        since = found["report"]["version"]


def _rows(store: Path) -> int:
    opened = Store.open(store)
    return opened.snapshot(opened.current_snapshot()).entity_rows


def _triples(store: Path, name: str) -> int:
    opened = Store.open(store)
    return opened.snapshot(opened.find_snapshot(name)).triple_count


def _dim(study: Study) -> int:
    return 16 if study.quick else 100


def _by_graph_size(study: Study) -> None:
    """The same change on graphs of several sizes; two nights each, the second finds everything warm on disk."""
    for entities in (QUICK_ENTITIES,) if study.quick else GRAPHS:
        change = 40 if study.quick else CHANGE
        for dim in (8, 16) if study.quick else (50, 100):
            # Vectors and triples grow together with a graph: only another dimension tells their costs apart.
            _nights(study, f"{entities:,} entities, dimension {dim}", entities, [change, change], dim)


def _by_change_size(study: Study) -> None:
    entities, sizes = (2 * QUICK_ENTITIES, [20, 60, 200]) if study.quick else (GRAPHS[-1], list(CHANGES))
    _nights(study, f"{entities:,} entities, changes of several sizes", entities, sizes, _dim(study))


def _throughput(study: Study) -> None:
    """One epoch by batch and dimension beside a matrix product of the same minute; then on Ray."""
    store = evolving_store(study, QUICK_ENTITIES if study.quick else GRAPHS[0], [])
    data = "32,000 entities, throughput"
    for batch in BATCHES[: 1 if study.quick else None]:
        for dim in DIMENSIONS[: 1 if study.quick else None]:

            def work(batch: int = batch, dim: int = dim) -> Result:
                words = [f"train.batch_size={batch}", f"model.dim={dim}", "train.max_epochs=1", "threads=0"]
                done = api.train(store, settings=words, fresh=True)
                return {
                    "triples_per_second": done["triples_per_second"],
                    "gflops": gemm_rate(),
                    "seconds": done["seconds"],
                }

            study.ledger.run(_cell(data, f"batch {batch}, dimension {dim}"), work)
    if study.quick:
        return
    for shards, workers in ((0, 1), *ON_RAY):

        def on_ray(shards: int = shards, workers: int = workers) -> Result:
            words = ["model.dim=100", "train.batch_size=2000", "train.max_epochs=2"]
            done = api.train(store, settings=words, fresh=True, shards=shards or None, workers=workers)
            return {"triples_per_second": done["triples_per_second"], "gflops": gemm_rate(), "seconds": done["seconds"]}

        where = f"Ray, {shards} shards, {workers} workers" if shards else "in-process"
        study.ledger.run(_cell(data, where), on_ray)


def gemm_rate(size: int = 1500) -> float:
    """GFLOP/s of a large matrix product, the best of five."""
    one, best = torch.rand(size, size), 0.0
    for _ in range(5):
        began = time.perf_counter()
        one @ one
        best = max(best, 2 * size**3 / (time.perf_counter() - began) / 1e9)
    return best


def _large(study: Study) -> None:
    """`imdb-13`: ingest, from scratch for parts of the budget, and nights from the best of these."""
    entities = QUICK_ENTITIES if study.quick else None
    data, nights = "imdb-13 (synthetic)", 1 if study.quick else NIGHTS
    store = study.work / "imdb-13-study-store"

    def ingest() -> Result:
        folder = movies(study.work, "imdb-13", nights, entities=entities)
        sources = [folder / "snapshot-000.tsv", *sorted(folder.glob("night-*.changes"))]
        known, took = snapshots_of(store) if store.exists() else (), {}
        for number, source in enumerate(sources):
            if source.stem not in known:
                held_out = ["--valid", "40" if study.quick else "3000", "--test", "40" if study.quick else "3000"]
                words = ["ingest", str(store), str(source), "--name", source.stem]
                took[source.stem] = measured_command([*words, *([] if number else held_out)])
        return {"commands": took}

    if study.ledger.run(_cell(data, "ingest"), ingest) is None:
        return
    first, *later = snapshots_of(store)
    since = None
    for share in BUDGET_SHARES[-1:] if study.quick else BUDGET_SHARES:
        budget = study.budget / share

        def train(budget: float = budget) -> Result:
            limit = f"train.max_seconds={budget:g}"
            return measured_command(["train", str(store), "--snapshot", first, *_words(study, _dim(study), limit)])

        found = study.ledger.run(_cell(data, "from scratch", first, budget), train)
        since = found["report"]["version"] if found is not None else since
    for name in later:
        if since is None:
            return

        def night(name: str = name, since: int = since) -> Result:
            done = measured_command(["update", str(store), "--to", name, "--since", str(since)])
            return {**done, "fidelity": api.fidelity(store, version=done["report"]["version"])}

        found = study.ledger.run(_cell(data, "night", name, study.budget), night)
        since = found["report"]["version"] if found is not None else None
