"""Requests that learn: from scratch, online, and the night that does whichever is due."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dkge_dist.surfaces.requests.fields import (
    FromSource,
    Learning,
    OnShards,
    OnStore,
    OnWorkers,
    Option,
    Request,
    VersionName,
    argument,
    as_path,
    version_name,
)
from dkge_dist.types import PathLike, UsageError

if TYPE_CHECKING:
    from dkge_dist.records import NightlyRecord, TrainingRecord, UpdatePlanRecord


@dataclass(frozen=True, kw_only=True)
class Train(OnWorkers, Learning, OnStore, Request["TrainingRecord"]):
    """Learn a snapshot from scratch. Ctrl-C leaves a checkpoint; the same command resumes from it.

    With `refresh` it goes on from the current model, with all of its vectors and for `online.refresh_epochs` epochs:
    what many nights left behind is mended in a fraction of the time.
    """

    snapshot: Annotated[VersionName, Option("Name, version number or date; by default the current one.")] = None
    preset: Annotated[str, Option("Start values of the settings: default or paper.")] = "default"
    refresh: Annotated[bool, Option("A few epochs from the current model on, instead of from scratch.")] = False
    fresh: Annotated[bool, Option("Do not resume an interrupted training.")] = False
    tensorboard: Annotated[PathLike | None, Option("Also write metrics for TensorBoard here.")] = None

    def run(self) -> TrainingRecord:
        """Train and publish."""
        from dkge_dist.jobs import train as job
        from dkge_dist.night import headline_of_training
        from dkge_dist.settings import load_settings, settings_of_model
        from dkge_dist.surfaces.events import Announcer, LoggingMonitor, event_log
        from dkge_dist.surfaces.progress import shown

        runtime, store, start = self.runtime(), self.open_store(), None
        if self.refresh:
            if self.preset != "default":
                raise UsageError(f"preset={self.preset}: a refresh has the settings of its model")
            start = store.find_model()
            chosen = settings_of_model(start.model.settings, self.config_path, self.settings)
        else:
            chosen = load_settings(self.config_path, self.settings, self.preset)
        options = job.TrainOptions(self.fresh, as_path(self.tensorboard))
        with event_log(as_path(self.log_json), "train") as log, shown(self.progress, "train") as callback:
            announcer, monitor = Announcer(chosen, log), LoggingMonitor(callback, self.stop, log)
            name = version_name(self.snapshot)
            preset = None if self.refresh else self.preset
            record = job.train(store, runtime, name, chosen, preset, options, monitor, start)
            announcer.published(store, record["version"], record["snapshot"], headline_of_training(record))
            return announcer.finished(record)


SINCE = Option("Start from the model of this version or date: several nights at once.", ("--since",), "V")


@dataclass(frozen=True, kw_only=True)
class Update(OnShards, Learning, OnStore, Request["UpdatePlanRecord"]):
    """Learn online what changed since the snapshot that the model was learnt from."""

    to: Annotated[
        VersionName, Option("Snapshot to bring the model to: name, number or date; by default the current one.")
    ] = None
    since_version: Annotated[VersionName, SINCE] = None
    plan: Annotated[bool, Option("Show what would be done, and do nothing.")] = False

    def run(self) -> UpdatePlanRecord:
        """Learn and publish, or only plan it."""
        from dkge_dist.jobs import update as job
        from dkge_dist.night import headline
        from dkge_dist.settings import settings_of_model
        from dkge_dist.surfaces.events import Announcer, LoggingMonitor, event_log
        from dkge_dist.surfaces.progress import shown

        store, to = self.open_store(), version_name(self.to)
        parent = store.find_model(version_name(self.since_version))
        chosen = settings_of_model(parent.model.settings, self.config_path, self.settings)
        if self.plan:
            return job.plan(store, parent, to, chosen, self.shards or 1)
        runtime = self.runtime()
        with event_log(as_path(self.log_json), "update") as log, shown(self.progress, "update") as callback:
            announcer = Announcer(chosen, log)
            record = job.update(store, runtime, parent, to, chosen, LoggingMonitor(callback, self.stop, log))
            if not record.unchanged:
                line = headline(record, parent.model.record.valid)
                announcer.published(store, record["version"], record["snapshot"], line)
            return announcer.finished(record)


@dataclass(frozen=True)
class Nightly(OnWorkers, Learning, FromSource, OnStore, Request["NightlyRecord"]):
    """Ingest, update (and train from scratch, if the drift policy says so) and evaluate. Idempotent.

    What was done already is not done again, so a night that failed half-way is simply run again. That the page of
    `report` could not be written is told in `report_problem`, and the night stands.
    """

    source: Annotated[Any, argument("SOURCE", "The night: a snapshot or a change file, or a pattern.", words=str)]
    _: KW_ONLY
    since_version: Annotated[VersionName, SINCE] = None
    metrics: Annotated[
        PathLike | None, Option("Write figures for Prometheus (textfile collector).", metavar="FILE")
    ] = None
    report: Annotated[PathLike | None, Option("Write a page about the nights here afterwards.", metavar="FILE")] = None

    def run(self) -> NightlyRecord:
        """One night."""
        from dkge_dist import night as job
        from dkge_dist.graph.sources.detect import open_given
        from dkge_dist.settings import load_settings
        from dkge_dist.store.store import Store
        from dkge_dist.surfaces.events import Announcer, LoggingMonitor, event_log
        from dkge_dist.surfaces.metrics import night_families, write_metrics
        from dkge_dist.surfaces.progress import shown

        runtime = self.runtime()
        reader = open_given(self.source, self.format, self.source_options())
        ingest_options = self.ingest_options()
        chosen, store = load_settings(self.config_path, self.settings), Store.open_or_new(self.store)
        learn_options = job.LearnOptions(self.config_path, self.settings, version_name(self.since_version))
        with event_log(as_path(self.log_json), "nightly") as log, shown(self.progress, "nightly") as callback:
            announcer, monitor = Announcer(chosen, log), LoggingMonitor(callback, self.stop, log)
            night = job.nightly(store, runtime, reader, ingest_options, learn_options, monitor, announcer.published)
            if self.metrics is not None:
                write_metrics(Path(self.metrics), night_families(store, night))
            done = announcer.finished(night)
        return done if self.report is None else done.with_(**_write_report(self.store, self.report))


def _write_report(store: PathLike, out: PathLike) -> dict[str, str]:
    """The page of a night that is published: whatever goes wrong with it, the night stands."""
    from dkge_dist.surfaces.requests.history import NightReport

    try:
        NightReport(store, out).run()
    except Exception as error:
        # Not DkgeError alone: a fault of the page must not make a job run the night again.
        return {"report_problem": f"the night is done, its report is not: {error}"}
    return {"report": os.fspath(out)}
