"""Dictionary segments, snapshot bases and diffs: what is saved is loaded, and misfits are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.graph.dictionary import Dictionary, Segment
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Base
from dkge_dist.store.graph_parts import (
    RowCounts,
    load_base,
    load_change,
    load_segment,
    save_base,
    save_change,
    save_segment,
)
from dkge_dist.store.storage import Storage, StoreError, open_storage
from dkge_dist.types import ROW, Split, Triples
from tests.graphs import ODD_LABELS


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


def segment_of(labels: list[str]) -> Segment:
    names = Dictionary()
    names.encode(Labels.from_strings(labels))
    (segment,) = names.grown
    return segment


def triples(*rows: tuple[int, int, int]) -> Triples:
    columns = np.array(rows, ROW).reshape(-1, 3).T
    return Triples(*(np.ascontiguousarray(column) for column in columns))


def same(one: Triples, other: Triples) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_segments(storage: Storage) -> None:
    with storage.staging() as staging:
        entry = save_segment(staging, segment_of(ODD_LABELS))
    assert entry.labels.rows == len(ODD_LABELS)
    names = Dictionary([load_segment(storage, entry, first_row=0)])
    assert names.labels(np.arange(len(names))) == ODD_LABELS
    assert np.array_equal(names.lookup(Labels.from_strings(ODD_LABELS)), np.arange(len(ODD_LABELS)))
    assert names.lookup(Labels.from_strings(["unknown"])).tolist() == [-1]


def test_rows_of_a_segment_start_where_the_one_before_ends(storage: Storage) -> None:
    with storage.staging() as staging:
        entries = [save_segment(staging, segment_of(labels)) for labels in (["a", "b", "c"], ["d"])]
    names = Dictionary([load_segment(storage, entry, first) for entry, first in zip(entries, (0, 3), strict=True)])
    assert names.labels(np.arange(4)) == ["a", "b", "c", "d"]
    assert names.lookup(Labels.from_strings(["d", "a"])).tolist() == [3, 0]


def test_slots_that_cannot_belong_to_the_labels_are_refused(storage: Storage) -> None:
    with storage.staging() as staging:
        many, few = (save_segment(staging, segment_of([f"{i}" for i in range(count)])) for count in (100, 1))
    with pytest.raises(StoreError, match=f"part .*{few.slots.digest}: .* slots cannot be"):
        load_segment(storage, many.model_copy(update={"slots": few.slots}), 0)


def test_bases(storage: Storage) -> None:
    splits = (triples((0, 0, 1), (2, 1, 0)), triples((1, 0, 1)), triples())
    base = Base.of(splits, 4, 2)
    with storage.staging() as staging:
        found = load_base(storage, save_base(staging, base), RowCounts(4, 2))
    assert all(same(one, other) for one, other in zip(found.splits, splits, strict=True))
    for mine, theirs in ((found.entities, base.entities), (found.relations, base.relations)):
        assert np.array_equal(mine.train, theirs.train)
        assert np.array_equal(mine.total, theirs.total)


def test_changes(storage: Storage) -> None:
    splits = [
        Change(triples((0, 0, 1)), triples((1, 1, 1), (2, 0, 0))),
        Change(triples(), triples()),
        Change(triples((5, 1, 2)), triples()),
    ]
    rows = [np.array(some, ROW) for some in ([7, 8], [1], [], [0])]
    diff = Diff.of(splits, *rows)
    with storage.staging() as staging:
        entry = save_change(staging, diff)
        empty = save_change(staging, Diff.none())
    assert (entry.triples.rows, entry.rows.rows) == (4, 4)
    found = load_change(storage, entry, RowCounts(9, 2))
    for split in Split:
        assert same(found.splits[split].added, splits[split].added)
        assert same(found.splits[split].deleted, splits[split].deleted)
    for field, expected in zip(fields(Diff)[3:], rows, strict=True):
        assert np.array_equal(getattr(found, field.name), expected)
    assert load_change(storage, empty, RowCounts(0, 0)).is_empty


@pytest.mark.parametrize("rows", [(2, 2), (3, 1), (0, 0)])
def test_bases_of_rows_that_no_label_has_are_refused(storage: Storage, rows: tuple[int, int]) -> None:
    """Written so, with the right checksums: kernels would read or write where nothing is."""
    base = Base.of((triples((0, 0, 1), (2, 1, 0)), triples(), triples()), 3, 2)
    with storage.staging() as staging:
        entry = save_base(staging, base)
    assert load_base(storage, entry, RowCounts(3, 2)).splits[Split.TRAIN].count == 2
    with pytest.raises(StoreError, match=f"part {entry.train.digest} .*rows that no label has"):
        load_base(storage, entry, RowCounts(*rows))


def test_degrees_of_rows_that_no_label_has_are_refused(storage: Storage) -> None:
    with storage.staging() as staging:
        entry = save_base(staging, Base.of((triples(), triples(), triples()), 7, 2))
    for rows, part in (((6, 2), entry.entity_degrees), ((7, 1), entry.relation_degrees)):
        with pytest.raises(StoreError, match=f"part {part.digest} has degrees of"):
            load_base(storage, entry, RowCounts(*rows))


def test_triples_out_of_order_are_refused(storage: Storage) -> None:
    with storage.staging() as staging:
        entry = save_base(staging, Base.of((triples((2, 1, 0), (0, 0, 1)), triples(), triples()), 3, 2))
    with pytest.raises(StoreError, match=f"part {entry.train.digest} .* out of order"):
        load_base(storage, entry, RowCounts(3, 2))


@pytest.mark.parametrize("rows", [([9], [], [], []), ([], [-1], [], []), ([], [], [2], []), ([], [], [], [2])])
def test_changes_of_rows_that_no_label_has_are_refused(storage: Storage, rows: tuple[list[int], ...]) -> None:
    diff = Diff.of([Change(triples(), triples())] * 3, *(np.array(some, ROW) for some in rows))
    with storage.staging() as staging:
        entry = save_change(staging, diff)
        triple = save_change(staging, Diff.of([Change(triples(), triples((8, 2, 0)))] + [Change.none()] * 2))
    with pytest.raises(StoreError, match=f"part {entry.rows.digest} is damaged: it names rows that no label has"):
        load_change(storage, entry, RowCounts(9, 2))
    with pytest.raises(StoreError, match=f"part {triple.triples.digest} is damaged: triple 0 has rows"):
        load_change(storage, triple, RowCounts(9, 2))


def harmed_slots(slots: np.ndarray) -> None:
    slots[np.flatnonzero(slots)[0]] ^= 1 << 30


def full_slots(slots: np.ndarray) -> None:
    """A search for a label that is not there would not end."""
    slots[:] = 1


def harmed_offset(offset: np.ndarray) -> None:
    offset[1] = 1 << 40


@pytest.mark.parametrize(
    ("column", "harm"), [("slots", harmed_slots), ("slots", full_slots), ("offset", harmed_offset)]
)
def test_segments_that_cannot_be_searched_are_refused(
    storage: Storage, column: str, harm: Callable[[np.ndarray], None]
) -> None:
    segment = segment_of(["a", "b", "c"])
    copied = getattr(segment.table, column).copy()
    harm(copied)
    with storage.staging() as staging:
        entry = save_segment(staging, Segment(0, segment.table._replace(**{column: copied})))
    with pytest.raises(StoreError, match=f"{entry.labels.digest} and {entry.slots.digest} are damaged"):
        load_segment(storage, entry, 0)


def test_missing_parts_are_named(storage: Storage) -> None:
    with storage.staging() as staging:
        entry = save_change(
            staging, Diff.of([Change(triples((0, 0, 1)), triples())] + [Change(triples(), triples())] * 2)
        )
    path = storage.part_path(entry.rows.part)
    path.unlink()
    with pytest.raises(StoreError, match=f"part {path} is missing"):
        load_change(storage, entry, RowCounts(9, 2))
