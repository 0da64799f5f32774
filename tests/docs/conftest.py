"""A folder with a store that has learnt a night, for the guides to work in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dkge_dist
from tests.jobs.building import ADDED, base_triples, ingest_night, trained_store, write_lines


@pytest.fixture(scope="session")
def learnt_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guides")
    store = trained_store(folder)
    # All triples of an entity, which leaves the graph with them.
    gone = ["\t".join(triple) for triple in base_triples() if "e7" in triple]
    ingest_night(folder / "n1.changes", store, [line for line in ADDED if "e7" not in line], gone)
    dkge_dist.update(store)
    return folder


@pytest.fixture
def folder(learnt_night: Path, tmp_path: Path) -> Path:
    """Of `store`, with model 2 of `base` and model 4 of a night that brings entities and removes one, and triples."""
    shutil.copytree(learnt_night / "store", tmp_path / "store")
    write_lines(tmp_path / "triples.tsv", ["\t".join(triple) for triple in base_triples() if "e7" not in triple])
    return tmp_path
