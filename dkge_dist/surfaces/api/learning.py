"""Public functions that make graphs and models: synthetic graphs, snapshots, training, updates, nights."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from dkge_dist.jobs.report import PathLike, ProgressOption, Report, StopCallback, shown
from dkge_dist.jobs.runtimes import ClusterOptions, choose_runtime
from dkge_dist.settings import SettingsGiven, load_settings, settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.surfaces.api.arguments import VersionName, as_path, as_paths, version_name
from dkge_dist.types import UsageError


def synth(
    out: PathLike,
    preset: str = "demo",
    *,
    entities: int | None = None,
    triples: int | None = None,
    nights: int | None = None,
    seed: int | None = None,
    full: bool = False,
    progress: ProgressOption = None,
) -> Report:
    """Write a synthetic evolving movie graph to the folder `out`.

    Sizes that are given replace those of the preset, the others keep their proportion; `full` writes every night as a
    whole snapshot too, beside its changes.
    """
    from dkge_dist.jobs import synth as job

    with shown(progress, "synth") as callback:
        return job.synth(Path(out), preset, (entities, triples, nights, seed), full, callback)


def ingest(
    store: PathLike,
    source: Any,
    *,
    format: str = "auto",
    columns: str | Sequence[str | int] | None = None,
    name: str | None = None,
    valid: int | None = None,
    test: int | None = None,
    force: bool = False,
    strict: bool = False,
    max_bad_lines: int = 0,
    onto: VersionName = None,
    released_after: int | None = None,
    key: Literal["id", "name"] = "id",
    literals: bool = True,
    labels: PathLike | Iterable[PathLike] = (),
    label_language: str = "en",
    nodelist: Sequence[str | int] | None = None,
    relation: str | None = None,
    progress: ProgressOption = None,
) -> Report:
    """Make the next snapshot of `store` out of `source`; on any error the store is as before.

    `source` is a path, a pattern, several of them, a table (pandas, polars, pyarrow), an iterable of (head, relation,
    tail), a networkx graph, or a scipy adjacency matrix with the labels of its rows in `nodelist`; `relation` names
    edges that have no name. `columns` are head, relation and tail of a table, as names or numbers from 1 on.
    `valid` and `test` triples are held out; by default about 1% of a first snapshot, and what its parent holds out of a
    later one. `strict` refuses new labels that look like a known one misspelt. With `onto` (a name or version number)
    it is refused unless that snapshot is current. `labels` are files of display names, `label<TAB>name` lines, beside
    those that the source gives; `label_language` chooses among those of RDF.
    """
    from dkge_dist.graph.holdout import HeldOut
    from dkge_dist.graph.sources.base import SourceOptions
    from dkge_dist.graph.sources.columns import parse_columns
    from dkge_dist.graph.sources.detect import open_given, open_label_files
    from dkge_dist.jobs import ingest as job
    from dkge_dist.store.ingest import IngestOptions

    source_options = SourceOptions(released_after, key, literals, label_language, parse_columns(columns))
    reader = open_given(source, format, source_options, nodelist, relation)
    files = open_label_files(as_paths(labels))
    options = IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, version_name(onto), files, strict)
    with shown(progress, "ingest") as callback:
        return job.ingest(Store.open_or_new(store), reader, options, callback)[0]


def train(
    store: PathLike,
    *,
    snapshot: VersionName = None,
    preset: str = "default",
    config: PathLike | None = None,
    settings: SettingsGiven = (),
    refresh: bool = False,
    fresh: bool = False,
    tensorboard: PathLike | None = None,
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    log_json: PathLike | None = None,
    progress: ProgressOption = None,
    stop: StopCallback | None = None,
) -> Report:
    """Learn a snapshot (the current one by default) from scratch and publish the model as the next version.

    With `refresh` it goes on from the current model, with all of its vectors and for `online.refresh_epochs` epochs:
    what many nights left behind is mended in a fraction of the time.
    A training that was interrupted is resumed, unless `fresh`. `stop` is asked after every batch; when it returns True,
    a checkpoint is left and the training ends with an error. With `shards` it runs on Ray.
    """
    from dkge_dist.jobs import train as job
    from dkge_dist.jobs.announce import Announcer
    from dkge_dist.jobs.event_log import LoggingMonitor, event_log
    from dkge_dist.jobs.nightly import headline_of_training

    runtime = choose_runtime(ClusterOptions(shards, workers, address, wait_seconds))
    opened, start = Store.open(store), None
    if refresh:
        if preset != "default":
            raise UsageError(f"preset={preset}: a refresh has the settings of its model")
        start = opened.find_model()
        chosen = settings_of_model(start.model.settings, as_path(config), settings)
        facts = {"origin": "refresh", "start": start.version}
    else:
        chosen = load_settings(as_path(config), settings, preset)
        facts = {"origin": "scratch", "preset": preset}
    options = job.TrainOptions(fresh, as_path(tensorboard))
    with event_log(as_path(log_json), "train") as log, shown(progress, "train") as callback:
        announcer, monitor = Announcer(chosen, log), LoggingMonitor(callback, stop, log)
        report = job.train(opened, runtime, version_name(snapshot), chosen, facts, options, monitor, start)
        announcer.published(opened, report["version"], report["snapshot"], headline_of_training(report))
        return announcer.finished(report)


def update(
    store: PathLike,
    *,
    to: VersionName = None,
    since_version: VersionName = None,
    plan: bool = False,
    config: PathLike | None = None,
    settings: SettingsGiven = (),
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
    log_json: PathLike | None = None,
    progress: ProgressOption = None,
    stop: StopCallback | None = None,
) -> Report:
    """Bring the current model (or the one of `since_version`) to a later snapshot, and publish it.

    With `plan` nothing is done: the report says what would be. With `shards` the entities lie in so many Ray actors; a
    plan tells which of them would be written to. `stop` is asked after every batch; when it returns True, the store
    stays as it is.
    """
    from dkge_dist.jobs import update as job
    from dkge_dist.jobs.announce import Announcer
    from dkge_dist.jobs.event_log import LoggingMonitor, event_log
    from dkge_dist.jobs.nightly import headline

    opened = Store.open(store)
    parent = opened.find_model(version_name(since_version))
    chosen = settings_of_model(parent.model.settings, as_path(config), settings)
    if plan:
        return job.plan(opened, parent, version_name(to), chosen, shards or 1)
    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    with event_log(as_path(log_json), "update") as log, shown(progress, "update") as callback:
        announcer = Announcer(chosen, log)
        report = job.update(opened, runtime, parent, version_name(to), chosen, LoggingMonitor(callback, stop, log))
        if not report.get("unchanged"):
            line = headline(report, parent.model.metrics)
            announcer.published(opened, report["version"], report["snapshot"], line)
        return announcer.finished(report)


def nightly(
    store: PathLike,
    source: Any,
    *,
    format: str = "auto",
    columns: str | Sequence[str | int] | None = None,
    name: str | None = None,
    valid: int | None = None,
    test: int | None = None,
    force: bool = False,
    strict: bool = False,
    max_bad_lines: int = 0,
    onto: VersionName = None,
    labels: PathLike | Iterable[PathLike] = (),
    label_language: str = "en",
    since_version: VersionName = None,
    config: PathLike | None = None,
    settings: SettingsGiven = (),
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    log_json: PathLike | None = None,
    metrics: PathLike | None = None,
    report: PathLike | None = None,
    progress: ProgressOption = None,
    stop: StopCallback | None = None,
) -> Report:
    """Ingest a night (`source` and its options as for `ingest`), learn it online (and from scratch, if the drift policy
    says so), and evaluate.

    Idempotent: what was done already is not done again, so a night that failed half-way is simply run again. With
    `onto` it is refused unless that snapshot is current before it. With `since_version` what is learnt online starts
    from the model of that version, over all nights since. `log_json` gets a line of JSON for every event, `metrics` is
    written for Prometheus' textfile collector, `report` is where a page about the nights is written; that it could not
    be is told in `report_problem`, and the night stands.
    """
    from dkge_dist.graph.holdout import HeldOut
    from dkge_dist.graph.sources.base import SourceOptions
    from dkge_dist.graph.sources.columns import parse_columns
    from dkge_dist.graph.sources.detect import open_given, open_label_files
    from dkge_dist.jobs import nightly as job
    from dkge_dist.jobs.announce import Announcer
    from dkge_dist.jobs.event_log import LoggingMonitor, event_log
    from dkge_dist.jobs.metrics import night_families, write_metrics
    from dkge_dist.store.ingest import IngestOptions

    runtime = choose_runtime(ClusterOptions(shards, workers, address, wait_seconds))
    reader = open_given(source, format, SourceOptions(label_language=label_language, columns=parse_columns(columns)))
    files = open_label_files(as_paths(labels))
    chosen, opened = load_settings(as_path(config), settings), Store.open_or_new(store)
    with event_log(as_path(log_json), "nightly") as log, shown(progress, "nightly") as callback:
        announcer = Announcer(chosen, log)
        night = job.nightly(
            opened,
            runtime,
            reader,
            IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, version_name(onto), files, strict),
            job.LearnOptions(as_path(config), settings, version_name(since_version)),
            LoggingMonitor(callback, stop, log),
            announcer.published,
        )
        if metrics is not None:
            write_metrics(Path(metrics), night_families(opened, night))
        done = announcer.finished(night)
    return done if report is None else {**done, **_write_report(store, report)}


def _write_report(store: PathLike, out: PathLike) -> Report:
    """The page of a night that is published: whatever goes wrong with it, the night stands."""
    from dkge_dist.jobs import night_report as job

    try:
        figures = job.night_report(Store.open(store), choose_runtime(ClusterOptions()))
        job.write_report(Path(out), figures)
    except Exception as error:
        # Not DkgeError alone: a fault of the page must not make a job run the night again.
        return {"report_problem": f"the night is done, its report is not: {error}"}
    return {"report": os.fspath(out)}
