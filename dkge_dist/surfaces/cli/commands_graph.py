"""Commands about graphs: make one, read one into a store, compare two snapshots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dkge_dist.surfaces.cli.options import (
    Columns,
    Config,
    Force,
    Json,
    LabelFiles,
    LabelLanguage,
    MaxBadLines,
    Onto,
    Quiet,
    SnapshotName,
    StoreLocation,
    Strict,
    Test,
    Valid,
)
from dkge_dist.surfaces.cli.output import emit, progress_bar
from dkge_dist.surfaces.cli.render.graph import render_diff, render_ingested, render_synthesised


def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")],
    preset: Annotated[str, typer.Option(help="demo, imdb-30 or imdb-13.")] = "demo",
    entities: Annotated[int | None, typer.Option(help="Entities instead of the preset's.")] = None,
    triples: Annotated[int | None, typer.Option(help="Triples instead of the preset's.")] = None,
    nights: Annotated[int | None, typer.Option(help="Nights instead of the preset's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed gives another graph.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Write every night as a whole snapshot too.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a synthetic evolving movie graph: a snapshot, and nights of changes."""
    from dkge_dist.surfaces import api

    with progress_bar("synth", quiet) as progress:
        report = api.synth(
            out, preset, entities=entities, triples=triples, nights=nights, seed=seed, full=full, progress=progress
        )
    emit(report, as_json, lambda report: render_synthesised(report, out))


def ingest(
    store: StoreLocation,
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Files (or a pattern such as 'dumps/*.tsv.gz') or a folder; - is a pipe; `apt` with --format debian.",
        ),
    ],
    format: Annotated[
        str,
        typer.Option(
            help="auto, tsv, csv, jsonl, parquet, ntriples, nquads, turtle, trig, rdfxml, openke, imdb, debian, "
            "changes or labels."
        ),
    ] = "auto",
    columns: Columns = None,
    name: SnapshotName = None,
    valid: Valid = None,
    test: Test = None,
    force: Force = False,
    strict: Strict = False,
    max_bad_lines: MaxBadLines = 0,
    onto: Onto = None,
    released_after: Annotated[int | None, typer.Option(help="imdb: only titles released after this year.")] = None,
    key: Annotated[Literal["id", "name"], typer.Option(help="imdb: what identifies titles and people.")] = "id",
    literals: Annotated[bool, typer.Option(help="RDF: take literals as entities.")] = True,
    labels: LabelFiles = None,
    label_language: LabelLanguage = "en",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Read a source into the next snapshot of STORE (made if it does not exist)."""
    from dkge_dist.surfaces import api

    with progress_bar("ingest", quiet) as progress:
        report = api.ingest(
            store, source, format=format, columns=columns, name=name, valid=valid, test=test, force=force,
            strict=strict, max_bad_lines=max_bad_lines, onto=onto, released_after=released_after, key=key,
            literals=literals, labels=labels or (), label_language=label_language, progress=progress,
        )  # fmt: skip
    emit(report, as_json, render_ingested)


def diff(
    store: StoreLocation,
    old: Annotated[str, typer.Argument(metavar="A", help="Snapshot: its name, version number or date (UTC).")],
    new: Annotated[str, typer.Argument(metavar="B", help="Snapshot: its name, version number or date (UTC).")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="key=value", help="With --affected.")] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many changed triples, objects, questions to show.")] = 5,
    affected: Annotated[bool, typer.Option("--affected", help="Also who is affected.")] = False,
    answers: Annotated[
        bool, typer.Option("--answers", help="Also whose answers changed, by the models of both.")
    ] = False,
    config: Config = None,
    out: Annotated[Path | None, typer.Option(help="Write the train triples as a change file.")] = None,
    as_json: Json = False,
) -> None:
    """What changed from snapshot A to snapshot B."""
    from dkge_dist.surfaces import api

    report = api.diff(
        store, old, new, out=out, examples=examples, affected=affected, answers=answers, config=config,
        settings=settings or (),
    )  # fmt: skip
    emit(report, as_json, render_diff)
