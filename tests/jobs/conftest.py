"""Trained stores for all tests of jobs: trained once, copied for every test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import dkge_dist
from tests.jobs.building import SPOILT, ring_night, ring_store, trained_store


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A trained store of a preset; tests change copies of it."""
    made: dict[str, Path] = {}

    def store(preset: str) -> Path:
        if preset not in made:
            made[preset] = trained_store(tmp_path_factory.mktemp(preset), preset)
        return made[preset]

    return store


@pytest.fixture
def store(trained: Callable[[str], Path], tmp_path: Path) -> Path:
    """A store of the default preset with a snapshot `base` and a model of it, versions 1 and 2."""
    return Path(shutil.copytree(trained("default"), tmp_path / "store"))


@pytest.fixture(scope="session")
def learnt_ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ring_store(tmp_path_factory.mktemp("ring"))


@pytest.fixture
def ring(learnt_ring: Path, tmp_path: Path) -> Path:
    """A store whose validation triples are enough for drift to be told: versions 1 and 2."""
    return Path(shutil.copytree(learnt_ring, tmp_path / "ring"))


@pytest.fixture(scope="session")
def spoilt_ring(learnt_ring: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spoilt")
    store = Path(shutil.copytree(learnt_ring, folder / "ring"))
    for number in (1, 2):
        dkge_dist.nightly(store, ring_night(folder, number), settings=SPOILT)
    return store


@pytest.fixture
def drifted(spoilt_ring: Path, tmp_path: Path) -> Path:
    """The same after two nights that forgot much of it: versions 4 and 6."""
    return Path(shutil.copytree(spoilt_ring, tmp_path / "drifted"))
