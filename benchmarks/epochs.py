"""Epochs of the real trainer in this process, without validation, on tables here or in shard actors.

As a script it is one side of a comparison (`compare.py`): it imports the package that PYTHONPATH names, which may be an
older one, and runs an epoch for every line on stdin. It imports no other module of this folder, because an older
checkout has others.
"""

from __future__ import annotations

# First of all: it says how idle threads wait, which torch reads when it is loaded.
import dkge_dist  # isort: split

import importlib
import itertools
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from dkge_dist.settings import load_settings
from dkge_dist.store.store import Store
from dkge_dist.types import Triples

Make = Callable[[], Any]
"""Makes tables at their start values."""


class Trained(NamedTuple):
    """Triples a second of the last epoch, by the trainer's own count; and the seconds of every batch."""

    triples_per_second: float
    batch_seconds: list[float]


class Batches:
    """Hears of every batch, and so knows how long each took."""

    def __init__(self) -> None:
        """No batch yet."""
        self._ends: list[float] = []

    def progress(self, share: float, message: str) -> None:
        """A batch is over."""
        self._ends.append(time.perf_counter())

    def trained(self, progress: Any) -> Trained:
        """Of a training that is over."""
        seconds = [after - before for before, after in itertools.pairwise(self._ends)]
        return Trained(float(progress.history[-1]["triples_per_second"]), seconds)


class Epochs(Protocol):
    """Trainings on the current snapshot of a store, as many epochs each as the settings say."""

    settings: Any
    triples: int

    def tables(self, shards: int, block_rows: int) -> Any:
        """A context that gives a `Make`; with 0 shards the tables are in this process."""

    def run(self, tables: Any) -> Trained:
        """One training."""


class CurrentEpochs:
    """With the package as it is."""

    def __init__(self, store: Path, preset: str, words: list[str]) -> None:
        """Of a store, with settings that `words` change."""
        from dkge_dist.graph.training_graph import training_graph

        opened = Store.open(store)
        manifest = opened.current_snapshot()
        assert manifest is not None, "the store holds a snapshot"
        names = opened.dictionaries(manifest)
        self.settings = load_settings(None, words, preset)
        graph = training_graph(opened.snapshot(manifest), (names[0].digests, names[1].digests), self.settings)
        self.graph = replace(graph, valid=Triples.empty())
        self.triples = graph.train.count

    @contextmanager
    def tables(self, shards: int, block_rows: int) -> Iterator[Make]:
        """Fresh tables; the shard actors stay, so that they start and load their kernels once."""
        from dkge_dist.runtime import LocalCommunicator, Monitor
        from dkge_dist.tables.initializer import RowInitializer
        from dkge_dist.tables.table import LocalTable, Tables

        settings, graph = self.settings, self.graph
        sizes = (graph.entity_rows, graph.relation_rows)
        starts = [
            RowInitializer((settings.seed, kind), rows, settings.model.dim, settings.train.init_scale)
            for kind, rows in enumerate(sizes)
        ]
        if not shards:
            yield lambda: Tables(*(LocalTable.initialized(start) for start in starts))
            return
        from dkge_dist.cluster.session import ClusterConfig, shard_actors
        from dkge_dist.cluster.table import RayTable
        from dkge_dist.tables.plan import ShardPlan
        from dkge_dist.types import Field

        plan = ShardPlan(sizes[0], block_rows, shards)
        with shard_actors(ClusterConfig(shards), plan, 4 * settings.model.dim * len(Field)) as actors:

            def make() -> Tables:
                attempt, communicator = secrets.token_hex(8), LocalCommunicator(Monitor())
                entities = RayTable(plan, actors, attempt, settings.model.dim, communicator)
                entities.open(starts[0])
                entities.pull({Field.KNOWLEDGE: graph.entities[:1]})
                return Tables(entities, LocalTable.initialized(starts[1]))

            yield make

    def run(self, tables: Any) -> Trained:
        """One training."""
        from dkge_dist.learn.machine import use_machine
        from dkge_dist.learn.plan import Plan
        from dkge_dist.learn.task import LearnTask, learning_of, model_of
        from dkge_dist.runtime import LocalCommunicator, Monitor

        device = use_machine(self.settings.threads, self.settings.device)
        batches, monitor = Batches(), Monitor()
        monitor.progress = batches.progress  # type: ignore[method-assign]
        with tempfile.TemporaryDirectory() as folder:
            plan = Plan.from_scratch(self.graph)
            task = LearnTask(plan, self.graph, self.settings, self.graph.valid, Path(folder))
            return batches.trained(
                learning_of(LocalCommunicator(monitor), tables, task, model_of(task, device), device).run()
            )


class EarlierEpochs:
    """With the package as it was before `jobs`: training was put together in `api.training`."""

    def __init__(self, store: Path, preset: str, words: list[str]) -> None:
        """Of a store, with settings that `words` change."""
        opened = Store.open(store)
        manifest = opened.current_snapshot()
        self.api: Any = importlib.import_module("dkge_dist.surfaces.api.training")
        self.settings = load_settings(None, words, preset)
        self.ground = self.api.Ground.of(opened.snapshot(manifest), opened.dictionaries(manifest), self.settings)
        self.triples = self.ground.train.count

    @contextmanager
    def tables(self, shards: int, block_rows: int) -> Iterator[Make]:
        """Fresh tables."""
        api: Any = self.api
        if not shards:
            yield lambda: api.local_tables(self.ground, self.settings)
            return
        from dkge_dist.cluster import session, table

        dim = self.settings.model.dim
        plan = api.ShardPlan(self.ground.digests[0].shape[0], block_rows, shards)
        earlier: Any = session
        with earlier.shard_actors(earlier.Place(shards), plan, 4 * dim * len(api.Field)) as actors:

            def make() -> Any:
                kind: Any = table.RayTable
                entities = kind(plan, actors, secrets.token_hex(8), dim)
                entities.open(api.start_of(self.ground, self.settings, 0))
                entities.pull({api.Field.KNOWLEDGE: self.ground.alive[0][:1]})
                return entities, api.local_tables(self.ground, self.settings)[1]

            yield make

    def run(self, tables: Any) -> Trained:
        """One training."""
        api, nothing = self.api, SimpleNamespace(rows=self.ground.alive[0][:0], measure=lambda *vectors: {})
        made = api.assemble(self.ground, self.settings, api.use_machine(self.settings), tables)
        batches, train = Batches(), self.settings.train
        with tempfile.TemporaryDirectory() as folder:
            checkpoints = api.Checkpoints(Path(folder) / "training")
            listener = api.Listener(batches.progress)
            trainer = api.Trainer(made.maker, made.learner, nothing, checkpoints, train, self.settings.seed, listener)
            return batches.trained(trainer.run())


def open_epochs(store: Path, preset: str, words: list[str]) -> Epochs:
    """Of the package that is installed, whichever it is."""
    # By its folder: an editable installation would find what this package does not have in another one.
    is_current = (Path(dkge_dist.__file__).parent / "jobs").is_dir()
    return CurrentEpochs(store, preset, words) if is_current else EarlierEpochs(store, preset, words)


@contextmanager
def connected(shards: int) -> Iterator[None]:
    """A Ray of our own, if there are shards."""
    if not shards:
        yield
        return
    from dkge_dist.cluster import session

    names: Any = session
    joined = names.ray_session(names.ClusterConfig(1), 1) if hasattr(names, "ray_session") else None
    with joined or names.connected(names.Place(1), 1):
        yield


def _cpu_seconds(processes: list[int]) -> float:
    """Of some processes so far, user and system."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def _shard_processes(tables: Any) -> list[int]:
    entities = tables[0]
    return [shard["pid"] for shard in entities.stats()] if hasattr(entities, "actors") else []


def main() -> None:
    """Side of a comparison: STORE PRESET SHARDS BLOCK_ROWS key=value..."""
    store, preset, shards, block_rows, *words = sys.argv[1:]
    out = sys.stdout  # Under Ray everything else goes to stderr.
    epochs = open_epochs(Path(store), preset, words)
    with connected(int(shards)), epochs.tables(int(shards), int(block_rows)) as make:
        for _ in sys.stdin:
            tables = make()
            processes = [os.getpid(), *_shard_processes(tables)]
            before = _cpu_seconds(processes)
            trained = epochs.run(tables)
            cpu = (_cpu_seconds(processes) - before) / (epochs.triples * epochs.settings.train.max_epochs)
            print(json.dumps({**trained._asdict(), "cpu_per_million": 1e6 * cpu}), file=out, flush=True)


if __name__ == "__main__":
    main()
