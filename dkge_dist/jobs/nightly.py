"""Every night: ingest, learn online (and from scratch, if the drift policy says so), evaluate. Idempotent.

A training comes after the update: it may take days, and may turn out worse.
The store is opened once, and what a step holds in memory is handed to the next: the diff and both snapshots from ingest
to the update, the tables from the update to the evaluation.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dkge_dist.ask.model import OpenedModel, joint_embedding
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.sources.base import Source
from dkge_dist.jobs.drift import DriftDecision, decide
from dkge_dist.jobs.evaluate import evaluate_splits
from dkge_dist.jobs.fidelity import ADDED, DELETED, night_began, sampled_mrr
from dkge_dist.jobs.ingest import ingest
from dkge_dist.jobs.published import PublishedModel
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.jobs.takeover import Rival
from dkge_dist.jobs.train import TrainRequest, trained
from dkge_dist.jobs.update import SnapshotChange, kept_paths, load_change, updated
from dkge_dist.runtime import Monitor, Runtime
from dkge_dist.settings import Settings, SettingsGiven, load_settings, settings_of_model
from dkge_dist.store.ingest import Ingested, IngestOptions
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.store import Store

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
) -> Report:
    """Ingest a night, learn it and evaluate. What was done already is not done again.

    `published` is called for every model that took over, before anything else is learnt.
    """
    began = time.monotonic()
    report: Report = {}
    report["ingest"], ingested = ingest(store, source, ingest_options, monitor.progress)
    current = store.current_snapshot()
    assert current is not None, "a snapshot was just ingested"
    model = store.current_model()
    if model is None:
        settings = load_settings(learn_options.config, learn_options.words)
        with runtime.session():
            night = _Night(store, runtime, ingested, current, monitor)
            report |= night.train(settings, {"origin": "scratch", "preset": "default"}, None)
        report["headline"] = headline_of_training(report["train"])
        published(store, report["train"]["version"], report["train"]["snapshot"], report["headline"])
        told: Report = {"decision": "there was no model yet"}
    else:
        is_learnt = model.model.snapshot == current.version
        start = model if is_learnt else store.find_model(learn_options.since_version)
        settings = settings_of_model(start.model.settings, learn_options.config, learn_options.words)
        decision = decide(store, model, settings.online) if is_learnt else None
        if decision is not None and not decision.trains:
            told = _told(store, decision, "nothing new to learn")
            told["headline"] = f"{current.snapshot.name}: nothing new to learn"
            return {**report, "version": model.version, **told, "unchanged": True, "seconds": seconds_since(began)}
        with runtime.session():
            night = _Night(store, runtime, ingested, current, monitor)
            if decision is None:
                learnt, model = night.update(start, settings)
                report |= learnt
                report["headline"] = headline(learnt["update"], start.model.metrics)
                published(store, model.version, current.snapshot.name, report["headline"])
                decision = decide(store, model, settings.online)
            told = _told(store, decision, "updated online")
            # One that was stopped is taken up again: what its night found is kept with the version.
            if decision.trains:
                report |= night.retrain(model, settings, told["decision"])
                told |= _told_of_training(store, model, report["train"])
                lines = [report.get("headline"), headline_of_training(report["train"])]
                report["headline"] = "; ".join(line for line in lines if line)
                if report["train"]["comparison"]["takes_over"]:
                    published(store, report["train"]["version"], current.snapshot.name, str(lines[-1]))
    version = store.find_model().version
    return {**report, **told, "version": version, "unchanged": False, "seconds": seconds_since(began)}


def headline(update: Report, before: Mapping[str, float]) -> str:
    """An update in one line, for a mail or a log. `before`: the validation of the model that was updated."""
    said = f"{update['snapshot']}: +{update['added']:,} −{update['deleted']:,} learnt in {_short(update)}"
    quality = []
    if (added := sampled_mrr(update["fidelity"], ADDED)) is not None:
        quality.append(f"added facts believed {bare(added.mean, '.2f')}")
    if (deleted := sampled_mrr(update["fidelity"], DELETED)) is not None:
        quality.append(f"deleted ones {bare(deleted.mean, '.2f')}")
    if "mrr" in update["valid"]:
        change = f" ({bare(update['valid']['mrr'] - before['mrr'], '+.3f')})" if "mrr" in before else ""
        quality.append(f"MRR {bare(update['valid']['mrr'], '.3f')}{change}")
    return "; ".join([said, ", ".join(quality)] if quality else [said])


def headline_of_training(report: Report) -> str:
    """A training in one line."""
    mrr = f", MRR {bare(report['valid']['mrr'], '.3f')}" if "mrr" in report["valid"] else ""
    how = "refreshed over the whole graph" if report["origin"] == "refresh" else "trained from scratch"
    return f"{report['snapshot']}: {how} in {_short(report)}{mrr}"


def _short(report: Report) -> str:
    """The seconds of learning alone, where they are told."""
    seconds = float(report["learn_seconds"] if "learn_seconds" in report else report["seconds"])
    return f"{bare(seconds, '.1f')} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def bare(number: float, how: str) -> str:
    """A number without the 0 before its point, and with a real minus."""
    return re.sub(r"(?<!\d)0\.", ".", f"{number:{how}}").replace("-", "−")


def _told(store: Store, decision: DriftDecision, done: str) -> Report:
    """What was found and decided. Whoever is not to train is told what to run."""
    told: Report = {"decision": decision.why if decision.trains else done}
    if decision.found is not None:
        told["drift"] = {**decision.found, "due": decision.why}
    if decision.why is not None and not decision.trains:
        told["decision"] = f"{done}; training from scratch is due: {decision.why}"
        told["warning"] = f"{decision.why}; `dkge train {store}` trains from scratch"
    return told


def _told_of_training(store: Store, model: ModelManifest, report: Report) -> Report:
    """Whether a training took over from the model that was learnt online."""
    if report["comparison"]["takes_over"]:
        return {}
    version, worse = report["version"], "; ".join(report["comparison"]["worse"])
    kept = f"version {version} was trained from scratch and does not take over from version {model.version}: {worse}"
    return {
        "decision": f"{report['why']}; version {model.version} stays current",
        "warning": f"{kept}; `dkge rollback {store} {version}` makes it current",
    }


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
        self.learnt: Diff | None = None

    def update(self, start: ModelManifest, settings: Settings) -> tuple[Report, ModelManifest]:
        """Learn online, then evaluate."""
        change = self._change(start)
        with updated(self.store, self.runtime, change, settings, self.monitor) as done:
            self.learnt = change.diff
            return {"update": done.report, "evaluate": self._evaluate(done)}, done.manifest

    def retrain(self, model: ModelManifest, settings: Settings, why: str) -> Report:
        """Train from scratch what was learnt online. It takes over unless it is worse."""
        diff = self.learnt or self.store.diff(night_began(self.store, model), self.current)
        return self.train(settings, {"origin": "scratch", "why": why}, Rival.of(self.store, model, diff))

    def train(self, settings: Settings, facts: dict[str, str], rival: Rival | None) -> Report:
        """Train from scratch, then evaluate what took over."""
        request = TrainRequest(self.current, self.snapshot, self.names, settings, facts, rival=rival)
        with trained(self.store, self.runtime, request, self.monitor) as done:
            if rival is not None and not done.report["comparison"]["takes_over"]:
                return {"train": done.report}
            return {"train": done.report, "evaluate": self._evaluate(done)}

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

    def _evaluate(self, done: PublishedModel) -> dict[str, Report]:
        opened = OpenedModel(self.store, done.manifest, self.snapshot, self.current.snapshot.name, self.names)
        embedding = joint_embedding(done.tables, self.snapshot)
        return evaluate_splits(opened, embedding, done.evidence, self.monitor.progress)
