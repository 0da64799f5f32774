"""Model versions: saved as parts, published on top of the head, compacted, checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from dkge_dist.graph.topology import Topology
from dkge_dist.records import CompactRecord, ModelRecord
from dkge_dist.store.manifest import (
    BaselineEntry,
    CurrentEntry,
    ListsEntry,
    Manifest,
    ModelEntry,
    ModelManifest,
    PartEntry,
    TableEntry,
    tables_of,
)
from dkge_dist.store.parts import open_part, save_bytes
from dkge_dist.store.storage import Staging, StoreError
from dkge_dist.store.store import NumberTakenError, Store
from dkge_dist.store.tables import block_rows, check_codes, load_table, save_delta, save_table
from dkge_dist.types import ROW, Array, Field, Split

Tables = dict[Field, TableEntry]
Deltas = dict[Field, list[PartEntry]]
"""By field: the parts that an update wrote, one for each writer, of rows that no other of them has."""
COMPACT_AFTER_NIGHTS = 32
COMPACT_AT_SHARE = 0.25
COMPACT_FROM_ROWS = 1024
"""Smaller tables are read at once, however large their deltas are. They must not become many, all the same."""


@dataclass(frozen=True)
class ModelMetadata:
    """What comes with a model: settings, the record of what made it, metrics by epoch.

    As arrays: evidence, the ranks of validation triples, and counts of relation paths. `baseline`: the training that an
    update is compared with.
    """

    settings: dict[str, Any]
    record: ModelRecord
    history: list[dict[str, Any]]
    evidence: dict[str, Array] | None = None
    validation: dict[str, Array] | None = None
    baseline: BaselineEntry | None = None
    paths: dict[str, Array] | None = None
    lists: ListsEntry | None = None


def save_model(
    staging: Staging, snapshot: int, tables: tuple[Tables, Tables], dense: dict[str, Array], about: ModelMetadata
) -> ModelEntry:
    """Write the rest of a model whose tables are written; `snapshot` is the version of what it was learnt from."""
    saved = save_arrays(staging, dense)
    told = _save_metadata(staging, about)
    return ModelEntry(snapshot=snapshot, parent=None, entities=tables[0], relations=tables[1], dense=saved, **told)


def save_arrays(staging: Staging, arrays: dict[str, Array]) -> PartEntry:
    """Write arrays by name."""
    compact = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save_bytes(staging, safetensors.numpy.save(compact), len(arrays))


def _save_metadata(staging: Staging, about: ModelMetadata) -> dict[str, Any]:
    lines = b"".join(json.dumps(line).encode() + b"\n" for line in about.history)
    arrays = {"evidence": about.evidence, "validation": about.validation, "paths": about.paths}
    saved = {name: save_arrays(staging, some) for name, some in arrays.items() if some is not None}
    told = {"settings": about.settings, "record": about.record, "baseline": about.baseline, "lists": about.lists}
    return {**told, "history": save_bytes(staging, lines, len(about.history)), **saved}


def save_update(
    staging: Staging,
    parent: ModelManifest,
    snapshot: int,
    rows: tuple[int, int],
    deltas: tuple[Deltas, Deltas],
    about: ModelMetadata,
) -> ModelEntry:
    """Write what an update changed; the rest is that of its parent. `rows` counts entities and relations now."""
    tables = []
    for count, before, changed in zip(rows, (parent.model.entities, parent.model.relations), deltas, strict=True):
        tables.append({field: _grown(staging, before[field], count, changed.get(field, [])) for field in Field})
    return ModelEntry(
        snapshot=snapshot,
        parent=parent.version,
        entities=tables[0],
        relations=tables[1],
        dense=parent.model.dense,
        updates=parent.model.updates + 1,
        **_save_metadata(staging, about),
    )


def _grown(staging: Staging, before: TableEntry, rows: int, written: list[PartEntry]) -> TableEntry:
    """A table with more deltas. New rows that none of them has are zeros; an empty delta marks a table that grew."""
    rows = max(rows, before.rows)
    if rows > before.rows and not written:
        written = [save_delta(staging, np.empty(0, ROW), np.empty((0, before.dim), np.float32))]
    return before.model_copy(update={"rows": rows, "deltas": [*before.deltas, *written]})


def wants_compaction(entry: ModelEntry) -> bool:
    """Have the deltas of a table become many, or large against it?"""
    return entry.updates >= COMPACT_AFTER_NIGHTS or any(
        sum(delta.rows for delta in table.deltas) > COMPACT_AT_SHARE * table.rows
        for table in tables_of(entry)
        if table.rows >= COMPACT_FROM_ROWS
    )


def save_compact(store: Store, staging: Staging, model: ModelManifest) -> ModelEntry:
    """Write the same model with its deltas folded into new bases; one table is in memory at a time.

    Everything is verified first, whatever the setting: what is damaged must not get new checksums.
    """
    entry = model.model
    folded = []
    for tables, block in ((entry.entities, model.block_rows), (entry.relations, None)):
        folded.append(
            {
                field: save_table(
                    staging,
                    load_table(store.storage, table, when="mapped"),
                    block or block_rows(table.rows),
                    coded=field is Field.JOINT,
                )
                for field, table in tables.items()
            }
        )
    record = CompactRecord(valid=entry.record.valid)
    changed = {"entities": folded[0], "relations": folded[1], "parent": model.version, "updates": 0, "record": record}
    return entry.model_copy(update=changed)


def is_trained_by_a_night(entry: ModelEntry) -> bool:
    """Did a night train a model from scratch? Only then is there a reason: what a user tries by hand needs none."""
    return entry.record.why is not None


class ModelReplacedError(StoreError):
    """Another model became current while this one was learnt from the one before."""


def publish_model(
    store: Store, entry: ModelEntry, seconds: float, instead_of: int | None = None, promoted: bool = True
) -> ModelManifest:
    """Make a saved model the next version, on top of whatever was published while it was learnt.

    A model that was updated from another replaces `instead_of`: the one that was current when the update began. What is
    current stays so unless the model is promoted.
    """
    while True:
        head = store.head()
        assert head is not None, "a snapshot was learnt, so there is a version"
        gone = [number for number in _stands_on(entry) if head.current.is_cleared(number)]
        if gone:
            raise StoreError(
                f"{store}: version {gone[0]}, which this model stands on, was cleared away meanwhile by "
                "`dkge gc`; nothing was changed"
            )
        if instead_of is not None and head.current.model != instead_of:
            raise ModelReplacedError(
                f"{store}: version {head.current.model} became current while version {instead_of} was being updated; "
                "nothing was changed"
            )
        current = _current_with(head, entry, promoted)
        manifest = ModelManifest(**store.following(head, seconds), current=current, model=entry)
        try:
            store.publish(manifest)
        except NumberTakenError:
            # Another version came in between. It does not touch what was learnt, which may be the work of days.
            continue
        return manifest


def _current_with(head: Manifest, entry: ModelEntry, promoted: bool) -> CurrentEntry:
    """What is current at the version on top of `head` that brings a model."""
    changed = {"model": head.version + 1} if promoted else {}
    if is_trained_by_a_night(entry):
        changed["trained"] = head.version + 1
    return head.current.model_copy(update=changed)


def _stands_on(entry: ModelEntry) -> list[int | None]:
    """Versions whose parts a model names, and no other version that is kept for it."""
    needed = [entry.snapshot, entry.parent]
    if entry.baseline is not None and entry.parent is not None and entry.baseline.version > entry.parent:
        # An older one is that of the parent, which names the same part.
        needed.append(entry.baseline.version)
    return needed


def load_arrays(store: Store, part: PartEntry) -> dict[str, Array]:
    """Arrays by name: dense parameters, evidence, ranks of validation triples, or counts of relation paths."""
    path, data = open_part(store.storage, part.part)
    try:
        tensors: dict[str, Array] = safetensors.numpy.load(data.tobytes())
    except (SafetensorError, ValueError, KeyError) as error:
        raise StoreError(f"part {path} is damaged: {error}") from None
    return tensors


DTYPES = {"I64": np.int64, "I32": np.int32, "U64": np.uint64}
"""Of arrays that are mapped, as their part names them."""


def map_arrays(store: Store, part: PartEntry) -> dict[str, Array]:
    """Flat arrays by name, verified, read-only and over the mapped part: they may be as large as the graph."""
    path, data = open_part(store.storage, part.part)
    try:
        begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header: dict[str, Any] = json.loads(data[8:begin].tobytes())
        return {
            name: data[begin + at["data_offsets"][0] : begin + at["data_offsets"][1]].view(DTYPES[at["dtype"]])
            for name, at in header.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"part {path} is damaged: {error!r}") from None


def check_model(store: Store, entry: ModelEntry) -> list[str]:
    """What is wrong with a model whose parts are all sound: shapes that do not fit, values that are not finite."""
    problems = []
    dims = {table.dim for tables in (entry.entities, entry.relations) for table in tables.values()}
    rows = [{table.rows for table in tables.values()} for tables in (entry.entities, entry.relations)]
    if len(dims) != 1 or any(len(counts) != 1 for counts in rows):
        problems.append("tables of different shapes")
    for noun, tables in (("entity", entry.entities), ("relation", entry.relations)):
        for field, table in tables.items():
            wrong = np.flatnonzero(~np.isfinite(load_table(store.storage, table)).all(1))
            if wrong.shape[0]:
                problems.append(f"{field} vector of {noun} row {wrong[0]} is not finite (and {len(wrong) - 1} others)")
            if table.codes is not None:
                problems += check_codes(store.storage, table)
    compared = entry.baseline.validation if entry.baseline is not None else None
    for part in (entry.dense, entry.evidence, entry.validation, entry.paths, compared):
        if part is not None:
            load_arrays(store, part)
    return problems + (_check_lists(store, entry, entry.lists) if entry.lists is not None else [])


def _check_lists(store: Store, entry: ModelEntry, lists: ListsEntry) -> list[str]:
    """Are they those of the base that the model stands on?"""
    manifest = store.snapshot_manifest(entry.snapshot)
    if store.base_of(manifest).train.digest != lists.base:
        return []
    base, arrays = store.snapshot(manifest).base, map_arrays(store, lists.part)
    for name, made in vars(Topology.of(base.splits[Split.TRAIN], base.entity_rows)).items():
        found = (arrays.get(f"{name}.indptr"), arrays.get(f"{name}.entries"))
        if not all(some is not None and np.array_equal(some, own) for some, own in zip(found, made[:2], strict=True)):
            return [f"part {lists.part.digest}: its {name} lists are not those of the snapshot"]
    return []
