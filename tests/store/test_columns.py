"""Columns of a part: what is written is mapped, and files of other columns are refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import numbers_of, read_columns, read_numbers, save_bytes, save_columns
from dkge_dist.store.storage import Storage, StoreError, open_storage

TYPES = {"row": pa.int32(), "split": pa.int8()}


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path)


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


def test_labels_come_back(storage: Storage) -> None:
    labels = pa.array(["", "é", "a\tb\n", "x" * 10_000], pa.large_string())
    with storage.staging() as staging:
        part = save_columns(staging, {"label": labels})
    (found,) = read_columns(storage, part, {"label": pa.large_string()})
    assert found.equals(labels)


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
