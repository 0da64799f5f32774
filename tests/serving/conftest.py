"""A store with a model, two nights and display names, and a server over it that tests only read from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import dkge_dist
from tests.jobs.building import ADDED, some_train, trained_store, write_lines, write_night
from tests.serving.running import Server


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def served_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshot `base` 1 with model 2; names in version 3; night 4 with model 5."""
    folder = tmp_path_factory.mktemp("served")
    store = trained_store(folder)
    names = ["e4\tThe Harbour", "e5\tThe Harbour Master", "e9\tÄrger im Hafen", "e10\tStraße", "r2\tdirected by"]
    dkge_dist.ingest(store, write_lines(folder / "names.labels", names), format="labels")
    dkge_dist.ingest(store, write_night(folder / "night1.changes", ADDED, some_train(store, 3)))
    dkge_dist.update(store)
    return store


@pytest.fixture
def store(served_store: Path, tmp_path: Path) -> Path:
    """A copy, to write to."""
    return Path(shutil.copytree(served_store, tmp_path / "store"))


@pytest.fixture(scope="session")
def server(served_store: Path, cache: Path) -> Iterator[Server]:
    with Server(served_store, env={"DKGE_CACHE": str(cache)}) as running:
        yield running.ready()
        assert running.process.poll() is None, "nothing that was asked ended it"
    assert not [line for line in running.said if "Traceback" in line], "".join(running.said)
