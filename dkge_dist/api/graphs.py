"""Graphs: synthesise, ingest, compare, list and check. No torch is needed for any of these."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from dkge_dist.api.reports import PathLike, Progress, Report, since
from dkge_dist.config import Settings, load_settings
from dkge_dist.graph.affected import GraphState, find_affected
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.sources.detect import SourceOptions, open_source
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.jit import set_threads
from dkge_dist.store.check import check as check_store
from dkge_dist.store.ingest import IngestOptions
from dkge_dist.store.ingest import ingest as ingest_source
from dkge_dist.store.manifest import Manifest, ModelManifest, RollbackManifest, SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.synth import PRESETS, write_synth
from dkge_dist.types import Split, Triples, UsageError


def synth(
    out: PathLike,
    preset: str = "demo",
    *,
    entities: int | None = None,
    triples: int | None = None,
    nights: int | None = None,
    seed: int | None = None,
    full: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Write a synthetic evolving movie graph to the folder `out`.

    Sizes that are given replace those of the preset, the others keep their proportion; `full` writes every night as a
    whole snapshot too, beside its changes.
    """
    if preset not in PRESETS:
        raise UsageError(f"no preset {preset!r}: one of {', '.join(PRESETS)}")
    began = time.monotonic()
    try:
        spec = PRESETS[preset].resized(entities, triples, nights, seed)
        report = write_synth(spec, Path(out), full, progress)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return {**report, "seconds": since(began)}


def ingest(
    store: PathLike,
    source: PathLike,
    *,
    format: str = "auto",
    name: str | None = None,
    valid: int | None = None,
    test: int | None = None,
    force: bool = False,
    max_bad_lines: int = 0,
    onto: str | None = None,
    released_after: int | None = None,
    key: Literal["id", "name"] = "id",
    literals: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Make the next snapshot of `store` out of `source`; on any error the store is as before.

    With `onto` (a name or version number) it is refused unless just that snapshot is in force.
    """
    began = time.monotonic()
    reader = open_source(Path(source), format, SourceOptions(released_after, key, literals))
    options = IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, onto)

    def heard(done: int, total: int) -> None:
        if progress is not None:
            progress(done / total if total else 0.0, "reading")

    result = ingest_source(Store.open_or_new(Path(store)), reader, options, heard)
    entry = result.manifest.snapshot
    seconds = since(began)
    return {
        "version": result.manifest.version,
        "name": entry.name,
        "format": reader.format,
        "unchanged": result.unchanged,
        "entities": entry.entities,
        "relations": entry.relations,
        "triples": entry.train + entry.valid + entry.test,
        "train": entry.train,
        "valid": entry.valid,
        "test": entry.test,
        **result.diff.counts(),
        "counts": result.counts,
        "rejects": result.rejects,
        "lines": result.lines,
        "bytes_written": result.bytes_written,
        "seconds": seconds,
        "triples_per_second": round(result.lines / max(seconds, 1e-9)),
    }


def log(store: PathLike) -> Report:
    """Every version: what it is, what it stands on, what it changed."""
    opened = Store.open(Path(store))
    return {"versions": [_version(opened, opened.manifest(number)) for number in opened.versions()]}


def diff(
    store: PathLike,
    old: str,
    new: str,
    *,
    out: PathLike | None = None,
    examples: int = 0,
    affected: bool = False,
    config: PathLike | None = None,
    settings: Iterable[str] = (),
) -> Report:
    """What changed from snapshot `old` to snapshot `new` (names or version numbers).

    `out` writes the train triples as a change file; `examples` shows some; `affected` adds who is affected under the
    context settings.
    """
    began = time.monotonic()
    chosen = load_settings(Path(config) if config else None, settings)
    opened = Store.open(Path(store))
    first, last = opened.find_snapshot(old), opened.find_snapshot(new)
    change = opened.diff(first, last)
    names = opened.dictionaries(max(first, last, key=lambda manifest: manifest.version))
    report: Report = {"from": first.snapshot.name, "to": last.snapshot.name, **change.counts()}
    if affected:
        report |= _affected(opened, first, change, names, chosen)
    if examples:
        for side, triples in (("added", change.added), ("deleted", change.deleted)):
            report[f"{side}_examples"] = _labelled(triples.take(slice(examples)), names)
    if out is not None:
        report["out"] = str(out)
        _write_changes(Path(out), change, names)
    return {**report, "seconds": since(began)}


def check(store: PathLike, *, progress: Progress | None = None) -> Report:
    """Verify every checksum and that the parts fit together; `problems` names what is broken."""
    began = time.monotonic()

    def heard(done: int, total: int) -> None:
        if progress is not None:
            progress(done / total, "checking versions")

    result = check_store(Store.open(Path(store)), heard)
    problems = [{"version": problem.version, "problem": problem.message} for problem in result.problems]
    return {
        "ok": not problems,
        "versions": result.versions,
        "parts": result.parts,
        "bytes": result.bytes,
        "problems": problems,
        "seconds": since(began),
    }


def _version(store: Store, manifest: Manifest) -> Report:
    common = {"version": manifest.version, "kind": manifest.kind, "created": manifest.created}
    if isinstance(manifest, ModelManifest):
        model = manifest.model
        learnt_from = store.manifest(model.snapshot)
        assert isinstance(learnt_from, SnapshotManifest), "checked when the model was published"
        return {
            **common,
            "name": learnt_from.snapshot.name,
            "parent": model.parent or model.snapshot,
            **model.facts,
            "metrics": model.metrics,
            "seconds": manifest.seconds,
        }
    if not isinstance(manifest, SnapshotManifest):
        in_force = store.manifest(manifest.current.snapshot)
        name = in_force.snapshot.name if isinstance(in_force, SnapshotManifest) else None
        to = {"parent": manifest.to} if isinstance(manifest, RollbackManifest) else {}
        return {**common, "name": name, **to, "seconds": manifest.seconds}
    entry = manifest.snapshot
    return {
        **common,
        "name": entry.name,
        "parent": entry.parent,
        "format": entry.format,
        "entities": entry.entities,
        "relations": entry.relations,
        "train": entry.train,
        "valid": entry.valid,
        "test": entry.test,
        **entry.diff,
        "counts": entry.counts,
        "stored": "full" if entry.base is not None else "change",
        "seconds": manifest.seconds,
    }


def _affected(
    store: Store, first: SnapshotManifest, change: Diff, names: tuple[Dictionary, Dictionary], settings: Settings
) -> Report:
    if settings.threads:
        set_threads(settings.threads)
    train = store.snapshot(first).triples(Split.TRAIN)
    digests = (names[0].digests, names[1].digests)
    topology = Topology.of(train, len(names[0]))
    paths = PathCounts.of(topology, train, len(names[1]), settings.context.path_length)
    sampling = Sampling(settings.seed, settings.context.cap, settings.context.hops)
    began = time.monotonic()
    found, _ = find_affected(GraphState(topology, paths), change, digests, sampling)
    return {
        "affected_entities": len(found.entities()),
        "affected_relations": len(found.relations()),
        "context_changed_entities": len(found.entities_by_context),
        "context_changed_relations": len(found.relations_by_context),
        "affected_seconds": since(began),
    }


def _labelled(triples: Triples, names: tuple[Dictionary, Dictionary]) -> list[list[str]]:
    entities, relations = names
    columns = entities.labels(triples.head), relations.labels(triples.relation), entities.labels(triples.tail)
    return [list(row) for row in zip(*columns, strict=True)]


def _write_changes(path: Path, change: Diff, names: tuple[Dictionary, Dictionary]) -> None:
    """The train triples of a diff as a change file."""
    for triples in (change.added, change.deleted):
        for dictionary, column in ((names[0], triples.head), (names[1], triples.relation), (names[0], triples.tail)):
            for label in dictionary.labels(np.unique(column)):
                if "\t" in label or "\n" in label or label.endswith("\r"):
                    raise UsageError(f"{path}: a change file cannot hold the label {label!r}: it has a tab or line end")
    lines = [
        "\t".join((sign, *row)) + "\n"
        for sign, triples in (("+", change.added), ("-", change.deleted))
        for row in _labelled(triples, names)
    ]
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text("".join(lines), encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
