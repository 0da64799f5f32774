"""Tests that need a GPU or published data are skipped, with a reason that is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import PUBLISHED, data_folder

ROOT = Path(__file__).parents[1]
NEEDS_GPU = """
import pytest

@pytest.mark.gpu
@pytest.mark.parametrize("n", range(3))
def test_one(n): assert n > 5

def test_two(): pass
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_missing_gpu_is_said_aloud(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(NEEDS_GPU)
    plugins = ["-p", "no:cacheprovider", "-p", "tests.conftest"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", *plugins, tmp_path / "test_it.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert "3 tests need a GPU and were NOT run: there is none here" in done.stdout
    assert "1 passed, 3 skipped" in done.stdout


def test_published_data_is_skipped_with_the_setting_named() -> None:
    with pytest.raises(pytest.skip.Exception, match="DKGE_DATA is not set: the folder that holds YAGO-3SP and DBpedia"):
        data_folder(None)


def test_published_data_is_where_the_setting_says(tmp_path: Path) -> None:
    for name in PUBLISHED:
        (tmp_path / "data" / name / "snapshot1").mkdir(parents=True)
    assert data_folder(str(tmp_path / "data")) == tmp_path / "data"


def test_wrong_folder_of_published_data_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "YAGO-3SP" / "snapshot1").mkdir(parents=True)
    with pytest.raises(AssertionError, match=f"DKGE_DATA={tmp_path}: no DBpedia-3SP there"):
        data_folder(str(tmp_path))
