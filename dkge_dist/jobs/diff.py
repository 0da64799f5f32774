"""What changed between two snapshots."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dkge_dist.config import Settings
from dkge_dist.graph.affected import find_affected
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.jobs.graphs import training_graph
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.sets import distinct
from dkge_dist.store.manifest import SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.types import Triples, UsageError

Names = tuple[Dictionary, Dictionary]


def diff(store: Store, old: str, new: str, out: Path | None, examples: int, settings: Settings | None) -> Report:
    """The change from `old` to `new`; with settings, also how many objects are affected under them."""
    began = time.monotonic()
    first, last = store.find_snapshot(old), store.find_snapshot(new)
    change = store.diff(first, last)
    names = store.dictionaries(max(first, last, key=lambda manifest: manifest.version))
    report: Report = {"from": first.snapshot.name, "to": last.snapshot.name, **change.counts()}
    if settings is not None:
        report |= _affected(store, (first, last), change, names, settings)
    if examples:
        for side, triples in (("added", change.added), ("deleted", change.deleted)):
            report[f"{side}_examples"] = _labelled(triples.take(slice(examples)), names)
    if out is not None:
        report["out"] = str(out)
        _write_changes(out, change, names)
    return {**report, "seconds": seconds_since(began)}


def _affected(
    store: Store, ends: tuple[SnapshotManifest, SnapshotManifest], change: Diff, names: Names, settings: Settings
) -> Report:
    if settings.threads:
        set_threads(settings.threads)
    before = training_graph(store.snapshot(ends[0]), (names[0].digests, names[1].digests), settings)
    began = time.monotonic()
    found, _ = find_affected(before, change, store.snapshot(ends[1]))
    return {
        "affected_entities": len(found.entities()),
        "affected_relations": len(found.relations()),
        "context_changed_entities": len(found.entities_by_context),
        "context_changed_relations": len(found.relations_by_context),
        "affected_seconds": seconds_since(began),
    }


def _labelled(triples: Triples, names: Names) -> list[list[str]]:
    entities, relations = names
    columns = entities.labels(triples.head), relations.labels(triples.relation), entities.labels(triples.tail)
    return [list(row) for row in zip(*columns, strict=True)]


def _write_changes(path: Path, change: Diff, names: Names) -> None:
    """The train triples of a diff as a change file."""
    for triples in (change.added, change.deleted):
        for dictionary, column in ((names[0], triples.head), (names[1], triples.relation), (names[0], triples.tail)):
            for label in dictionary.labels(distinct(column)):
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
