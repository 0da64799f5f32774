"""Vectors for other programs: Parquet, NumPy, safetensors or Zarr, in a folder that appears at once."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy

from dkge_dist.store.tables import VALUE, block_rows, zarr_metadata
from dkge_dist.types import Array, UsageError

Format = Literal["parquet", "npy", "safetensors", "zarr"]


class Vectors(NamedTuple):
    """Vectors of one kind of objects, with their permanent rows and their labels."""

    noun: str
    rows: Array
    labels: Sequence[str]
    values: Array


def write_vectors(out: Path, format: Format, vectors: Sequence[Vectors]) -> list[str]:
    """Write to the folder `out`, which must be new or empty; the names of the files."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: exists already; name a new or empty folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.parent / f".{out.name}.{secrets.token_hex(8)}"
    temporary.mkdir()
    try:
        WRITERS[format](temporary, vectors)
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(path.name for path in out.iterdir())


def _parquet(folder: Path, vectors: Sequence[Vectors]) -> None:
    for noun, rows, labels, values in vectors:
        flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1))
        columns = {
            "label": pa.array(labels, pa.large_string()),
            "row": pa.array(rows.astype(np.int32)),
            "vector": pa.FixedSizeListArray.from_arrays(flat, values.shape[1]),
        }
        pq.write_table(pa.table(columns), folder / f"{noun}.parquet")


def _npy(folder: Path, vectors: Sequence[Vectors]) -> None:
    for noun, _, labels, values in vectors:
        np.save(folder / f"{noun}.npy", values, allow_pickle=False)
        _labels(folder, noun, labels)


def _safetensors(folder: Path, vectors: Sequence[Vectors]) -> None:
    tensors = {v.noun: np.ascontiguousarray(v.values, np.float32) for v in vectors}
    safetensors.numpy.save_file(tensors, folder / "vectors.safetensors")
    for noun, _, labels, _ in vectors:
        _labels(folder, noun, labels)


def _zarr(folder: Path, vectors: Sequence[Vectors]) -> None:
    for noun, _, labels, values in vectors:
        block = block_rows(values.shape[0])
        chunks = folder / noun / "c"
        chunks.mkdir(parents=True)
        (folder / noun / "zarr.json").write_bytes(zarr_metadata(values.shape[0], values.shape[1], block, {}))
        for number, first in enumerate(range(0, values.shape[0], block)):
            chunk = np.zeros((block, values.shape[1]), VALUE)
            chunk[: values.shape[0] - first] = values[first : first + block]
            (chunks / str(number)).mkdir()
            (chunks / str(number) / "0").write_bytes(chunk.tobytes())
        _labels(folder, noun, labels)


def _labels(folder: Path, noun: str, labels: Sequence[str]) -> None:
    """As a JSON list, since labels may hold tabs and line ends."""
    (folder / f"{noun}.json").write_text(json.dumps(list(labels), ensure_ascii=False, indent=0), encoding="utf-8")


WRITERS = {"parquet": _parquet, "npy": _npy, "safetensors": _safetensors, "zarr": _zarr}
