"""`launch/train.py` and `launch/nightly.py` as programs: what they print, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[2] / "launch"


def run(script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LAUNCH / script), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240, check=False)


@pytest.mark.parametrize("script", ["train.py", "nightly.py"])
def test_wrong_usage_exits_with_2(script: str, tmp_path: Path) -> None:
    ended = run(script, "--json", "--shards", "2", cwd=tmp_path)
    assert ended.returncode == 2
    assert "STORE" in json.loads(ended.stdout)["error"] and "STORE" in ended.stderr


@pytest.mark.parametrize(("script", "words"), [("train.py", ["none"]), ("nightly.py", ["none", "nothing"])])
def test_missing_store_exits_with_1(script: str, words: list[str], tmp_path: Path) -> None:
    """Before the cluster is contacted."""
    ended = run(script, *words, "--json", "--shards", "2", cwd=tmp_path)
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["error"] in ended.stderr
