"""Between values of the graph layer and parts on disk: dictionary segments, snapshot bases, diffs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dkge_dist.graph.dictionary import Segment
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Base, Degrees
from dkge_dist.kernels.labels import LabelTable, is_sound
from dkge_dist.kernels.rows import first_outside
from dkge_dist.kernels.triples import first_unsound
from dkge_dist.store.manifest import BaseEntry, ChangeEntry, PartEntry, SegmentEntry
from dkge_dist.store.parts import numbers_of, read_columns, read_numbers, save_columns
from dkge_dist.store.storage import Staging, Storage, StoreError
from dkge_dist.types import ROW, Array, Split, Triples

LABEL_TYPES = {"label": pa.large_string(), "digest": pa.uint64()}
SLOT_TYPES = {"slot": pa.uint32()}
TRIPLE_TYPES = {"head": pa.int32(), "relation": pa.int32(), "tail": pa.int32()}
DEGREE_TYPES = {"train": pa.int32(), "total": pa.int32()}
CHANGE_TYPES = {**TRIPLE_TYPES, "split": pa.int8(), "added": pa.int8()}
ROW_TYPES = {"row": pa.int32(), "group": pa.int8()}
ROW_GROUPS = [field.name for field in fields(Diff)[3:]]
"""What a changed row is, by its `group` number: emerging and removed entities, emerging and removed relations."""


class RowCounts(NamedTuple):
    """How many labels a version has: rows are below these."""

    entities: int
    relations: int


def save_segment(staging: Staging, segment: Segment) -> SegmentEntry:
    """Write a run of the dictionary."""
    data, offset, digest, slots = segment.table
    label = pa.LargeStringArray.from_buffers(
        segment.count, pa.py_buffer(np.ascontiguousarray(offset)), pa.py_buffer(np.ascontiguousarray(data))
    )
    return SegmentEntry(
        labels=save_columns(staging, {"label": label, "digest": digest}), slots=save_columns(staging, {"slot": slots})
    )


def load_segment(storage: Storage, entry: SegmentEntry, first_row: int) -> Segment:
    """Map a run of the dictionary. Checked: its slots lead to its rows, and its labels lie within their bytes."""
    label, digest = read_columns(storage, entry.labels, LABEL_TYPES)
    (slots,) = read_numbers(storage, entry.slots, SLOT_TYPES)
    if entry.slots.rows & (entry.slots.rows - 1) or entry.slots.rows <= entry.labels.rows:
        raise StoreError(f"{storage}: part {entry.slots.digest}: {entry.slots.rows} slots cannot be")
    labels = Labels.from_arrow(label)
    offset = np.append(labels.start[:1], labels.stop)
    table = LabelTable(labels.data, offset, numbers_of(digest), slots)
    if not is_sound(table):
        named = f"{entry.labels.digest} and {entry.slots.digest}"
        raise StoreError(f"{storage}: parts {named} are damaged: labels and the slots that find them do not fit")
    return Segment(first_row, table)


def save_base(staging: Staging, base: Base) -> BaseEntry:
    """Write a snapshot in full."""
    train, valid, test = (save_columns(staging, triples._asdict()) for triples in base.splits)
    degrees = [save_columns(staging, {"train": d.train, "total": d.total}) for d in (base.entities, base.relations)]
    return BaseEntry(train=train, valid=valid, test=test, entity_degrees=degrees[0], relation_degrees=degrees[1])


def load_base(storage: Storage, entry: BaseEntry, rows: RowCounts) -> Base:
    """Map a snapshot in full. Checked: it speaks of the rows that its dictionary has, and has degrees of."""
    known = RowCounts(min(rows.entities, entry.entity_degrees.rows), min(rows.relations, entry.relation_degrees.rows))

    def triples(part: PartEntry) -> Triples:
        found = Triples(*read_numbers(storage, part, TRIPLE_TYPES))
        _refuse_unsound(storage, part, found, known)
        return found

    def degrees(part: PartEntry, limit: int) -> Degrees:
        if part.rows > limit:
            raise StoreError(f"{storage}: part {part.digest} has degrees of {part.rows} rows, the dictionary {limit}")
        return Degrees(*read_numbers(storage, part, DEGREE_TYPES))

    splits = (triples(entry.train), triples(entry.valid), triples(entry.test))
    return Base(splits, degrees(entry.entity_degrees, rows.entities), degrees(entry.relation_degrees, rows.relations))


def _refuse_unsound(storage: Storage, part: PartEntry, triples: Triples, rows: RowCounts) -> None:
    """Kernels take rows and their order on trust."""
    place = first_unsound(triples, rows.entities, rows.relations)
    if place >= 0:
        raise StoreError(
            f"{storage}: part {part.digest} is damaged: triple {place} has rows that no label has, or is out of order"
        )


def save_change(staging: Staging, diff: Diff) -> ChangeEntry:
    """Write a diff."""
    sides = [(split, added) for split in Split for added in (1, 0)]
    triples = [diff.splits[split].added if added else diff.splits[split].deleted for split, added in sides]
    counts = [side.count for side in triples]
    columns: dict[str, Array] = {
        **Triples.concat(triples)._asdict(),
        "split": np.repeat(np.array([split for split, _ in sides], np.int8), counts),
        "added": np.repeat(np.array([added for _, added in sides], np.int8), counts),
    }
    groups: Sequence[Array] = [getattr(diff, name) for name in ROW_GROUPS]
    rows = {
        "row": np.concatenate(groups).astype(ROW),
        "group": np.repeat(np.arange(len(groups), dtype=np.int8), [len(group) for group in groups]),
    }
    return ChangeEntry(triples=save_columns(staging, columns), rows=save_columns(staging, rows))


def load_change(storage: Storage, entry: ChangeEntry, rows: RowCounts) -> Diff:
    """Read a diff. Checked: it speaks of the rows that its dictionary has."""
    *columns, split, added = read_numbers(storage, entry.triples, CHANGE_TYPES)
    triples = Triples(*columns)
    changes = [
        Change(triples.take((split == s) & (added == 1)), triples.take((split == s) & (added == 0))) for s in Split
    ]
    for side in (side for change in changes for side in (change.added, change.deleted)):
        _refuse_unsound(storage, entry.triples, side, rows)
    row, group = read_numbers(storage, entry.rows, ROW_TYPES)
    groups = [row[group == number] for number in range(len(ROW_GROUPS))]
    limits = (rows.entities, rows.entities, rows.relations, rows.relations)
    if any(first_outside(some, limit) >= 0 for some, limit in zip(groups, limits, strict=True)):
        raise StoreError(f"{storage}: part {entry.rows.digest} is damaged: it names rows that no label has")
    return Diff.of(changes, *groups)
