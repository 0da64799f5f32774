"""docs/vector-databases.md: a copy that was loaded and then synced as the guide says is a copy of the newer model."""

from __future__ import annotations

import json
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
    labels, relations = (
        json.loads((folder / "expected" / f"{kind}.json").read_text(encoding="utf-8"))
        for kind in ("entities", "relations")
    )
    assert "new1" in labels and "e7" not in labels, "the night brought one and removed another"
    rows, values = (np.load(folder / "expected" / f"entities{name}.npy") for name in ("_rows", ""))
    order = np.argsort(found["rows"])
    assert found["rows"][order].tolist() == rows.tolist()
    assert np.array_equal(found["vectors"][order], values)
    relation = np.load(folder / "expected" / "relations.npy")[relations.index("r0")]
    assert np.array_equal(found["relation"], relation)
    question = values[labels.index("e1")] + relation
    assert found["question"] == pytest.approx(question, rel=1e-5)
    assert found["distances"].tolist() == pytest.approx(sorted(np.abs(values - question).sum(1))[:10], rel=1e-4)


@pytest.mark.skipif(find_spec("faiss") is None, reason="faiss-cpu is not installed: pip install 'dkge_dist[recipes]'")
def test_faiss(folder: Path) -> None:
    save = """
there = faiss.vector_to_array(index.id_map)
np.savez("copy.npz", rows=there, vectors=np.stack([index.reconstruct(int(row)) for row in there]),
         relation=relations["r0"], question=question, distances=distances[0])
"""
    synced(folder, "faiss", save)


@pytest.mark.skipif(
    find_spec("qdrant_client") is None, reason="qdrant-client is not installed: pip install 'dkge_dist[recipes]'"
)
def test_qdrant_in_memory(folder: Path) -> None:
    save = """
import numpy as np
points, _ = client.scroll("entities", limit=10_000, with_vectors=True)
np.savez("copy.npz", rows=[point.id for point in points], vectors=np.array([p.vector for p in points], np.float32),
         relation=np.array(vector_of("relations", "r0"), np.float32), question=np.array(question, np.float32),
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
(relation,) = connection.execute("select vector::text from relations where label = 'r0'").fetchone()
np.savez("copy.npz", rows=[row for row, _ in points],
         vectors=np.array([json.loads(text) for _, text in points], np.float32),
         relation=np.array(json.loads(relation), np.float32), question=np.array(json.loads(question), np.float32),
         distances=[distance for _, distance in answers])
"""
    synced(folder, "PostgreSQL with pgvector", save)


def test_what_cannot_be_run_here_compiles() -> None:
    for section in ("faiss", "Qdrant", "PostgreSQL with pgvector"):
        found = blocks(GUIDE, section)
        assert len(found) == 3, "load, every night, ask"
        compile("\n".join(found), GUIDE, "exec")
