"""What a night, an answer and a clearing cost in a store with few nights behind it and with many.

The history is real: nights of a small graph, ingested and published by the functions that `dkge nightly` uses, with
deltas of random vectors instead of learnt ones, and without waiting for the disk: ten thousand nights are to be had in
minutes. What is measured is the real thing. Few and many take turns, over all nights from one folding to the next, at
the same distance from the last one; the ratios are medians of those within a turn.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.report import options, publish
from dkge_dist.ask.model import open_model
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.kernels.jit import set_threads
from dkge_dist.records import NightRecord
from dkge_dist.store.ingest import FOLD_AFTER_NIGHTS, IngestOptions, ingest
from dkge_dist.store.models import ModelMetadata, publish_model, save_compact, save_update, wants_compaction
from dkge_dist.store.store import Store
from dkge_dist.store.tables import save_delta
from dkge_dist.surfaces import api
from dkge_dist.types import ROW, Field

ENTITIES, RELATIONS, TRIPLES, CHANGED = 300, 5, 3000, 3
LEARN = ["model.dim=16", "train.max_epochs=2", "evidence=false", "online.max_epochs=1", "online.retrain_when=never"]
KEPT, BETWEEN, CLEARINGS = 30, 5, 9
"""Versions that a clearing keeps, nights from one clearing to the next, and clearings that are measured."""

LIMITS = dict.fromkeys(("finding a name", "finding a name, processor"), "a run more with every fourfold")
"""Of what need not be flat."""

Triple = tuple[str, str, str]


class Graph:
    """A graph of constant size: every night a few triples leave it, and a few others join."""

    def __init__(self, folder: Path) -> None:
        """A full one; its files go to a folder."""
        self.folder = folder
        self.chance = random.Random(1)
        # Every entity has two triples that stay.
        self.ring = [(f"e{i}", f"r{i % RELATIONS}", f"e{(i + 1) % ENTITIES}") for i in range(ENTITIES)]
        self.triples: list[Triple] = []
        self.come(TRIPLES - ENTITIES)
        self.nights = 0

    def come(self, wanted: int) -> list[Triple]:
        """Let triples join."""
        known, some = {*self.ring, *self.triples}, []
        while len(some) < wanted:
            head, relation, tail = (self.chance.randrange(limit) for limit in (ENTITIES, RELATIONS, ENTITIES))
            if (one := (f"e{head}", f"r{relation}", f"e{tail}")) not in known:
                known.add(one)
                some.append(one)
        self.triples += some
        return some

    def base(self) -> Path:
        """As it is, as a file."""
        path = self.folder / "base.tsv"
        path.write_text("".join("\t".join(one) + "\n" for one in [*self.ring, *self.triples]), encoding="utf-8")
        return path

    def night(self) -> Path:
        """The next night, as a file of changes."""
        self.nights += 1
        gone, self.triples = self.triples[:CHANGED], self.triples[CHANGED:]
        lines = ["-\t" + "\t".join(one) for one in gone] + ["+\t" + "\t".join(one) for one in self.come(CHANGED)]
        path = self.folder / "night.changes"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    def copy(self, folder: Path) -> Graph:
        """One that goes on from here by itself."""
        other = Graph(folder)
        other.chance.setstate(self.chance.getstate())
        other.triples, other.nights = list(self.triples), self.nights
        return other


@contextmanager
def without_waiting() -> Iterator[None]:
    """Nobody minds if a history that can be built again is lost in a power failure."""
    real, os.fsync = os.fsync, lambda descriptor: None
    try:
        yield
    finally:
        os.fsync = real


def write_night(store: Store, graph: Graph, rng: np.random.Generator) -> None:
    """Ingest a night and publish a model of it."""
    ingested = ingest(store, open_source(graph.night(), "auto"), IngestOptions(name=f"night{graph.nights}"))
    parent = store.find_model()
    diff, snapshot = ingested.diff, ingested.manifest.version
    rows = np.unique(np.concatenate([diff.added.head, diff.added.tail, diff.deleted.head, diff.deleted.tail]))
    tables = parent.model.entities
    with store.storage.staging() as staging:
        written = {
            name: [save_delta(staging, rows.astype(ROW), rng.normal(size=(rows.shape[0], table.dim)).astype("f4"))]
            for name, table in tables.items()
            if name is not Field.CONTEXT
        }
        counts = (tables[Field.JOINT].rows, parent.model.relations[Field.JOINT].rows)
        about = ModelMetadata(parent.model.settings, NightRecord(), [], baseline=parent.model.baseline)
        entry = save_update(staging, parent, snapshot, counts, (written, {}), about)
        published = publish_model(store, entry, 0.1, parent.version)
        if wants_compaction(published.model):
            publish_model(store, save_compact(store, staging, published), 0.1, published.version)


def histories(work: Path, few: int, many: int) -> dict[int, tuple[Path, Graph]]:
    """Stores with so many nights."""
    shutil.rmtree(work, ignore_errors=True)
    (work / str(many)).mkdir(parents=True)
    graph, path, rng = Graph(work / str(many)), work / str(many) / "store", np.random.default_rng(1)
    api.ingest(path, graph.base(), valid=20)
    api.train(path, settings=LEARN)
    found = {}
    began = time.monotonic()
    store = Store.open(path)
    with without_waiting():
        for number in range(1, many + 1):
            write_night(store, graph, rng)
            if number == few:
                shutil.copytree(work / str(many), work / str(few))
                found[few] = (work / str(few) / "store", graph.copy(work / str(few)))
            if number % 500 == 0:
                store = Store.open(path)  # It remembers every version it has seen.
                print(f"{number} nights in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    found[many] = (path, graph)
    return found


def timed(name: str, work: Callable[[], Any]) -> dict[str, float]:
    """Seconds, and those of the processor: the disk, and whatever else the machine does, take the rest."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return {name: time.perf_counter() - began, f"{name}, processor": time.process_time() - used}


def measured_night(store: Path, graph: Graph) -> dict[str, float]:
    """Open, ask, find a snapshot by its name, and learn a night."""
    changes, report = graph.night(), {}
    name = f"night{graph.nights}"
    return {
        **timed("opening", lambda: open_model(Store.open(store))),
        **timed("answer", lambda: api.answer(store, "e1", "r1")),
        **timed("finding a name", lambda: Store.open(store).find_snapshot("night1")),
        **timed("nightly", lambda: report.update(api.nightly(store, changes, name=name, valid=20))),
        "ingest": report["ingest"]["seconds"],
    }


def measured_clearing(store: Path, graph: Graph) -> dict[str, float]:
    """A clearing some nights after another one; before it, the command that would tell what it does."""
    for _ in range(BETWEEN):
        changes = graph.night()
        api.nightly(store, changes, name=f"night{graph.nights}")
    return {
        **timed("gc --dry-run", lambda: api.gc(store, keep=KEPT, dry_run=True, grace_hours=0)),
        **timed("gc", lambda: api.gc(store, keep=KEPT, grace_hours=0)),
    }


def in_turns(
    stores: dict[int, tuple[Path, Graph]], work: Callable[[Path, Graph], dict[str, float]], turns: int
) -> dict[int, dict[str, list[float]]]:
    """Seconds by store and by what was done, turn by turn."""
    found: dict[int, dict[str, list[float]]] = {nights: {} for nights in stores}
    for turn in range(turns):
        for nights in sorted(stores, reverse=bool(turn % 2)):
            for name, seconds in work(*stores[nights]).items():
                found[nights].setdefault(name, []).append(seconds)
    return found


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--many", type=int, default=10_000, help="nights; taken to the same distance from a folding")
    parser.add_argument("--turns", type=int, default=FOLD_AFTER_NIGHTS, help="nights that are measured")
    arguments = parser.parse_args()
    few = arguments.few
    many = few + (arguments.many - few) // FOLD_AFTER_NIGHTS * FOLD_AFTER_NIGHTS
    set_threads(1)
    stores = histories(arguments.work / "history", few, many)
    nights = in_turns(stores, measured_night, arguments.turns)
    first = {number: api.gc(store, keep=KEPT, grace_hours=0) for number, (store, _) in stores.items()}
    clearings = in_turns(stores, measured_clearing, CLEARINGS)
    result: dict[str, Any] = {"nights": {"few": few, "many": many}, "cleared_first": {}}
    figures: dict[str, tuple[Any, Any]] = {}
    for found in (nights, clearings):
        for name in found[few]:
            pairs = list(zip(found[few][name], found[many][name], strict=True))
            result[name] = {str(number): median(found[number][name]) for number in (few, many)}
            ratio = median(after / before for before, after in pairs)
            figures[f"{name}: {many:,} nights / {few}"] = (ratio, LIMITS.get(name, "<= 1.2"))
            figures[f"  {name} after {many:,} nights, s"] = (result[name][str(many)], "")
    result["cleared_first"] = {str(number): len(report["cleared_versions"]) for number, report in first.items()}
    publish("bench_history", result, arguments, figures)


if __name__ == "__main__":
    main()
