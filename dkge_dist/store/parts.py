"""Between values of the graph layer and parts on disk: dictionary segments, snapshot bases, diffs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
import pyarrow as pa

from dkge_dist.graph.dictionary import Segment
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Base, Degrees
from dkge_dist.kernels.labels import LabelTable
from dkge_dist.store.columns import numbers_of, read_columns, read_numbers, write_columns
from dkge_dist.store.manifest import BaseEntry, ChangeEntry, PartEntry, SegmentEntry
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


def add_part(staging: Staging, columns: Mapping[str, Array | pa.Array]) -> PartEntry:
    """Write columns as a durable part."""
    part = staging.add(lambda path: write_columns(path, columns))
    return PartEntry(digest=part.digest, size=part.size, rows=len(next(iter(columns.values()))))


def save_segment(staging: Staging, segment: Segment) -> SegmentEntry:
    """Write a run of the dictionary."""
    data, offset, digest, slots = segment.table
    label = pa.LargeStringArray.from_buffers(
        segment.count, pa.py_buffer(np.ascontiguousarray(offset)), pa.py_buffer(np.ascontiguousarray(data))
    )
    return SegmentEntry(
        labels=add_part(staging, {"label": label, "digest": digest}), slots=add_part(staging, {"slot": slots})
    )


def load_segment(storage: Storage, entry: SegmentEntry, first_row: int) -> Segment:
    """Map a run of the dictionary."""
    path = storage.part_path(entry.labels.part)
    label, digest = read_columns(path, LABEL_TYPES, entry.labels.rows)
    (slots,) = read_numbers(storage.part_path(entry.slots.part), SLOT_TYPES, entry.slots.rows)
    if entry.slots.rows & (entry.slots.rows - 1) or entry.slots.rows <= entry.labels.rows:
        raise StoreError(f"part {storage.part_path(entry.slots.part)}: {entry.slots.rows} slots cannot be")
    labels = Labels.from_arrow(label)
    offset = np.append(labels.start[:1], labels.stop)
    return Segment(first_row, LabelTable(labels.data, offset, numbers_of(digest), slots))


def save_base(staging: Staging, base: Base) -> BaseEntry:
    """Write a snapshot in full."""
    train, valid, test = (add_part(staging, triples._asdict()) for triples in base.splits)
    degrees = [add_part(staging, {"train": d.train, "total": d.total}) for d in (base.entities, base.relations)]
    return BaseEntry(train=train, valid=valid, test=test, entity_degrees=degrees[0], relation_degrees=degrees[1])


def load_base(storage: Storage, entry: BaseEntry) -> Base:
    """Map a snapshot in full."""

    def triples(part: PartEntry) -> Triples:
        return Triples(*read_numbers(storage.part_path(part.part), TRIPLE_TYPES, part.rows))

    def degrees(part: PartEntry) -> Degrees:
        return Degrees(*read_numbers(storage.part_path(part.part), DEGREE_TYPES, part.rows))

    splits = (triples(entry.train), triples(entry.valid), triples(entry.test))
    return Base(splits, degrees(entry.entity_degrees), degrees(entry.relation_degrees))


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
    return ChangeEntry(triples=add_part(staging, columns), rows=add_part(staging, rows))


def load_change(storage: Storage, entry: ChangeEntry) -> Diff:
    """Read a diff."""
    path = storage.part_path(entry.triples.part)
    *columns, split, added = read_numbers(path, CHANGE_TYPES, entry.triples.rows)
    triples = Triples(*columns)
    changes = [
        Change(triples.take((split == s) & (added == 1)), triples.take((split == s) & (added == 0))) for s in Split
    ]
    row, group = read_numbers(storage.part_path(entry.rows.part), ROW_TYPES, entry.rows.rows)
    return Diff.of(changes, *(row[group == number] for number in range(len(ROW_GROUPS))))
