"""Stores that several tests start from, copied for each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from tests.graphs import LEARN, dense, movies, write_tsv
from tests.store.nights import night, store_with_a_night
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


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with one snapshot, `base`, of 200 triples."""
    path = tmp_path / "store"
    api.ingest(path, write_tsv(tmp_path / "base.tsv", movies(200)))
    return path


@pytest.fixture(scope="session")
def with_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshot 1 with model 2, night 3 with model 4, night 5 with model 6."""
    store = tmp_path_factory.mktemp("history") / "store"
    api.ingest(store, write_tsv(store.parent / "base.tsv", dense()), valid=20, test=20)
    api.train(store, settings=LEARN)
    for number in (1, 2):
        night(store, number)
        api.update(store)
    return store


@pytest.fixture(scope="session")
def with_a_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshot 1 with model 2, and night 3 that no model has learnt yet."""
    return store_with_a_night(tmp_path_factory.mktemp("crashes"))
