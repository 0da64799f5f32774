"""Published data sets for benchmarks: where they are, and stores made of them. They are not part of the project."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import DATA
from dkge_dist.settings import load_settings
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api

SOURCE = Path(os.environ.get(DATA, "")) / "YAGO-3SP"
DBPEDIA = Path(os.environ.get(DATA, "")) / "DBpedia-3SP"
TIME_LIMIT = "train.max_seconds=1800"
"""Of a training from scratch, never to be reached. One word for all benchmarks: they find each other's models."""


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", type=Path, default=SOURCE, help="folder with snapshot1, snapshot2, ... in OpenKE layout"
    )


def published_store(arguments: argparse.Namespace, snapshots: int = 1, source: Path | None = None) -> Path:
    """A store holding the first snapshots of the source (--source by default); made if it is not there yet."""
    source = source or arguments.source
    if not (source / "snapshot1").is_dir():
        raise SystemExit(f"{source}: no snapshot1 there; set {DATA}, or name the folder of a data set with --source")
    store: Path = arguments.work / f"{source.name}-store"
    known = {line["name"] for line in api.log(store)["versions"]} if store.exists() else set()
    for number in range(1, snapshots + 1):
        if f"snapshot{number}" not in known:
            api.ingest(store, source / f"snapshot{number}", name=f"snapshot{number}")
    return store


def trained(store: Path, snapshot: str, preset: str, settings: list[str]) -> dict[str, Any]:
    """A model of a snapshot learnt from scratch with just these settings; learnt now if there is none yet.

    How it will be updated some day does not matter to it.
    """
    wanted = _apart_from_updates(load_settings(None, settings, preset).of_the_model())
    opened = Store.open(store)
    source = opened.find_snapshot(snapshot).version
    for number in opened.versions():
        manifest = opened.manifest(number)
        if isinstance(manifest, ModelManifest) and manifest.model.parent is None:
            model = manifest.model
            learnt_with = _apart_from_updates(model.settings)
            # A machine with other work beside it may have been too slow for all epochs.
            is_short = TIME_LIMIT in settings and model.record.epochs < wanted["train"]["max_epochs"]
            if model.snapshot == source and learnt_with == wanted and not is_short:
                made = model.record
                best = {"valid": dict(made.valid), "seconds": made.seconds, "epochs": made.epochs}
                return {"version": number, **best, "triples_per_second": made["triples_per_second"]}
    return dict(api.train(store, snapshot=snapshot, preset=preset, settings=settings))


def updated(store: Path, since: int, snapshots: Iterable[str]) -> int:
    """The version after nights that are learnt online one after the other; those that the store has are not again."""
    opened = Store.open(store)
    known = {
        (manifest.model.parent, manifest.model.snapshot): number
        for number in opened.versions()
        if isinstance(manifest := opened.manifest(number), ModelManifest)
    }
    for name in snapshots:
        found = known.get((since, opened.find_snapshot(name).version))
        since = found or api.update(store, to=name, since_version=str(since))["version"]
    return since


def _apart_from_updates(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "online"}


def online_words(words: Iterable[str] = ()) -> list[str]:
    """The settings of updates as they are now: a stored model brings those that it was learnt under."""
    chosen = load_settings(None, words).online.model_dump(mode="json")
    return [f"online.{name}={json.dumps(value)}" for name, value in chosen.items()]
