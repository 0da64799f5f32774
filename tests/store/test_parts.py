"""Dictionary segments, snapshot bases and diffs: what is saved is loaded, and misfits are refused by name."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import (
    HASH_TYPES,
    RUN_GROWTH,
    add_run,
    has_hashes,
    numbers_of,
    read_numbers,
    save_bytes,
    save_columns,
    versions_of,
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


TYPES = {"row": pa.int32(), "split": pa.int8()}


@pytest.fixture
def part(storage: Storage) -> PartEntry:
    with storage.staging() as staging:
        return save_columns(staging, {"row": np.arange(10, dtype=np.int32), "split": np.zeros(10, np.int8)})


@pytest.mark.parametrize("count", [0, 1, 10_000])
def test_numbers_come_back_read_only(storage: Storage, count: int) -> None:
    written = {"row": np.arange(count, dtype=np.int32)[::-1], "split": np.ones(count, np.int8)}
    with storage.staging() as staging:
        part = save_columns(staging, written)
    for column, expected in zip(read_numbers(storage, part, TYPES), written.values(), strict=True):
        assert np.array_equal(column, expected)
        assert column.dtype == expected.dtype
        assert not column.flags.writeable


@pytest.mark.parametrize(
    "types", [{"row": pa.int32()}, {**TYPES, "more": pa.int8()}, {"row": pa.int64(), "split": pa.int8()}]
)
def test_other_columns_are_refused(storage: Storage, part: PartEntry, types: dict[str, pa.DataType]) -> None:
    with pytest.raises(StoreError, match=f"part .*{part.digest} holds columns .* instead of"):
        read_numbers(storage, part, types)


def test_another_number_of_rows_is_refused(storage: Storage, part: PartEntry) -> None:
    with pytest.raises(StoreError, match=f"part .*{part.digest} has 10 rows instead of 9"):
        read_numbers(storage, part.model_copy(update={"rows": 9}), TYPES)


@pytest.mark.parametrize("data", [b"", b"ARROW1", bytes(1000)])
def test_files_that_are_no_columns_are_refused(storage: Storage, data: bytes) -> None:
    with storage.staging() as staging:
        part = save_bytes(staging, data, 10)
    with pytest.raises(StoreError, match=f"part .*{part.digest} is damaged"):
        read_numbers(storage, part, TYPES)


def test_several_batches_are_refused(storage: Storage, tmp_path: Path) -> None:
    batch = pa.record_batch([pa.array([1], pa.int32()), pa.array([0], pa.int8())], names=list(TYPES))
    with pa.OSFile(str(tmp_path / "file"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    with storage.staging() as staging:
        part = save_bytes(staging, (tmp_path / "file").read_bytes(), 1)
    with pytest.raises(StoreError, match="holds columns"):
        read_numbers(storage, part, TYPES)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint64, np.int64, np.float32, np.uint8])
def test_numbers_of_a_column_and_of_a_slice_of_one(dtype: type) -> None:
    column = pa.array(np.arange(9).astype(dtype))
    assert numbers_of(column).dtype == dtype
    assert numbers_of(column).tolist() == list(range(9))
    assert numbers_of(column[2:5]).tolist() == [2, 3, 4]
    assert numbers_of(column[:0]).tolist() == []
    assert not numbers_of(column).flags.writeable


def test_a_column_with_nulls_holds_no_numbers() -> None:
    with pytest.raises(StoreError, match="1 nulls"):
        numbers_of(pa.array([1, None, 3], pa.int32()))


def test_reading_does_not_import_pandas(storage: Storage) -> None:
    """It would take as long as answering a question."""
    with storage.staging() as staging:
        part = save_columns(staging, {"row": np.arange(4, dtype=np.int32), "split": np.zeros(4, np.int8)})
    code = (
        "import sys, pyarrow as pa; from dkge_dist.store.parts import read_numbers; "
        "from dkge_dist.store.manifest import PartEntry; from dkge_dist.store.storage import open_storage\n"
        f"part = PartEntry.model_validate_json({part.model_dump_json()!r})\n"
        f"columns = read_numbers(open_storage({str(storage)!r}), part, {{'row': pa.int32(), 'split': pa.int8()}})\n"
        "print(columns[0].sum(), 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["6", "False"]


HASH = st.one_of(st.integers(0, 20), st.integers(2**64 - 3, 2**64 - 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(nights=st.lists(st.lists(HASH, max_size=12), max_size=12), asked=st.lists(HASH, max_size=20))
def test_hashes_are_found_as_in_a_set(storage: Storage, nights: list[list[int]], asked: list[int]) -> None:
    runs: list[PartEntry] = []
    known: set[int] = set()
    with storage.staging() as staging:
        for night in nights:
            runs = add_run(staging, runs, {"hash": np.array(night, np.uint64)})
            known |= set(night)
            sizes = [run.rows for run in runs]
            assert all(longer >= RUN_GROWTH * shorter for longer, shorter in itertools.pairwise(sizes))
    found = has_hashes([read_numbers(storage, run, HASH_TYPES)[0] for run in runs], np.array(asked, np.uint64))
    assert found.tolist() == [one in known for one in asked]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(nights=st.lists(st.lists(st.tuples(HASH, st.integers(1, 9)), max_size=12), max_size=12), asked=HASH)
def test_versions_are_found_as_in_a_dictionary(
    storage: Storage, nights: list[list[tuple[int, int]]], asked: int
) -> None:
    runs: list[PartEntry] = []
    known: set[tuple[int, int]] = set()
    with storage.staging() as staging:
        for night in nights:
            hashes, versions = zip(*night, strict=True) if night else ((), ())
            columns = {"hash": np.array(hashes, np.uint64), "version": np.array(versions, np.int64)}
            runs = add_run(staging, runs, columns)
            known |= set(night)
    assert set(versions_of(storage, runs, asked)) == {version for one, version in known if one == asked}


def test_what_was_written_is_rarely_written_again(tmp_path: Path) -> None:
    """Of two hundred nights of the same size, each hash is written about ten times."""
    storage = open_storage(tmp_path)
    runs: list[PartEntry] = []
    rows = 0
    with storage.staging() as staging:
        for night in range(200):
            before = runs
            runs = add_run(staging, runs, {"hash": np.arange(5 * night, 5 * night + 5, dtype=np.uint64)})
            rows += sum(run.rows for run in runs if run not in before)
            assert len(runs) <= 5
    assert rows <= 5 * 200 * 12
