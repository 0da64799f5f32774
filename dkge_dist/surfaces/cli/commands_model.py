"""Commands that learn: from scratch, online, and the night that does whichever is due."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dkge_dist.surfaces.cli.options import (
    Address,
    Columns,
    Config,
    Force,
    Json,
    LabelFiles,
    LabelLanguage,
    LogJson,
    MaxBadLines,
    MetricsFile,
    Onto,
    Preset,
    Quiet,
    SettingWords,
    Shards,
    Since,
    SnapshotName,
    StoreLocation,
    Strict,
    Test,
    Valid,
    Wait,
    Workers,
)
from dkge_dist.surfaces.cli.output import emit, progress_bar, stop_requested
from dkge_dist.surfaces.cli.render.model import render_night, render_trained, render_update


def train(
    store: StoreLocation,
    settings: SettingWords = None,
    snapshot: Annotated[
        str | None, typer.Option(help="Name, version number or date; by default the current one.")
    ] = None,
    preset: Preset = "default",
    config: Config = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="A few epochs from the current model on, instead of from scratch.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not resume an interrupted training.")] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="Also write metrics for TensorBoard here.")] = None,
    shards: Shards = None,
    workers: Workers = 1,
    address: Address = None,
    wait: Wait = None,
    log_json: LogJson = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn a snapshot from scratch. Ctrl-C leaves a checkpoint; the same command resumes from it."""
    from dkge_dist.surfaces import api

    with progress_bar("train", quiet) as progress, stop_requested() as stop:
        report = api.train(
            store, snapshot=snapshot, preset=preset, config=config, settings=settings or (), refresh=refresh,
            fresh=fresh, tensorboard=tensorboard, shards=shards, workers=workers, address=address, wait_seconds=wait,
            log_json=log_json, progress=progress, stop=stop,
        )  # fmt: skip
    emit(report, as_json, render_trained)


def update(
    store: StoreLocation,
    settings: SettingWords = None,
    to: Annotated[
        str | None,
        typer.Option(help="Snapshot to bring the model to: name, number or date; by default the current one."),
    ] = None,
    since: Since = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")] = False,
    config: Config = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    log_json: LogJson = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Learn online what changed since the snapshot that the model was learnt from."""
    from dkge_dist.surfaces import api

    with progress_bar("update", quiet) as progress, stop_requested() as stop:
        report = api.update(
            store, to=to, since_version=since, plan=plan, config=config, settings=settings or (), shards=shards,
            address=address, wait_seconds=wait, log_json=log_json, progress=progress, stop=stop,
        )  # fmt: skip
    emit(report, as_json, render_update)


def nightly(
    store: StoreLocation,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="The night: a snapshot or a change file, or a pattern.")
    ],
    settings: SettingWords = None,
    format: Annotated[str, typer.Option(help="As for `dkge ingest`.")] = "auto",
    columns: Columns = None,
    name: SnapshotName = None,
    valid: Valid = None,
    test: Test = None,
    force: Force = False,
    strict: Strict = False,
    max_bad_lines: MaxBadLines = 0,
    onto: Onto = None,
    labels: LabelFiles = None,
    label_language: LabelLanguage = "en",
    since: Since = None,
    config: Config = None,
    shards: Shards = None,
    workers: Workers = 1,
    address: Address = None,
    wait: Wait = None,
    log_json: LogJson = None,
    metrics: MetricsFile = None,
    report_file: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page about the nights here afterwards.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Ingest, update (and train from scratch, if the drift policy says so) and evaluate. Idempotent."""
    from dkge_dist.surfaces import api

    with progress_bar("nightly", quiet) as progress, stop_requested() as stop:
        report = api.nightly(
            store, source, format=format, columns=columns, name=name, valid=valid, test=test, force=force,
            strict=strict, max_bad_lines=max_bad_lines, onto=onto, labels=labels or (), label_language=label_language,
            since_version=since, config=config,
            settings=settings or (), shards=shards, workers=workers, address=address, wait_seconds=wait,
            log_json=log_json, metrics=metrics, report=report_file, progress=progress, stop=stop,
        )  # fmt: skip
    emit(report, as_json, render_night)
