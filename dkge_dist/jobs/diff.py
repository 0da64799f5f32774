"""What changed between two snapshots."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.training_graph import find_affected, training_graph
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.sets import distinct
from dkge_dist.runtime import Runtime
from dkge_dist.settings import Settings
from dkge_dist.store.manifest import SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Report, Triples, UsageError, seconds_since

Names = tuple[Dictionary, Dictionary]


def diff(
    store: Store,
    old: str,
    new: str,
    out: Path | None,
    examples: int,
    settings: Settings | None,
    runtime: Runtime | None = None,
) -> Report:
    """The change from `old` to `new`; with settings, also who is affected under them.

    With a runtime, the questions of changed triples are asked of the models of both.
    """
    began = time.monotonic()
    first, last = store.find_snapshot(old), store.find_snapshot(new)
    change = store.diff(first, last)
    names = store.dictionaries(max(first, last, key=lambda manifest: manifest.version))
    report: Report = {"from": first.snapshot.name, "to": last.snapshot.name, **change.counts()}
    if settings is not None:
        report |= _affected(store, (first, last), change, names, settings, examples)
    if examples:
        for side, triples in (("added", change.added), ("deleted", change.deleted)):
            report[f"{side}_examples"] = _labelled(triples.take(slice(examples)), names)
        shown = Triples.concat([triples.take(slice(examples)) for triples in (change.added, change.deleted)])
        report["entity_names"] = _display_names(names[0], np.concatenate([shown.head, shown.tail]))
        report["relation_names"] = _display_names(names[1], shown.relation)
    if runtime is not None:
        # Numba and the kernels of questions, which no other diff needs.
        from dkge_dist.measure.changed_answers import End, changed_answers

        report["answers"] = changed_answers(store, runtime, (End(old, first), End(new, last)), change, examples)
    if out is not None:
        report["out"] = str(out)
        _write_changes(out, change, names)
    return {**report, "seconds": seconds_since(began)}


def _affected(
    store: Store,
    ends: tuple[SnapshotManifest, SnapshotManifest],
    change: Diff,
    names: Names,
    settings: Settings,
    examples: int,
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
        "affected_entity_examples": _most_changed(
            names[0],
            found.entities(),
            found.entities_by_context,
            [*_ends(change.added), *_ends(change.deleted)],
            examples,
        ),
        "affected_relation_examples": _most_changed(
            names[1],
            found.relations(),
            found.relations_by_context,
            [change.added.relation, change.deleted.relation],
            examples,
        ),
    }


def _ends(triples: Triples) -> tuple[Array, Array]:
    # A self loop is one triple of its entity.
    return triples.head, triples.tail[triples.tail != triples.head]


def _most_changed(names: Dictionary, rows: Array, by_context: Array, changed: list[Array], limit: int) -> list[Report]:
    """Affected objects that stand in most changed triples: who, in how many, and whether their context changed."""
    found, counts = np.unique(np.concatenate(changed), return_counts=True)
    place = np.searchsorted(found, rows)
    here = place < found.shape[0]
    here[here] = found[place[here]] == rows[here]
    triples = np.zeros(rows.shape[0], np.int64)
    triples[here] = counts[place[here]]
    first = np.argsort(-triples, kind="stable")[:limit]
    others = np.isin(rows[first], by_context).tolist()
    display_names = _display_names(names, rows[first])
    lines = zip(names.labels(rows[first]), triples[first].tolist(), others, strict=True)
    return [
        {
            names.noun: label,
            **({"name": display_names[label]} if label in display_names else {}),
            "changed_triples": count,
            "context_changed": other,
        }
        for label, count, other in lines
    ]


def _display_names(names: Dictionary, rows: Array) -> dict[str, str]:
    """The display names of some rows by their labels; those without are left out."""
    rows = distinct(rows)
    return {label: name for label, name in zip(names.labels(rows), names.names(rows), strict=True) if name is not None}


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
