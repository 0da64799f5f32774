"""`launch/scalability.py`: its command line, its working copy, and its tables."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import pytest

import dkge_dist

LAUNCH = Path(__file__).parents[2] / "launch"


@pytest.fixture(scope="module")
def scalability() -> Any:
    spec = importlib.util.spec_from_file_location("scalability", LAUNCH / "scalability.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_settings_and_options_may_be_mixed(scalability: Any) -> None:
    options = scalability.parsed(["store", "model.dim=8", "--pairs", "0:1,8:4", "threads=1", "--json"])
    assert options.store == Path("store") and options.settings == ["model.dim=8", "threads=1"]
    assert options.pairs == [(0, 1), (8, 4)] and options.json


def test_setting_is_not_taken_for_a_store(scalability: Any) -> None:
    options = scalability.parsed(["--synth", "demo", "model.dim=8"])
    assert options.store is None and options.settings == ["model.dim=8"]


@pytest.mark.parametrize(
    "words", [[], ["store", "--synth", "demo"], ["store", "--pairs", "0:2"], ["store", "--pairs", "4"]]
)
def test_wrong_usage_exits_with_2(scalability: Any, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        scalability.parsed(words)
    assert ended.value.code == 2 and "usage:" in capsys.readouterr().err


def test_working_copy_is_a_store_of_hard_links_and_is_removed(scalability: Any, tmp_path: Path) -> None:
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


def test_synthetic_graph_instead_of_a_store(scalability: Any, tmp_path: Path) -> None:
    with scalability.working_copy(argparse.Namespace(store=None, synth="demo", work=tmp_path)) as store:
        assert dkge_dist.log(store)["versions"][0]["kind"] == "snapshot"
    assert list(tmp_path.iterdir()) == []


def test_missing_store_is_wrong_usage(scalability: Any, tmp_path: Path) -> None:
    options = argparse.Namespace(store=tmp_path / "none", synth=None, work=None)
    with pytest.raises(dkge_dist.types.UsageError, match="none: not a store"), scalability.working_copy(options):
        pass


@pytest.mark.parametrize(("text", "pairs"), [("1:1", [(1, 1)]), ("0:1,8:4", [(0, 1), (8, 4)])])
def test_pairs_are_shards_and_workers(scalability: Any, text: str, pairs: list[tuple[int, int]]) -> None:
    assert scalability.pairs_of(text) == pairs


@pytest.mark.parametrize("text", ["0:2", "1:0", "-1:1", "4", "a:b", ""])
def test_impossible_pairs_are_refused(scalability: Any, text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # argparse asks for no more
        scalability.pairs_of(text)


def test_tables_have_a_row_a_pair_and_one_a_shard(scalability: Any, capsys: pytest.CaptureFixture[str]) -> None:
    by_shard = [{"shard": n, "bytes_pulled": 1e6, "bytes_pushed": 2e6, "bytes_held": 3e6} for n in range(2)]
    measured = {
        "shards": 2, "workers": 1, "triples_per_second": 12345.6, "epochs": 3, "bytes_pulled": 2e6,
        "bytes_pushed": 4e6, "cpu_seconds": {"total": 9.5, "shards": 2.0, "workers": 6.5, "rest": 1.0},
        "by_shard": by_shard,
    }  # fmt: skip
    scalability.show([measured, {"shards": 64, "workers": 1, "error": "no room for 64 shards"}])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["2", "1", "12,345.60", "3", "9.50", "2.00", "6.50", "2.00", "4.00"]
    assert lines[3] == "2:1, by shard"
    assert [line.split() for line in lines[5:7]] == [["0", "1.00", "2.00", "3.00"], ["1", "1.00", "2.00", "3.00"]]
    assert lines[-1] == "64:1: no room for 64 shards"
