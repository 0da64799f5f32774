"""Vectors of a model, with their labels, for other programs: all of them, or what changed since an earlier model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dkge_dist.ask.model import Model, open_model
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.kernels.sets import distinct
from dkge_dist.store.export import Format, LabelledRows, TableRows, Vectors, write_vectors
from dkge_dist.store.manifest import ModelManifest, TableEntry
from dkge_dist.store.store import Store
from dkge_dist.store.tables import StoredTable, differing, may_differ
from dkge_dist.types import Array, DkgeError, Field


def export(store: Store, out: Path, format: Format, version: str | None, field: Field) -> Report:
    """Write one field of all entities and relations of a model's snapshot to a new folder."""
    began = time.monotonic()
    opened = open_model(store, version)
    entry = opened.entry
    kinds = (
        ("entities", entry.entities[field], opened.snapshot.entities_alive, opened.names[0]),
        ("relations", entry.relations[field], opened.snapshot.relations_alive, opened.names[1]),
    )
    vectors = []
    for noun, table, alive, names in kinds:
        rows = np.flatnonzero(alive)
        vectors.append(_vectors(noun, StoredTable(store.storage, table), rows, names))
    written = write_vectors(out, format, vectors)
    counts = {some.noun: len(some.labels) for some in vectors}
    return _report(opened, out, format, field, counts, written, began)


def export_changes(store: Store, out: Path, format: Format, version: str | None, since: str, field: Field) -> Report:
    """Write what a copy of the vectors of the model `since` has to upsert and to delete to become that of `version`.

    Upserted are objects that were not there and those whose vectors differ in any bit, deleted are objects that are no
    longer there. Either of the two models may be the later one.
    """
    began = time.monotonic()
    before = store.find_model(since)
    opened = open_model(store, version)
    _refuse_other_dimension(store, before, opened.manifest, field)
    old, new = before.model, opened.entry
    snapshots = store.snapshot_manifest(old.snapshot), store.snapshot_manifest(new.snapshot)
    diff = store.diff(*snapshots)
    # The later of the two snapshots knows all labels: also those that an earlier one did not have yet.
    names = opened.names if snapshots[1].version >= snapshots[0].version else store.dictionaries(snapshots[0])
    snapshot = opened.snapshot
    kinds = (
        ("entities", old.entities, new.entities, snapshot.entities_alive, diff.emerging_entities),
        ("relations", old.relations, new.relations, snapshot.relations_alive, diff.emerging_relations),
    )
    upserted: list[Vectors] = []
    for (noun, earlier, later, alive, emerging), known in zip(kinds, names, strict=True):
        table = StoredTable(store.storage, later[field])
        rows = distinct(emerging, _moved(store, earlier[field], table, alive, emerging))
        upserted.append(_vectors(noun, table, rows, known))
    deleted = [
        LabelledRows("deleted_entities", diff.removed_entities, names[0].labels(diff.removed_entities)),
        LabelledRows("deleted_relations", diff.removed_relations, names[1].labels(diff.removed_relations)),
    ]
    written = write_vectors(out, format, upserted, deleted)
    counts = {
        "since": before.version,
        "since_snapshot": snapshots[0].snapshot.name,
        **{f"upserted_{some.noun}": len(some.labels) for some in upserted},
        **{some.noun: len(some.labels) for some in deleted},
    }
    return _report(opened, out, format, field, counts, written, began)


def _refuse_other_dimension(store: Store, old: ModelManifest, new: ModelManifest, field: Field) -> None:
    dims = [manifest.model.entities[field].dim for manifest in (old, new)]
    if dims[0] != dims[1]:
        raise DkgeError(
            f"{store}: version {new.version} has vectors of dimension {dims[1]}, version {old.version} of {dims[0]}: "
            "a copy cannot be brought from one to the other; export all vectors, without --since"
        )


def _moved(store: Store, earlier: TableEntry, table: StoredTable, alive: Array, emerging: Array) -> Array:
    """Rows that are alive under both models, with other vectors; `alive` now, and `emerging` since the earlier."""
    before = StoredTable(store.storage, earlier)
    rows = may_differ(before, table)
    rows = rows[: np.searchsorted(rows, alive.shape[0])]
    rows = rows[alive[rows]]
    return differing(before, table, rows[~np.isin(rows, emerging, assume_unique=True)])


def _vectors(noun: str, table: StoredTable, rows: Array, names: Dictionary) -> Vectors:
    return Vectors(noun, rows, names.labels(rows), TableRows(table, rows), all_names(names, rows))


def all_names(names: Dictionary, rows: Array) -> list[str | None] | None:
    """The display names of many rows, ascending; None if nothing has one."""
    if names.display_names is None:
        return None
    table = names.display_names.table()
    here = table.take(np.isin(table.rows, rows))
    found: list[str | None] = [None] * len(rows)
    for place, name in zip(np.searchsorted(rows, here.rows).tolist(), here.names, strict=True):
        found[place] = name
    return found


def _report(
    opened: Model, out: Path, format: Format, field: Field, counts: Report, written: Sequence[str], began: float
) -> Report:
    return {
        "out": str(out),
        "format": format,
        "what": field.value,
        "version": opened.version,
        "snapshot": opened.snapshot_name,
        **counts,
        "dim": opened.entry.entities[field].dim,
        "files": [*written],
        "seconds": seconds_since(began),
    }
