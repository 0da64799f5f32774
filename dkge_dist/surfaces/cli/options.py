"""Options and arguments that several commands share, as typer annotations. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StoreLocation = Annotated[str, typer.Argument(metavar="STORE", help="The store: a folder, or s3://bucket/prefix.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]

SettingWords = Annotated[list[str] | None, typer.Argument(metavar="key=value", help="Settings, as in configs/.")]
Config = Annotated[Path | None, typer.Option(help="YAML file of settings.")]
Preset = Annotated[str, typer.Option(help="Start values of the settings: default or paper.")]

SnapshotName = Annotated[str | None, typer.Option(help="Name of the snapshot; the source's by default.")]
Valid = Annotated[int | None, typer.Option(help="Triples to hold out for validation; about 1% of a first snapshot.")]
Test = Annotated[int | None, typer.Option(help="Triples to hold out for test; likewise. 0 holds none out.")]
Columns = Annotated[
    str | None,
    typer.Option(metavar="H,R,T", help="Columns of head, relation and tail: names, or numbers from 1 on."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse new labels that look like a known one misspelt.")]
Force = Annotated[bool, typer.Option("--force", help="Take a source that looks wrong.")]
MaxBadLines = Annotated[int, typer.Option(min=0, help="Bad lines to set aside before giving up.")]
Onto = Annotated[
    str | None, typer.Option(metavar="V", help="Refuse unless this snapshot (name or version) is the current one.")
]
LabelFiles = Annotated[
    list[Path] | None, typer.Option("--labels", metavar="FILE", help="Display names: label<TAB>name lines.")
]
LabelLanguage = Annotated[str, typer.Option(metavar="LANG", help="RDF: the language of display names.")]

Since = Annotated[
    str | None, typer.Option(metavar="V", help="Start from the model of this version or date: several nights at once.")
]
ModelVersion = Annotated[
    str | None,
    typer.Option("--version", "--as-of", metavar="V", help="The model of a version, snapshot or date (UTC)."),
]
NoEvidence = Annotated[bool, typer.Option("--no-evidence", help="By vectors alone, without what the graph says.")]

Shards = Annotated[
    int | None, typer.Option(min=1, help="Run on Ray, with the entities in so many shards; without it, no Ray is used.")
]
Workers = Annotated[int, typer.Option(min=1, help="With --shards: data-parallel workers that train.")]
Address = Annotated[str | None, typer.Option(help="With --shards: the Ray cluster; one of our own by default.")]
Wait = Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="With --shards: for room on the cluster.")]

LogJson = Annotated[
    Path | None, typer.Option("--log-json", metavar="FILE", help="Append a line of JSON for every event to FILE.")
]
MetricsFile = Annotated[
    Path | None, typer.Option("--metrics", metavar="FILE", help="Write figures for Prometheus (textfile collector).")
]
