"""Vectors of a model, with their labels, for other programs: all of them, or what changed since an earlier model.

Parquet, NumPy, safetensors or Zarr, in a folder that appears at once. Beside every vector stand its label and its
permanent row: Parquet has them as columns; the others have rows as an array `entities_rows` and labels as a JSON list.
What a copy is to delete has the same without vectors, as `deleted_entities`.

Vectors are read and written some thousand rows at a time, so that a table never has to fit into memory (safetensors is
the exception: its files are written in one go).
"""

from __future__ import annotations

import json
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy

from dkge_dist.ask.model import Model, open_model
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.kernels.sets import distinct
from dkge_dist.store.manifest import ModelManifest, TableEntry
from dkge_dist.store.store import Store
from dkge_dist.store.tables import VALUE, StoredTable, block_rows, differing, may_differ
from dkge_dist.types import Array, DkgeError, Field, Report, UsageError, seconds_since

Format = Literal["parquet", "npy", "safetensors", "zarr"]
RUN_ROWS = 16_384


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


class TableRows:
    """Some rows (ascending) of a stored table. Only what the slice that is asked for needs is read."""

    def __init__(self, table: StoredTable, rows: Array) -> None:
        self._table, self._rows = table, rows
        self.shape = (rows.shape[0], table.entry.dim)

    def __getitem__(self, wanted: slice, /) -> Array:
        return self._table.take(self._rows[wanted])


class LabelledRows(NamedTuple):
    """Objects of one kind without vectors: what a copy is to delete."""

    noun: str
    rows: Array
    labels: Sequence[str]


class Vectors(NamedTuple):
    """Vectors of one kind of objects, with their permanent rows, their labels, and display names if there are any."""

    noun: str
    rows: Array
    labels: Sequence[str]
    values: TableRows | Array
    names: Sequence[str | None] | None = None

    def runs(self, length: int = RUN_ROWS) -> Iterator[slice]:
        """Where one run of rows after the other is."""
        return (slice(first, first + length) for first in range(0, len(self.rows), length))


def write_vectors(
    out: Path, format: Format, vectors: Sequence[Vectors], deleted: Sequence[LabelledRows] = ()
) -> list[str]:
    """Write to the folder `out`, which must be new or empty; the names of the files."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: exists already; name a new or empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.parent / f".{out.name}.{secrets.token_hex(8)}"
    temporary.mkdir()
    try:
        WRITERS[format](temporary, vectors, deleted)
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(path.name for path in out.iterdir())


def _parquet(folder: Path, vectors: Sequence[Vectors], deleted: Sequence[LabelledRows]) -> None:
    labelled = {"label": pa.large_string(), "row": pa.int32()}
    for some in vectors:
        dim = some.values.shape[1]
        types = {**labelled, "vector": pa.list_(pa.float32(), dim)}
        if some.names is not None:
            types["name"] = pa.large_string()
        schema = pa.schema(types.items())
        with pq.ParquetWriter(folder / f"{some.noun}.parquet", schema) as writer:
            for run in some.runs():
                flat = pa.array(np.ascontiguousarray(some.values[run], np.float32).reshape(-1))
                vector = pa.FixedSizeListArray.from_arrays(flat, dim)
                columns = {"label": some.labels[run], "row": some.rows[run].astype(np.int32), "vector": vector}
                if some.names is not None:
                    columns["name"] = some.names[run]
                writer.write_table(pa.table(columns, schema))
    for gone in deleted:
        columns = {"label": gone.labels, "row": gone.rows.astype(np.int32)}
        pq.write_table(pa.table(columns, pa.schema(labelled.items())), folder / f"{gone.noun}.parquet")


def _npy(folder: Path, vectors: Sequence[Vectors], deleted: Sequence[LabelledRows]) -> None:
    for some in vectors:
        into = np.lib.format.open_memmap(folder / f"{some.noun}.npy", "w+", VALUE, some.values.shape)
        for run in some.runs():
            into[run] = some.values[run]
        into.flush()
    for name, rows in _rows(vectors, deleted).items():
        np.save(folder / f"{name}.npy", rows, allow_pickle=False)
    _labels(folder, vectors, deleted)


def _safetensors(folder: Path, vectors: Sequence[Vectors], deleted: Sequence[LabelledRows]) -> None:
    tensors = {some.noun: np.ascontiguousarray(some.values[:], np.float32) for some in vectors}
    safetensors.numpy.save_file({**tensors, **_rows(vectors, deleted)}, folder / "vectors.safetensors")
    _labels(folder, vectors, deleted)


def _zarr(folder: Path, vectors: Sequence[Vectors], deleted: Sequence[LabelledRows]) -> None:
    """A group with an array for each kind, uncompressed: random bits of vectors do not get smaller."""
    import zarr  # Here, because it takes most of a second that other formats need not wait for.

    group = zarr.create_group(folder, zarr_format=3)
    for some in vectors:
        rows, dim = some.values.shape
        block = block_rows(rows)
        array = group.create_array(
            some.noun, shape=(rows, dim), chunks=(block, dim), dtype=VALUE, compressors=None, fill_value=0.0
        )
        for run in some.runs(block):
            array[run] = some.values[run]
    for name, numbers in _rows(vectors, deleted).items():
        group.create_array(name, data=numbers, chunks=(max(1, len(numbers)),), compressors=None)
    _labels(folder, vectors, deleted)


def _rows(vectors: Sequence[Vectors], deleted: Sequence[LabelledRows]) -> dict[str, Array]:
    """The permanent rows of every kind, by the name that they have beside its vectors."""
    every: list[Vectors | LabelledRows] = [*vectors, *deleted]
    return {f"{some.noun}_rows": some.rows.astype(np.int32) for some in every}


def _labels(folder: Path, vectors: Sequence[Vectors], deleted: Sequence[LabelledRows]) -> None:
    """As JSON lists, since labels may hold tabs and line ends; display names as further ones, null for none."""
    every: list[Vectors | LabelledRows] = [*vectors, *deleted]
    lists: dict[str, Sequence[str | None]] = {some.noun: some.labels for some in every}
    lists |= {f"{some.noun}-names": some.names for some in vectors if some.names is not None}
    for name, values in lists.items():
        text = json.dumps(list(values), ensure_ascii=False, indent=0)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


WRITERS = {"parquet": _parquet, "npy": _npy, "safetensors": _safetensors, "zarr": _zarr}
