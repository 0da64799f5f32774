"""Several commands at once on a disk that fails, killed at any call, under random schedules; an oracle watches.

Every reader sees one whole version or is told that it was cleared away; what was published stays, and only once;
nothing that was trained is held out later; and whatever happened, the next command works.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.graph.diff import EMPTY_CONTENT, Change, Diff, content_after
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.records import NightRecord, TrainingRecord
from dkge_dist.store.check import check
from dkge_dist.store.history import clear, rollback
from dkge_dist.store.ingest import IngestOptions, ingest
from dkge_dist.store.manifest import Manifest, ModelManifest, SnapshotManifest, tables_of
from dkge_dist.store.models import ModelMetadata, publish_model, save_compact, save_model, save_update
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table, save_delta, save_table
from dkge_dist.types import ROW, DkgeError, Field, Split, Triples
from tests.graphs import Labelled, labelled, write_changes, write_tsv
from tests.store.simulation import Chances, Killed, Simulation
from tests.store.small_models import saved_tables

DIM, BLOCK, HOUR = 2, 8, 3600.0
POOL = [(f"e{h}", f"r{(h + t) % 3}", f"e{t}") for h in range(14) for t in range(14) if h != t]


def sums_of(store: Store, entry: Any) -> list[str]:
    """The bytes of all tables of a model."""
    return [hashlib.sha256(load_table(store.storage, table).tobytes()).hexdigest() for table in tables_of(entry)]


class Oracle:
    """What was told to whom, and whether it was true."""

    def __init__(self) -> None:
        self.published: dict[int, bytes] = {}
        self.ended: Counter[str] = Counter()
        self.trained: dict[int, set[Labelled]] = {}
        self.held_out: dict[int, set[Labelled]] = {}

    def was_published(self, manifest: Manifest) -> None:
        """A command says that it published this."""
        assert manifest.version not in self.published, f"version {manifest.version} was published twice"
        self.published[manifest.version] = manifest.to_json()

    def read(self, store: Store, number: int | None = None) -> None:
        """Read a version: it is whole."""
        # Others publish while this one looks for the newest: it has to find what was there before.
        newest = max(self.published, default=0)
        head = store.head()
        if head is None:
            assert not newest, "everything is gone"
            return
        assert head.version >= newest, "the newest version is gone"
        manifest = store.manifest(number or head.version)
        self._read_snapshot(store, manifest)
        if manifest.current.model is not None:
            self._read_model(store, store.model_manifest(manifest.current.model))

    def _read_snapshot(self, store: Store, manifest: Manifest) -> None:
        found = store.snapshot_manifest(manifest.current.snapshot)
        snapshot, names = store.snapshot(found), store.dictionaries(found)
        whole = Diff.of([Change(snapshot.triples(split), Triples.empty()) for split in Split])
        assert content_after(EMPTY_CONTENT, whole, *names) == found.snapshot.content, "a mixed snapshot"
        splits = [labelled(snapshot.triples(split), names) for split in Split]
        self.trained[found.version] = splits[Split.TRAIN]
        self.held_out[found.version] = splits[Split.VALID] | splits[Split.TEST]

    def _read_model(self, store: Store, model: ModelManifest) -> None:
        assert sums_of(store, model.model) == model.model.settings["sums"], "a mixed model"

    def read_all(self, store: Store) -> None:
        """Nobody is at work: every version that was published is there, and all of it that is not cleared away."""
        head = store.head()
        numbers = store.versions()
        assert numbers == list(range(1, (head.version if head else 0) + 1))
        for number, data in self.published.items():
            assert store.storage.read(f"versions/{number:08d}.json") == data, f"version {number} is another one"
        problems = check(store).problems
        assert problems == [], problems
        manifests = [store.manifest(number) for number in numbers]
        for manifest in manifests:
            if isinstance(manifest, SnapshotManifest) and not store.is_cleared(manifest.version):
                self._read_snapshot(store, manifest)
        self._check_held_out(manifests)
        models = [manifest.model for manifest in manifests if isinstance(manifest, ModelManifest)]
        work = [model.settings["work"] for model in models if model.record.origin != "compact"]
        assert len(work) == len(set(work)), "a model was published twice"

    def _check_held_out(self, manifests: list[Manifest]) -> None:
        ever: set[Labelled] = set()
        for manifest in manifests:
            if not isinstance(manifest, SnapshotManifest) or manifest.version not in self.held_out:
                continue
            parent = manifest.snapshot.parent
            new = self.held_out[manifest.version] - self.held_out.get(parent or 0, set())
            if parent is None or parent in self.held_out:
                assert not new & ever, f"version {manifest.version} holds out what was trained"
            ever |= self.trained[manifest.version]


class Commands:
    """What processes do. Each command opens the store anew."""

    def __init__(self, simulation: Simulation, oracle: Oracle, folder: Path) -> None:
        self.simulation, self.oracle, self.folder = simulation, oracle, folder
        self.random = simulation.random
        self.count = self.clearing = 0
        self.choice: dict[str, Callable[[Store], None]] = {
            "ingest": self.ingest,
            "model": self.model,
            "update": self.update,
            "compact": self.compact,
            "rollback": self.rollback,
            "gc": self.gc,
            "read": self.read,
        }

    def program(self, commands: int) -> Callable[[], None]:
        """A user who runs some commands, one after the other; a command that fails leaves the next one as it is."""

        def run() -> None:
            for name in self.random.choices(list(self.choice), [4, 1, 3, 1, 1, 3, 3], k=commands):
                self.run(name)

        return run

    def run(self, name: str) -> None:
        outcome = "done"
        try:
            self.choice[name](Store.open_or_new(self.simulation.root))
        except Killed:
            self.oracle.ended[f"{name}: killed"] += 1
            raise
        except (DkgeError, OSError) as error:
            outcome = type(error).__name__
        self.oracle.ended[f"{name}: {outcome}"] += 1

    def next_work(self) -> int:
        """A number for what is done next; others may begin with something before it is done."""
        self.count += 1
        return self.count

    def fill(self) -> np.random.Generator:
        """Few different ones: most parts were there before, and may just be cleaned away."""
        return np.random.default_rng(self.random.randrange(3))

    def ingest(self, store: Store) -> None:
        work = self.next_work()
        come, gone = (self.random.sample(POOL, count) for count in (20, 8))
        path = self.folder / str(work)
        if store.head() is None:
            source = write_tsv(path.with_suffix(".tsv"), come)
        else:
            source = write_changes(path.with_suffix(".changes"), come, gone)
        sizes = HeldOut(self.random.choice([None, 6]), self.random.choice([None, 4]))
        done = ingest(store, open_source(source, "auto"), IngestOptions(held_out=sizes, force=True))
        if not done.unchanged:
            self.oracle.was_published(done.manifest)

    def model(self, store: Store) -> None:
        head = store.head()
        if head is None:
            return
        work = self.next_work()
        rows = [len(names) for names in store.dictionaries(head)]
        fill = self.fill()
        kinds = [{f: fill.normal(size=(count, DIM)).astype("f4") for f in Field} for count in rows]
        with store.storage.staging() as staging:
            entities = {f: save_table(staging, values, BLOCK) for f, values in kinds[0].items()}
            entry = save_model(
                staging,
                head.current.snapshot,
                (entities, saved_tables(staging, kinds[1])),
                {"w": fill.normal(size=DIM).astype("f4")},
                ModelMetadata({"work": work}, TrainingRecord(), []),
            )
            entry = entry.model_copy(update={"settings": {"work": work, "sums": sums_of(store, entry)}})
            self.oracle.was_published(publish_model(store, entry, 0.1))

    def update(self, store: Store) -> None:
        head = store.head()
        if head is None or head.current.model is None:
            return
        work = self.next_work()
        parent = store.model_manifest(head.current.model)
        rows = tuple(max(len(names), 1) for names in store.dictionaries(head))
        fill = self.fill()
        with store.storage.staging() as staging:
            changed = np.sort(fill.choice(rows[0], min(3, rows[0]), replace=False)).astype(ROW)
            values = fill.normal(size=(len(changed), DIM)).astype("f4")
            written = {Field.JOINT: [save_delta(staging, changed, values)]}
            about = ModelMetadata({"work": work}, NightRecord(), [])
            entry = save_update(staging, parent, head.current.snapshot, (rows[0], rows[1]), (written, {}), about)
            entry = entry.model_copy(update={"settings": {"work": work, "sums": sums_of(store, entry)}})
            self.oracle.was_published(publish_model(store, entry, 0.1, parent.version))

    def compact(self, store: Store) -> None:
        head = store.head()
        if head is None or head.current.model is None:
            return
        model = store.model_manifest(head.current.model)
        with store.storage.staging() as staging:
            compact = save_compact(store, staging, model)
            self.oracle.was_published(publish_model(store, compact, 0.1, model.version))

    def rollback(self, store: Store) -> None:
        head = store.head()
        if head is not None:
            self.oracle.was_published(rollback(store, self.random.randint(max(1, head.version - 5), head.version)))

    def gc(self, store: Store) -> None:
        if store.head() is None:
            return
        # Not while another one goes by the time at which it began.
        if not self.clearing and self.random.random() < 0.5:
            self.simulation.pass_time(2 * HOUR)
        keep, grace = self.random.choice([1, 2, 4]), self.random.choice([0.0, HOUR])
        self.clearing += 1
        try:
            done = clear(store, keep, grace, dry_run=self.random.random() < 0.1)
        finally:
            self.clearing -= 1
        if done.version is not None:
            self.oracle.was_published(store.manifest(done.version))

    def read(self, store: Store) -> None:
        head = store.head()
        number = self.random.randint(1, head.version) if head is not None and self.random.random() < 0.5 else None
        for last in (False, True):
            try:
                self.oracle.read(store, number)
                return
            except (StoreError, OSError) as error:
                # Clearing takes away what is read. With a grace of no time at all, that may be at any moment.
                again = Store.open(self.simulation.root)
                newest = again.head()
                assert newest is not None
                state = again.manifest(number or (head.version if head else newest.version)).current
                if newest.current.is_cleared(state.snapshot) or newest.current.is_cleared(state.model):
                    raise
                if last:
                    raise AssertionError(f"version {number} is kept and cannot be read") from error


def simulate(folder: Path, seed: int, chances: Chances, epochs: int = 2, processes: int = 3) -> Counter[str]:
    """Some epochs of several processes each; after each everything is looked at. What happened, by name."""
    simulation, oracle = Simulation(folder, seed, chances), Oracle()
    commands = Commands(simulation, oracle, folder)
    if simulation.random.random() < 0.8:  # Otherwise the first to come makes the store.
        simulation.run_quietly(lambda: [commands.run(name) for name in ("ingest", "model", "update")])
    for _ in range(epochs):
        simulation.run({f"process {n}": commands.program(4) for n in range(processes)})
        store = Store.open_or_new(simulation.root)
        if store.head() is not None or oracle.published:
            oracle.read_all(store)
    # Whatever happened: the next commands work.
    for name in ("ingest", "model", "update", "compact", "gc"):
        simulation.run_quietly(lambda name=name: commands.choice[name](Store.open_or_new(simulation.root)))
    oracle.read_all(Store.open(simulation.root))
    return oracle.ended + simulation.happened


SCHEDULES = 400
"""Of each kind, in the long test."""

HARSH = {
    "kills": Chances(switch=0.2, kill=0.003, error=0.0, lost_answer=0.0),
    "errors": Chances(switch=0.2, kill=0.0, error=0.004, lost_answer=0.0),
    "lost answers": Chances(switch=0.2, kill=0.0, error=0.0, lost_answer=0.006),
    "power failures": Chances(switch=0.2, kill=0.0, error=0.0, lost_answer=0.0, power_failure=0.003),
    "races": Chances(switch=0.6, kill=0.0, error=0.0, lost_answer=0.0),
    "everything": Chances(switch=0.3, kill=0.001, error=0.001, lost_answer=0.001, power_failure=0.001),
}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("harsh", "seed"), [("errors", 1795013530), ("lost answers", 1795013588)])
def test_schedules_that_once_lost_a_part(tmp_path: Path, harsh: str, seed: int) -> None:
    """A writer at work for longer than the grace period published between two looks of a cleaning."""
    simulate(tmp_path, seed, HARSH[harsh])


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("harsh", HARSH)
def test_some_schedules(tmp_path: Path, harsh: str) -> None:
    for seed in range(4):
        simulate(tmp_path / str(seed), seed, HARSH[harsh])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("harsh", HARSH)
def test_thousands_of_schedules(tmp_path: Path, harsh: str) -> None:
    first = int(os.environ.get("DKGE_SEED", time.time()))
    happened: Counter[str] = Counter()
    for seed in range(first, first + SCHEDULES):
        print(f"seed {seed}", flush=True)
        happened += simulate(tmp_path / str(seed), seed, HARSH[harsh])
        shutil.rmtree(tmp_path / str(seed))
    print(dict(happened))
