"""The scripts of launch/ as programs: what they print, and how they end."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dkge_dist

LAUNCH = Path(__file__).parents[2] / "launch"


def run(script: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LAUNCH / script), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=240, check=False)


@pytest.mark.parametrize("script", ["train.py", "nightly.py"])
def test_wrong_usage(script: str, tmp_path: Path) -> None:
    ended = run(script, "--json", "--shards", "2", cwd=tmp_path)
    assert ended.returncode == 2
    assert "STORE" in json.loads(ended.stdout)["error"] and "STORE" in ended.stderr


@pytest.mark.parametrize(("script", "words"), [("train.py", ["none"]), ("nightly.py", ["none", "nothing"])])
def test_failure(script: str, words: list[str], tmp_path: Path) -> None:
    """Before a cluster is looked for."""
    ended = run(script, *words, "--json", "--shards", "2", cwd=tmp_path)
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["error"] in ended.stderr


@pytest.fixture(scope="module")
def scalability() -> Any:
    spec = importlib.util.spec_from_file_location("scalability", LAUNCH / "scalability.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestScalability:
    def test_the_command_line(self, scalability: Any) -> None:
        options = scalability.parsed(["store", "model.dim=8", "--pairs", "0:1,8:4", "threads=1", "--json"])
        assert options.store == Path("store") and options.settings == ["model.dim=8", "threads=1"]
        assert options.pairs == [(0, 1), (8, 4)] and options.json

    def test_settings_of_a_synthetic_graph_are_no_store(self, scalability: Any) -> None:
        options = scalability.parsed(["--synth", "demo", "model.dim=8"])
        assert options.store is None and options.settings == ["model.dim=8"]

    @pytest.mark.parametrize(
        "words", [[], ["store", "--synth", "demo"], ["store", "--pairs", "0:2"], ["store", "--pairs", "4"]]
    )
    def test_wrong_usage(self, scalability: Any, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            scalability.parsed(words)
        assert ended.value.code == 2 and "usage:" in capsys.readouterr().err

    def test_the_copy_is_a_store_and_goes(self, scalability: Any, tmp_path: Path) -> None:
        dkge_dist.synth(tmp_path / "movies", entities=300, triples=900, nights=0)
        store = tmp_path / "place" / "store"
        dkge_dist.ingest(store, tmp_path / "movies" / "snapshot-000.tsv")
        options = argparse.Namespace(store=store, synth=None, work=None)
        with scalability.working_copy(options) as copy:
            assert copy.parent.parent == store.parent, "beside it: all nodes see it, and hard links reach"
            assert dkge_dist.check(copy)["ok"]
            parts = [path for path in (copy / "parts").rglob("*") if path.is_file()]
            assert parts and all(path.stat().st_nlink == 2 for path in parts)
            (copy / "training").mkdir()
        assert [path.name for path in store.parent.iterdir()] == ["store"]
        assert dkge_dist.check(store)["ok"]

    def test_a_synthetic_graph(self, scalability: Any, tmp_path: Path) -> None:
        with scalability.working_copy(argparse.Namespace(store=None, synth="demo", work=tmp_path)) as store:
            assert dkge_dist.log(store)["versions"][0]["kind"] == "snapshot"
        assert list(tmp_path.iterdir()) == []

    def test_no_store(self, scalability: Any, tmp_path: Path) -> None:
        options = argparse.Namespace(store=tmp_path / "none", synth=None, work=None)
        with pytest.raises(dkge_dist.types.UsageError, match="none: not a store"), scalability.working_copy(options):
            pass
