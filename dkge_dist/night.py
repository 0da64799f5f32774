"""Every night: ingest, learn online (and from scratch, if the drift policy says so), evaluate. Idempotent.

A training comes after the update: it may take days, and may turn out worse.
The store is opened once, and what a step holds in memory is handed to the next: the diff and both snapshots from ingest
to the update, the tables from the update to the evaluation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dkge_dist.ask.model import Model
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.sources.base import Source
from dkge_dist.jobs.ingest import ingest
from dkge_dist.jobs.train import TrainOptions, TrainRequest, trained
from dkge_dist.jobs.update import SnapshotChange, kept_paths, load_change, updated
from dkge_dist.measure.drift import DriftDecision, Incumbent, decide
from dkge_dist.measure.fidelity import night_began
from dkge_dist.measure.link_prediction import evaluate_splits
from dkge_dist.records import Decision, Fidelity, NightlyRecord, NightRecord, Quality, TrainingRecord
from dkge_dist.runtime import Monitor, Runtime
from dkge_dist.settings import Settings, SettingsGiven, load_settings, settings_of_model
from dkge_dist.store.ingest import Ingested, IngestOptions
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.types import seconds_since

OnPublished = Callable[[Store, int, str, str], None]
"""Called with the store, the version, its snapshot, and a line about it."""


@dataclass(frozen=True)
class LearnOptions:
    """How to learn: settings (a YAML file, then words or a mapping), and the model version to start from."""

    config: Path | None = None
    words: SettingsGiven = ()
    since_version: str | None = None


def nightly(
    store: Store,
    runtime: Runtime,
    source: Source,
    ingest_options: IngestOptions,
    learn_options: LearnOptions,
    monitor: Monitor,
    published: OnPublished = lambda store, version, snapshot, headline: None,
) -> NightlyRecord:
    """Ingest a night, learn it and evaluate. What was done already is not done again.

    `published` is called for every model that is promoted, before anything else is learnt.
    """
    began = time.monotonic()
    ingested, result = ingest(store, source, ingest_options, monitor.progress)
    model, night = store.current_model(), _Night(store, runtime, result, monitor, published)
    if model is None:
        with runtime.session():
            night.train(load_settings(learn_options.config, learn_options.words), preset="default")
        decided = Decision(decision="there was no model yet")
    else:
        is_learnt = model.model.snapshot == night.current.version
        start = model if is_learnt else store.find_model(learn_options.since_version)
        settings = settings_of_model(start.model.settings, learn_options.config, learn_options.words)
        drift = decide(store, model, settings.online) if is_learnt else None
        if drift is None or drift.trains:
            with runtime.session():
                if drift is None:
                    model = night.update(start, settings)
                    drift = decide(store, model, settings.online)
                # One that was stopped is taken up again: what its night found is kept with the version.
                if drift.trains:
                    night.retrain(model, settings, drift.why)
        decided = _decided(store, drift, night, model)
    return NightlyRecord(
        ingest=ingested,
        **night.done,
        **decided,
        headline="; ".join(night.headlines) or f"{night.current.snapshot.name}: nothing new to learn",
        version=store.find_model().version,
        unchanged=not night.done,
        seconds=seconds_since(began),
    )


def headline(update: NightRecord, before: Quality) -> str:
    """An update in one line, for a mail or a log. `before`: the validation of the model that was updated."""
    seconds = update.learn_seconds or update.seconds or 0.0
    said = f"{update.snapshot}: +{update.added:,} −{update.deleted:,} learnt in {_short(seconds)}"
    quality, fidelity = [], update.fidelity or Fidelity()
    if (added := fidelity.mrr(*Fidelity.ADDED)) is not None:
        quality.append(f"added facts believed {bare(added.mean, '.2f')}")
    if (deleted := fidelity.mrr(*Fidelity.DELETED)) is not None:
        quality.append(f"deleted ones {bare(deleted.mean, '.2f')}")
    if update.valid.mrr is not None:
        change = f" ({bare(update.valid.mrr - before.mrr, '+.3f')})" if before.mrr is not None else ""
        quality.append(f"MRR {bare(update.valid.mrr, '.3f')}{change}")
    return "; ".join([said, ", ".join(quality)] if quality else [said])


def headline_of_training(record: TrainingRecord) -> str:
    """A training in one line."""
    mrr = f", MRR {bare(record.valid.mrr, '.3f')}" if record.valid.mrr is not None else ""
    how = "refreshed over the whole graph" if record.origin == "refresh" else "trained from scratch"
    return f"{record.snapshot}: {how} in {_short(record.seconds or 0.0)}{mrr}"


def _short(seconds: float) -> str:
    return f"{bare(seconds, '.1f')} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def bare(number: float, how: str) -> str:
    """A number without the 0 before its point, and with a real minus."""
    return re.sub(r"(?<!\d)0\.", ".", f"{number:{how}}").replace("-", "−")


def _decided(store: Store, drift: DriftDecision, night: _Night, model: ModelManifest) -> Decision:
    """What was found and decided, in words. A user who has to train is told what to run."""
    found: dict[str, Any] = {} if drift.found is None else {"drift": drift.found.with_(due=drift.why)}
    trained, done = night.done.get("train"), "updated online" if "update" in night.done else "nothing new to learn"
    if trained is not None and trained.comparison is not None and not trained.comparison.promoted:
        version, worse = trained.version, "; ".join(trained.comparison.worse)
        why = f"version {version} was trained from scratch and does not replace version {model.version}: {worse}"
        return Decision(
            decision=f"{trained.why}; version {model.version} stays current",
            **found,
            warning=f"{why}; `dkge rollback {store} {version}` makes it current",
        )
    if drift.trains or drift.why is None:
        return Decision(decision=drift.why or done, **found)
    return Decision(
        decision=f"{done}; training from scratch is due: {drift.why}",
        **found,
        warning=f"{drift.why}; `dkge train {store}` trains from scratch",
    )


class _Night:
    """The steps after ingest, with what they share; what they did is in `done`, as the record names it."""

    def __init__(
        self, store: Store, runtime: Runtime, ingested: Ingested, monitor: Monitor, published: OnPublished
    ) -> None:
        current = store.current_snapshot()
        assert current is not None, "a snapshot was just ingested"
        self.store, self.runtime, self.ingested, self.current = store, runtime, ingested, current
        self.monitor, self.published = monitor, published
        self.done: dict[str, Any] = {}
        self.headlines: list[str] = []
        self.learnt: Diff | None = None
        # Another ingest may have come in between: then what this one holds in memory is not the current snapshot.
        self.is_fresh = not ingested.unchanged and ingested.manifest.version == current.version

    @cached_property
    def snapshot(self) -> Snapshot:
        """The snapshot to learn."""
        return self.ingested.snapshot if self.is_fresh else self.store.snapshot(self.current)

    @cached_property
    def names(self) -> tuple[Dictionary, Dictionary]:
        """Its labels."""
        return self.ingested.names if self.is_fresh else self.store.dictionaries(self.current)

    def update(self, start: ModelManifest, settings: Settings) -> ModelManifest:
        """Learn online, then evaluate."""
        change = self._change(start)
        with updated(self.store, self.runtime, change, settings, self.monitor) as (record, model):
            self.learnt = change.diff
            self.done |= {"update": record, "evaluate": self._evaluate(model)}
        self._publish(model.version, headline(record, start.model.record.valid))
        return model.manifest

    def retrain(self, model: ModelManifest, settings: Settings, why: str | None) -> None:
        """Train from scratch what was learnt online. It is promoted unless it is worse."""
        diff = self.learnt or self.store.diff(night_began(self.store, model), self.current)
        self.train(settings, why=why, incumbent=Incumbent.of(self.store, model, diff))

    def train(
        self,
        settings: Settings,
        preset: str | None = None,
        why: str | None = None,
        incumbent: Incumbent | None = None,
    ) -> None:
        """Train from scratch, then evaluate what was promoted."""
        how = (settings, preset, why, TrainOptions(), incumbent)
        request = TrainRequest(self.current, self.snapshot, self.names, *how)
        with trained(self.store, self.runtime, request, self.monitor) as (record, model):
            self.done["train"] = record
            promoted = record.comparison is None or record.comparison.promoted
            if promoted:
                self.done["evaluate"] = self._evaluate(model)
        self._publish(model.version, headline_of_training(record), promoted)

    def _publish(self, version: int, line: str, promoted: bool = True) -> None:
        self.headlines.append(line)
        if promoted:
            self.published(self.store, version, self.current.snapshot.name, line)

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
            kept_paths(self.store, start),
        )

    def _evaluate(self, model: Model) -> dict[str, Any]:
        return evaluate_splits(model, self.monitor.progress)
