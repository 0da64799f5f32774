"""Trained stores for all tests of jobs: trained once, copied for every test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jobs.building import trained_store


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
