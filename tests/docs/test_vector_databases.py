"""docs/vector-databases.md: a copy that was loaded and then synced as the guide says is a copy of the newer model."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from tests.docs.guides import blocks, run

GUIDE = "vector-databases.md"
BEFORE = 'import dkge_dist\ndkge_dist.rollback("store", 2)'
NIGHT = 'dkge_dist.rollback("store", 4)'
"""The model before the night is current while a copy is loaded, then that of the night."""

pytestmark = pytest.mark.usefixtures("one_thread")


def synced(folder: Path, section: str, save: str) -> None:
    """Run a section's blocks (load, sync, ask); `save` writes rows and vectors of the copy, and the answers."""
    load, sync, ask = blocks(GUIDE, section)
    run(folder, BEFORE, load, NIGHT, sync, ask, save)
    found = np.load(folder / "copy.npz", allow_pickle=False)
    report = dkge_dist.export(folder / "store", folder / "expected", format="npy", version=4)
    assert report["entities"] > 50
    labels = (folder / "expected" / "entities.json").read_text(encoding="utf-8")
    assert '"new1"' in labels and '"e7"' not in labels, "the night brought one and removed another"
    rows, values = (np.load(folder / "expected" / f"entities{name}.npy") for name in ("_rows", ""))
    order = np.argsort(found["rows"])
    assert found["rows"][order].tolist() == rows.tolist()
    assert np.array_equal(found["vectors"][order], values)
    distances = np.abs(values - found["question"]).sum(1)
    assert sorted(distances)[:10] == pytest.approx(found["distances"].tolist(), rel=1e-4)


@pytest.mark.skipif(find_spec("faiss") is None, reason="faiss-cpu is not installed: pip install 'dkge_dist[recipes]'")
def test_faiss(folder: Path) -> None:
    save = """
rows_there = faiss.vector_to_array(index.id_map)
np.savez("copy.npz", rows=rows_there, vectors=np.stack([index.reconstruct(int(row)) for row in rows_there]),
         question=index.reconstruct(head) + relation, distances=distances[0])
"""
    synced(folder, "faiss", save)


@pytest.mark.skipif(
    find_spec("qdrant_client") is None, reason="qdrant-client is not installed: pip install 'dkge_dist[recipes]'"
)
def test_qdrant_in_memory(folder: Path) -> None:
    save = """
import numpy as np
points, _ = client.scroll("entities", limit=10_000, with_vectors=True)
labels = dict(zip(*(pq.read_table("vectors/entities.parquet")[name].to_pylist() for name in ("row", "label"))))
assert all(labels.get(point.id, point.payload["label"]) == point.payload["label"] for point in points)
assert len(answers) == 10
np.savez("copy.npz", rows=[point.id for point in points], vectors=np.array([p.vector for p in points], np.float32),
         question=np.array(head.vector, np.float32) + np.array(relation, np.float32),
         distances=[abs(score) for _, score in answers])
"""
    synced(folder, "Qdrant", save)


@pytest.mark.skipif(
    find_spec("psycopg") is None or "DKGE_PGVECTOR" not in os.environ,
    reason="DKGE_PGVECTOR does not name an empty PostgreSQL database with pgvector, or psycopg is not installed",
)
def test_pgvector(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", os.environ["DKGE_PGVECTOR"])
    save = """
import json
import numpy as np
points = connection.execute("select row, vector::text from entities").fetchall()
vectors = {row: np.array(json.loads(text), np.float32) for row, text in points}
question = vectors[0] + np.array(relation, np.float32)
rows = dict(connection.execute("select label, row from entities").fetchall())
np.savez("copy.npz", rows=list(vectors), vectors=np.stack(list(vectors.values())), question=question,
         distances=[np.abs(vectors[rows[label]] - question).sum() for (label,) in nearest])
"""
    synced(folder, "PostgreSQL with pgvector", save)


def test_what_cannot_be_run_here_compiles() -> None:
    for section in ("faiss", "Qdrant", "PostgreSQL with pgvector"):
        found = blocks(GUIDE, section)
        assert len(found) == 3, "load, every night, ask"
        compile("\n".join(found), GUIDE, "exec")
