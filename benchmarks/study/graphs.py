"""The graphs that are studied, as stores in the work folder; made when they are first asked for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.movies import movies, store_of
from benchmarks.published import DBPEDIA, SOURCE, published_store
from benchmarks.study.cells import Ledger, Result
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api

QUICK_ENTITIES, QUICK_HELD_OUT = 400, 40
HELD_OUT = 3000
LARGE_DIM = 100
"""Of models of graphs of millions of entities; quick runs have smaller ones, and their figures mean nothing."""
BUDGET = 600.0
"""Seconds of a training, on two cores."""


@dataclass(frozen=True)
class DataSet:
    """A store with its snapshots, in order."""

    name: str
    store: Path
    snapshots: tuple[str, ...]

    def before(self, snapshot: str) -> str | None:
        """The snapshot before one."""
        at = self.snapshots.index(snapshot)
        return self.snapshots[at - 1] if at else None


@dataclass(frozen=True)
class Study:
    """How a part is run: where, how long, how often; `quick` on small graphs that nobody learns anything from."""

    work: Path
    ledger: Ledger
    quick: bool = False
    budget: float = BUDGET
    seeds: int = 1
    options: argparse.Namespace | None = None

    @property
    def all_seeds(self) -> range:
        """From 1 on."""
        return range(1, self.seeds + 1)

    def option(self, name: str) -> object:
        """An option of the command line that only some parts have."""
        return getattr(self.options, name, None)

    def threads(self) -> list[str]:
        """Settings of quick runs: small batches only make threads wait."""
        return ["model.dim=16", "train.max_epochs=2", "train.negatives=32", "threads=1"] if self.quick else []


def yago(study: Study, snapshots: int = 3) -> DataSet:
    """YAGO-3SP."""
    return _quick(study, "YAGO-3SP", snapshots) if study.quick else _published(study, SOURCE, snapshots)


def dbpedia(study: Study, snapshots: int = 3) -> DataSet:
    """DBpedia-3SP, which has no test triples."""
    return _quick(study, "DBpedia-3SP", snapshots) if study.quick else _published(study, DBPEDIA, snapshots)


def movie_graph(study: Study, preset: str = "imdb-30", nights: int = 2, entities: int | None = None) -> DataSet:
    """A synthetic movie graph in the shape of a published one, with valid and test triples held out."""
    if study.quick:
        return _quick(study, preset, nights + 1)
    store = store_of(study.work, preset, nights, entities, HELD_OUT)
    size = f", {entities:,} entities" if entities else ""
    return DataSet(f"{preset} (synthetic){size}", store, snapshots_of(store))


def growing_movies(study: Study, entities: int, nights: int, share: float) -> DataSet:
    """A movie graph that holds out a share of every night too, so that newcomers are tested and not the old alone."""
    if study.quick:
        entities = QUICK_ENTITIES
    folder = movies(study.work, "imdb-30", nights, entities=entities)
    store = study.work / f"{folder.name}-growing-store"
    sources = [folder / "snapshot-000.tsv", *sorted(folder.glob("night-*.changes"))]
    known = snapshots_of(store) if store.exists() else ()
    for number, source in enumerate(sources):
        if f"night-{number}" not in known:
            count = round(share * _lines(sources[0], sources[1 : number + 1]))
            api.ingest(store, source, name=f"night-{number}", valid=count, test=count)
    return DataSet(f"imdb-30 (synthetic), {entities:,} entities", store, snapshots_of(store))


def _lines(first: Path, changes: list[Path]) -> int:
    """Triples after some nights: a line each, of a change one that begins with + or -."""
    total = first.read_bytes().count(b"\n")
    for path in changes:
        signs = [line[:1] for line in path.read_text().splitlines()]
        total += signs.count("+") - signs.count("-")
    return total


def snapshots_of(store: Path) -> tuple[str, ...]:
    """The names of the snapshots of a store, the first one first."""
    return tuple(line["name"] for line in api.log(store)["versions"] if line["kind"] == "snapshot")


def versions_of(store: Path) -> Result:
    """The number of versions, to tell a fresh store from one that others wrote to."""
    return {"versions": len(Store.open(store).versions())}


def _published(study: Study, source: Path, snapshots: int) -> DataSet:
    store = published_store(argparse.Namespace(work=study.work, source=source), snapshots)
    return DataSet(source.name, store, tuple(f"snapshot{number}" for number in range(1, snapshots + 1)))


def _quick(study: Study, name: str, snapshots: int) -> DataSet:
    """One small movie graph stands for all, with one night: cells of several parts find each other's models."""
    store = store_of(study.work, "demo", 1, QUICK_ENTITIES, QUICK_HELD_OUT)
    return DataSet(name, store, snapshots_of(store)[:snapshots])
