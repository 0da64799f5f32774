"""Vectors of a model, with their labels, for other programs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.jobs.opened import open_model
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.store.export import Format, TableRows, Vectors, write_vectors
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Field


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


def export(store: Store, out: Path, format: Format, version: str | None, field: Field) -> Report:
    """Write one field of all entities and relations of a model's snapshot to a new folder."""
    began = time.monotonic()
    opened = open_model(store, version)
    entry = opened.model.model
    kinds = (
        ("entities", entry.entities[field], opened.snapshot.entities_alive, opened.names[0]),
        ("relations", entry.relations[field], opened.snapshot.relations_alive, opened.names[1]),
    )
    vectors = []
    for noun, table, alive, names in kinds:
        rows = np.flatnonzero(alive)
        vectors.append(
            Vectors(noun, rows, names.labels(rows), TableRows(store.storage, table, rows), all_names(names, rows))
        )
    written = write_vectors(out, format, vectors)
    return {
        "out": str(out),
        "format": format,
        "what": field.value,
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
        **{v.noun: len(v.labels) for v in vectors},
        "dim": entry.entities[field].dim,
        "files": written,
        "seconds": seconds_since(began),
    }
