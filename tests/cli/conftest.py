"""Stores that the tests of several commands share. They are only read; tests that write take a copy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.main import main
from tests.cli.running import Ended, Run, dkge, without_progress
from tests.graphs import LEARN, dense, fresh_labels, write_changes, write_tsv


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process, where a process of its own would make no difference but to the clock."""

    def command(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dkge", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        stdout, stderr = capsys.readouterr()
        return Ended(int(ended.value.code or 0), stdout, without_progress(stderr))

    return command


@pytest.fixture(scope="session")
def movies_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("movies")


@pytest.fixture(scope="session")
def synthesised(movies_folder: Path) -> tuple[Path, Ended]:
    """A synthetic graph of a snapshot and two nights, and how `dkge synth` ended."""
    out = movies_folder / "movies"
    return out, dkge("synth", out, "--entities", "800", "--nights", "2", "--seed", "4", "--json")


@pytest.fixture(scope="session")
def ingested(movies_folder: Path, synthesised: tuple[Path, Ended]) -> tuple[Path, list[Ended]]:
    """A store of the snapshot and both nights, and how the three ingests ended."""
    movies, store = synthesised[0], movies_folder / "store"
    first = dkge("ingest", store, movies / "snapshot-000.tsv", "--valid", "30", "--test", "20", "--json")
    nights = [dkge("ingest", store, movies / f"night-00{night}.changes", "--json") for night in (1, 2)]
    return store, [first, *nights]


@pytest.fixture(scope="session")
def store(ingested: tuple[Path, list[Ended]]) -> Path:
    """A store of three snapshots, without a model."""
    return ingested[0]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a dense graph and of two nights."""
    path = tmp_path_factory.mktemp("learning")
    write_tsv(path / "base.tsv", dense())
    for number in (1, 2):
        write_changes(path / f"night{number}.changes", fresh_labels(number), [dense()[100 * number]])
    return path


@pytest.fixture(scope="session")
def trained(folder: Path) -> tuple[Path, Ended]:
    """A store with a trained model, and how `dkge train` ended."""
    store = folder / "trained"
    api.ingest(store, folder / "base.tsv", valid=20, test=20)
    return store, dkge("train", store, *LEARN, "--json")


@pytest.fixture(scope="session")
def updated(folder: Path, trained: tuple[Path, Ended]) -> tuple[Path, Ended]:
    """Snapshot 1 with model 2, night 3 with model 4, and how `dkge update` ended."""
    store = Path(shutil.copytree(trained[0], folder / "updated"))
    api.ingest(store, folder / "night1.changes")
    return store, dkge("update", store, "--json")


@pytest.fixture
def copy(trained: tuple[Path, Ended], tmp_path: Path) -> Path:
    """A copy of the trained store, to write to."""
    return Path(shutil.copytree(trained[0], tmp_path / "store"))
