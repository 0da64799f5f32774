"""Every night: ingest, learn online (or from scratch, if the drift policy says so), evaluate. Idempotent.

The store is opened once, and what a step holds in memory is handed to the next: the diff and both snapshots from ingest
to the update, the tables from the update to the evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dkge_dist.config import Settings, load_settings, settings_of_model
from dkge_dist.graph.sources.base import Source
from dkge_dist.jobs.drift import due_by_count, due_by_drop
from dkge_dist.jobs.evaluate import evaluate_splits
from dkge_dist.jobs.ingest import ingest
from dkge_dist.jobs.opened import OpenedModel, joint_embedding
from dkge_dist.jobs.published import PublishedModel
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.jobs.train import TrainRequest, trained
from dkge_dist.jobs.update import SnapshotChange, load_change, updated
from dkge_dist.runtime import Monitor, Runtime
from dkge_dist.store.ingest import Ingested, IngestOptions
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.store import Store


@dataclass(frozen=True)
class LearnOptions:
    """How to learn: settings (a YAML file, then `key=value` words), and the model version to start from."""

    config: Path | None = None
    words: Iterable[str] = ()
    since_version: str | None = None


def nightly(
    store: Store,
    runtime: Runtime,
    source: Source,
    ingest_options: IngestOptions,
    learn_options: LearnOptions,
    monitor: Monitor,
) -> Report:
    """Ingest a night, learn it and evaluate. What was done already is not done again."""
    began = time.monotonic()
    report: Report = {}
    report["ingest"], ingested = ingest(store, source, ingest_options, None)
    current = store.current_snapshot()
    assert current is not None, "a snapshot was just ingested"
    model = store.current_model()
    drifted = None
    if model is not None and model.model.snapshot == current.version:
        # A training that drift asked for and that was stopped is taken up again.
        drifted = due_by_drop(store, model)
        if drifted is None:
            nothing = {"decision": "nothing new to learn", "unchanged": True}
            return {**report, "version": model.version, **nothing, "seconds": seconds_since(began)}
    night = _Night(store, runtime, ingested, current, monitor)
    with runtime.session():
        if model is None:
            decision = "there was no model yet"
            settings = load_settings(learn_options.config, learn_options.words)
            report |= night.train(settings, {"origin": "scratch", "preset": "default"})
        else:
            start = store.find_model(learn_options.since_version)
            settings = settings_of_model(start.model.settings, learn_options.config, learn_options.words)
            every = settings.online.retrain_policy.nights
            why = drifted or due_by_count(store, start, settings.online.retrain_when, every)
            if why is None:
                learnt, why = night.update(start, settings)
                report |= learnt
            if why is not None:
                report |= night.train(settings, {"origin": "scratch", "why": why})
            decision = why or "updated online"
    version = store.find_model().version
    return {**report, "decision": decision, "version": version, "unchanged": False, "seconds": seconds_since(began)}


class _Night:
    """The steps after ingest, with what they share."""

    def __init__(
        self, store: Store, runtime: Runtime, ingested: Ingested, current: SnapshotManifest, monitor: Monitor
    ) -> None:
        self.store, self.runtime, self.ingested, self.current, self.monitor = store, runtime, ingested, current, monitor
        # Another ingest may have come in between: then what this one holds in memory is not the current snapshot.
        self.is_fresh = not ingested.unchanged and ingested.manifest.version == current.version
        self.snapshot = ingested.snapshot if self.is_fresh else store.snapshot(current)
        self.names = ingested.names if self.is_fresh else store.dictionaries(current)

    def train(self, settings: Settings, facts: dict[str, str]) -> Report:
        """Train from scratch, then evaluate."""
        request = TrainRequest(self.current, self.snapshot, self.names, settings, facts)
        with trained(self.store, self.runtime, request, self.monitor) as done:
            return {"train": done.report, "evaluate": self._evaluate(done)}

    def update(self, start: ModelManifest, settings: Settings) -> tuple[Report, str | None]:
        """Learn online, then evaluate, unless the model is to be trained from scratch after all: why it is."""
        with updated(self.store, self.runtime, self._change(start), settings, self.monitor) as done:
            why = due_by_drop(self.store, done.manifest)
            evaluated = self._evaluate(done) if why is None else {}
            return {"update": done.report, "evaluate": evaluated}, why

    def _change(self, start: ModelManifest) -> SnapshotChange:
        """The change that was just ingested, if the model is of the snapshot before it; else read from the store."""
        if not self.is_fresh or self.current.snapshot.parent != start.model.snapshot:
            return load_change(self.store, start, self.current)
        head = self.store.head()
        assert head is not None, "a snapshot was just ingested"
        return SnapshotChange(
            start,
            head.current.model,
            self.store.snapshot_manifest(start.model.snapshot).snapshot.name,
            self.ingested.before,
            self.current,
            self.snapshot,
            self.ingested.diff,
            (self.names[0].digests, self.names[1].digests),
        )

    def _evaluate(self, done: PublishedModel) -> dict[str, Report]:
        opened = OpenedModel(self.store, done.manifest, self.snapshot, self.current.snapshot.name, self.names)
        return evaluate_splits(opened, joint_embedding(done.tables, self.snapshot), done.evidence)
