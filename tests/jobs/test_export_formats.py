"""Vectors for other programs: every format gives back what was exported, and tables are read run by run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import zarr

from dkge_dist.jobs.export import RUN_ROWS, Format, LabelledRows, TableRows, Vectors, write_vectors
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import BlockIndex, StoredTable, save_delta, save_table
from dkge_dist.types import UsageError

FORMATS: list[Format] = ["parquet", "npy", "safetensors", "zarr"]
DIM = 3


def some_vectors(noun: str, count: int) -> Vectors:
    rng = np.random.default_rng(count)
    rows = np.sort(rng.choice(2 * count + 1, count, replace=False))
    values = rng.normal(size=(count, DIM)).astype(np.float32)
    return Vectors(noun, rows, [f"a\tb\nc{row}é" for row in rows], values)


def read_back(out: Path, format: Format, noun: str) -> tuple[list[str], np.ndarray]:
    if format == "parquet":
        table = pq.read_table(out / f"{noun}.parquet")
        return table["label"].to_pylist(), np.array(table["vector"].to_pylist(), np.float32).reshape(-1, DIM)
    labels = json.loads((out / f"{noun}.json").read_text(encoding="utf-8"))
    if format == "npy":
        return labels, np.load(out / f"{noun}.npy", allow_pickle=False)
    if format == "safetensors":
        return labels, safetensors.numpy.load_file(out / "vectors.safetensors")[noun]
    return labels, zarr.open_array(out / noun, mode="r")[:]  # type: ignore[return-value]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [1, 1000, 2 * RUN_ROWS + 7])
def test_what_is_exported_is_read_back(tmp_path: Path, format: Format, count: int) -> None:
    vectors = [some_vectors("entities", count), some_vectors("relations", 5)]
    files = write_vectors(tmp_path / "new" / "out", format, vectors)
    assert files == sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"], "nothing unfinished"
    for some in vectors:
        labels, values = read_back(tmp_path / "new" / "out", format, some.noun)
        assert labels == some.labels
        assert values.dtype == np.float32
        assert np.array_equal(values, some.values)


def rows_of(out: Path, format: Format, noun: str) -> np.ndarray:
    if format == "parquet":
        return pq.read_table(out / f"{noun}.parquet")["row"].to_numpy()
    if format == "npy":
        return np.load(out / f"{noun}_rows.npy", allow_pickle=False)
    if format == "safetensors":
        return safetensors.numpy.load_file(out / "vectors.safetensors")[f"{noun}_rows"]
    return zarr.open_array(out / f"{noun}_rows", mode="r")[:]  # type: ignore[return-value]


@pytest.mark.parametrize("format", FORMATS)
def test_rows_stand_beside_vectors(tmp_path: Path, format: Format) -> None:
    some = some_vectors("entities", 20_000)
    write_vectors(tmp_path / "out", format, [some])
    found = rows_of(tmp_path / "out", format, "entities")
    assert found.dtype == np.int32
    assert found.tolist() == some.rows.tolist()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("count", [0, 3])
def test_what_is_to_be_deleted_has_rows_and_labels(tmp_path: Path, format: Format, count: int) -> None:
    upserted = some_vectors("entities", 0)
    deleted = LabelledRows("deleted_entities", np.arange(count, dtype=np.int32) + 7, ["a\tb", "é", "c\nd"][:count])
    write_vectors(tmp_path / "out", format, [upserted], [deleted])
    assert rows_of(tmp_path / "out", format, "deleted_entities").tolist() == deleted.rows.tolist()
    labels, values = read_back(tmp_path / "out", format, "entities")
    assert (labels, values.shape) == ([], (0, DIM)), "nothing to upsert is no error"
    if format == "parquet":
        found = pq.read_table(tmp_path / "out" / "deleted_entities.parquet")["label"].to_pylist()
    else:
        found = json.loads((tmp_path / "out" / "deleted_entities.json").read_text(encoding="utf-8"))
    assert found == deleted.labels


def test_zarr_is_a_group_in_chunks(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((1000, DIM), np.float32)
    write_vectors(tmp_path / "out", "zarr", [Vectors("entities", np.arange(1000), [""] * 1000, values)])
    group = zarr.open_group(tmp_path / "out", mode="r", zarr_format=3)
    array = group["entities"]
    assert isinstance(array, zarr.Array)
    assert (array.shape, array.chunks, array.compressors) == ((1000, DIM), (64, DIM), ())
    assert np.array_equal(array[:], values)


class Watched:
    """Vectors that count how many rows of them are asked for at once."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self.shape, self.most = values, values.shape, 0

    def __getitem__(self, rows: slice, /) -> np.ndarray:
        found = self.values[rows]
        self.most = max(self.most, found.shape[0])
        return found


@pytest.mark.parametrize("format", ["parquet", "npy", "zarr"])
def test_no_more_than_a_run_is_in_memory(tmp_path: Path, format: Format) -> None:
    some = some_vectors("entities", 3 * RUN_ROWS)
    watched = Watched(some.values[:])
    write_vectors(tmp_path / "out", format, [some._replace(values=watched)])
    assert 0 < watched.most <= RUN_ROWS
    assert np.array_equal(read_back(tmp_path / "out", format, "entities")[1], watched.values)


def test_rows_of_a_table_are_read_by_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(tmp_path)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1000, DIM)).astype(np.float32)
    with storage.staging() as staging:
        entry = save_table(staging, values, 64)
        values[[3, 700]] = 7
        entry = entry.model_copy(update={"deltas": [save_delta(staging, np.array([3, 700]), values[[3, 700]])]})
    alive = np.sort(rng.choice(1000, 600, replace=False))
    rows = TableRows(StoredTable(storage, entry), alive)
    assert rows.shape == (600, DIM)
    assert np.array_equal(rows[:], values[alive])
    for some in (slice(0, 64), slice(590, 700), slice(5, 5), slice(100, 101)):
        assert np.array_equal(rows[some], values[alive][some])
    asked: list[int] = []
    real = BlockIndex.map

    def watched(self: Any, number: int) -> np.ndarray:
        asked.append(number)
        return real(self, number)

    monkeypatch.setattr(BlockIndex, "map", watched)
    found = rows[200:210]
    assert asked == sorted({row // 64 for row in alive[200:210]})
    assert np.array_equal(found, values[alive[200:210]])


@pytest.mark.parametrize("format", FORMATS)
def test_export_that_fails_leaves_nothing(tmp_path: Path, format: Format) -> None:
    class Broken(Watched):
        def __getitem__(self, rows: slice, /) -> np.ndarray:
            raise OSError(28, "No space left on device")

    some = some_vectors("entities", 10)
    with pytest.raises(OSError, match="No space left"):
        write_vectors(tmp_path / "out", format, [some._replace(values=Broken(some.values[:]))])
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for out in (tmp_path, tmp_path / "file"):
        with pytest.raises(UsageError, match=f"{out}: exists already; name a new or empty folder"):
            write_vectors(out, "npy", [some_vectors("entities", 1)])
    (tmp_path / "empty").mkdir()
    write_vectors(tmp_path / "empty", "npy", [some_vectors("entities", 1)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_zarr_is_imported_only_when_it_is_used() -> None:
    script = "import sys, dkge_dist.jobs.export, dkge_dist.surfaces.api; sys.exit('zarr' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode == 0
