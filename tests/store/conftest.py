"""Stores that several tests start from, copied for each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dkge_dist import api
from tests.graphs import movies, write_tsv
from tests.store.small_models import publish


@pytest.fixture(scope="session")
def with_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    api.ingest(folder / "store", write_tsv(folder / "base.tsv", movies(60)), name="first", valid=4, test=4)
    return folder / "store"


@pytest.fixture(scope="session")
def with_model(with_graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Path(shutil.copytree(with_graph, tmp_path_factory.mktemp("model") / "store"))
    publish(store)
    return store


@pytest.fixture
def graph(with_graph: Path, tmp_path: Path) -> Path:
    """A store with one snapshot, `first`."""
    return Path(shutil.copytree(with_graph, tmp_path / "store"))


@pytest.fixture
def model(with_model: Path, tmp_path: Path) -> Path:
    """A store with a snapshot, `first`, and version 2, a model of it."""
    return Path(shutil.copytree(with_model, tmp_path / "store"))
