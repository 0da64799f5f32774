"""Scale: a graph of the size of IMDB-13, learnt for a stated budget, five nights, and what a night costs by size.

Ingest, training for parts of the budget (validation MRR over time), nights with their fidelity; the same change on
graphs of 32,000 to 3.2 million entities; changes of 100 to a million triples on one graph, with the shards that they
touch; throughput by batch and dimension, and on Ray with 8 shards and 1, 2 and 4 workers, beside the limit that
arithmetic and memory of the same minute allow; memory by part. Every measurement of a command is that of a process of
its own: CPU and peak memory are exact. A cost model is fitted to these nights (`cost_model`) when the page is made.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.bench_train import Bench, Rates, needs
from benchmarks.movies import movies
from benchmarks.processes import measured_command
from benchmarks.published import trained, updated
from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import HELD_OUT, LARGE_DIM, QUICK_ENTITIES, QUICK_HELD_OUT, Study, snapshots_of
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.settings import load_settings
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
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
SHARDED = ((32_000, 50), (32_000, 100), (320_000, 100))
"""(entities, dimension) of nights on Ray with 8 shards, for what goes between them."""
SHARDED_CHANGES = (400, 1200, 4000)


def run(study: Study) -> None:
    """All cells; large graphs last."""
    _throughput(study)
    _by_graph_size(study)
    _by_change_size(study)
    _on_shards(study)
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
    for number, (size, name) in enumerate(zip([0, *sizes], _night_names(sizes), strict=True)):
        if number:
            graph.spec = replace(graph.spec, added=size - size // 2, deleted=size // 2)
            night = graph.advance()
        if name in known:
            continue
        path = folder / f"{number}-{size}.{'changes' if number else 'tsv'}"
        with path.open("w") as file:
            if number:
                _write(file, graph, night.added, "+\t")
                _write(file, graph, night.deleted, "-\t")
            else:
                _write(file, graph, graph.triples, "")
        held_out = QUICK_HELD_OUT if study.quick else HELD_OUT
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


def _night_names(sizes: list[int]) -> list[str]:
    """The snapshots of a store, one after each night; the first has none before it."""
    return [f"{number} of {len(sizes)}, {size} changed" for number, size in enumerate([0, *sizes])]


def _nights(study: Study, data: str, entities: int, sizes: list[int], dim: int, shards: int = 0) -> None:
    """Every night of a store as a command of its own, after a short training; on Ray where there are shards."""
    first, *later = _night_names(sizes)

    # How well it is learnt does not matter to what a night costs.
    words = _words(study, dim, "train.max_epochs=1", f"train.max_seconds={min(60.0, study.budget):g}")

    def learn() -> Result:
        store = evolving_store(study, entities, sizes)
        return measured_command(["train", str(store), "--snapshot", first, *words])

    def night(number: int) -> Result:
        store = evolving_store(study, entities, sizes)
        # A cell may come from another machine, and its model with it does not: then it is learnt again.
        base = trained(store, first, "default", words)["version"]
        since, name = updated(store, base, later[:number]), later[number]
        plan = api.update(store, to=name, since_version=str(since), plan=True, shards=SHARDS)
        limit, where = f"online.max_seconds={study.budget:g}", ["--shards", str(shards)] if shards else []
        done = measured_command(["update", str(store), "--to", name, "--since", str(since), limit, *where])
        facts = {"shards_touched": plan["shards_touched"], "shards_total": SHARDS, "rows": _rows(store), "dim": dim}
        facts["shards"] = shards
        stopped = done["report"]["learn_seconds"] >= study.budget
        return {**done, **facts, "triples": _triples(store, name), "stopped": stopped}

    if study.ledger.run(_cell(data, "training", budget=study.budget), learn) is None:
        return
    for number, name in enumerate(later):
        if study.ledger.run(_cell(data, "night", name, study.budget), lambda number=number: night(number)) is None:  # type: ignore[misc]
            return


def _rows(store: Path) -> int:
    opened = Store.open(store)
    return opened.snapshot(opened.current_snapshot()).entity_rows


def _triples(store: Path, name: str) -> int:
    opened = Store.open(store)
    return opened.snapshot(opened.find_snapshot(name)).triple_count


def _dim(study: Study) -> int:
    return 16 if study.quick else LARGE_DIM


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


def _on_shards(study: Study) -> None:
    """What goes to shards and back. CPU and memory of Ray's processes are not those of the command."""
    for entities, dim in () if study.quick else SHARDED:
        data = f"{entities:,} entities, dimension {dim}, on 8 shards"
        _nights(study, data, entities, list(SHARDED_CHANGES), dim, shards=8)


def _throughput(study: Study) -> None:
    """Epochs of the published settings by batch and dimension, and on Ray, each beside the limit of the same minute."""
    store = evolving_store(study, QUICK_ENTITIES if study.quick else GRAPHS[0], [])
    data = "32,000 entities, throughput"
    for batch in BATCHES[: 1 if study.quick else None]:
        for dim in DIMENSIONS[: 1 if study.quick else None]:

            def work(batch: int = batch, dim: int = dim) -> Result:
                bench = Bench(store, "paper", [f"train.batch_size={batch}", f"model.dim={dim}"])
                bench.epoch()  # loads the compiled kernels
                return {"triples_per_second": max(bench.epoch() for _ in range(3)), **limit_of(bench)}

            study.ledger.run(_cell(data, f"batch {batch}, dimension {dim}"), work)
    if study.quick:
        return
    for shards, workers in ((0, 1), *ON_RAY):

        def on_ray(shards: int = shards, workers: int = workers) -> Result:
            words = ["model.dim=100", "train.batch_size=2000"]
            options = {"preset": "paper", "settings": [*words, "train.max_epochs=3"], "fresh": True}
            done = api.train(store, **options, shards=shards or None, workers=workers)
            return {"triples_per_second": done["triples_per_second"], **limit_of(Bench(store, "paper", words))}

        where = f"Ray, {shards} shards, {workers} workers" if shards else "in-process, whole training"
        study.ledger.run(_cell(data, f"{where}, batch 2000, dimension 100"), on_ray)


def limit_of(bench: Bench) -> Result:
    """The triples a second that this machine's arithmetic and memory allow, measured now."""
    rates = Rates.now(bench.settings)
    needed = needs(bench.batches(4), bench.settings)
    return {"limit": 1 / needed.seconds(rates), "gflops": rates.product / 1e9, "copy_gb": rates.copy / 1e9}


def memory_parts(store: Path, snapshot: str, dim: int) -> Result:
    """Bytes that a training holds, by what they are."""
    opened = Store.open(store)
    manifest = opened.find_snapshot(snapshot)
    names = opened.dictionaries(manifest)
    digests = (names[0].digests, names[1].digests)
    graph = training_graph(opened.snapshot(manifest), digests, load_settings(None, [f"model.dim={dim}"]))
    table = 4 * dim * digests[0].shape[0]
    return {
        "knowledge embeddings": table,
        "contextual element embeddings": table,
        "joint vectors, when they are published": table,
        "their 8-bit codes": table // 4,
        "sums of the optimizer, one a row": 2 * 4 * digests[0].shape[0],
        "train triples": held_bytes(graph.train),
        "topology": held_bytes(graph.topology),
        "relation paths": held_bytes(graph.paths),
        "digests of labels": held_bytes(digests),
    }


def held_bytes(value: object) -> int:
    """Of all arrays in a value."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if is_dataclass(value) and not isinstance(value, type):
        return sum(held_bytes(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, dict):
        return sum(map(held_bytes, value.values()))
    return sum(map(held_bytes, value)) if isinstance(value, tuple | list) else 0


def _large(study: Study) -> None:
    """`imdb-13`: ingest, from scratch for parts of the budget, and nights from the best of these."""
    entities = QUICK_ENTITIES if study.quick else None
    data, nights = "imdb-13 (synthetic)", 1 if study.quick else NIGHTS
    store = study.work / "imdb-13-study-store"

    def ingest() -> Result:
        """Also asked by whoever needs the store: a cell may come from another machine, and its store does not."""
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
    names = ["snapshot-000", *(f"night-{number:03d}" for number in range(1, nights + 1))]
    best: list[str] = []
    for share in BUDGET_SHARES[-1:] if study.quick else BUDGET_SHARES:
        budget = study.budget / share
        best = _words(study, _dim(study), f"train.max_seconds={budget:g}")

        def train(words: list[str] = best) -> Result:
            ingest()
            return measured_command(["train", str(store), "--snapshot", names[0], *words])

        study.ledger.run(_cell(data, "from scratch", names[0], budget), train)

    def memory() -> Result:
        ingest()
        return {"bytes": memory_parts(store, names[0], _dim(study))}

    study.ledger.run(_cell(data, "memory by part"), memory)
    for number, name in enumerate(names[1:], 1):

        def night(number: int = number, name: str = name) -> Result:
            ingest()
            base = trained(store, names[0], "default", best)["version"]
            since = updated(store, base, names[1:number])
            done = measured_command(["update", str(store), "--to", name, "--since", str(since)])
            # Exact ranks of 35,000 triples among 3.2 million entities take ten times as long as the night.
            exact = (
                {"fidelity": api.fidelity(store, version=done["report"]["version"])} if number in (1, nights) else {}
            )
            return {**done, **exact}

        if study.ledger.run(_cell(data, "night", name, study.budget), night) is None:
            return
