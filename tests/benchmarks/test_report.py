"""Published results name no path of the machine that they were measured on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Published data somewhere on this machine."""
    folder = tmp_path / "somewhere" / "data"
    folder.mkdir(parents=True)
    monkeypatch.setenv("DKGE_DATA", str(folder))
    return folder


def strings_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings_of(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings_of(part)]
    return [value] if isinstance(value, str) else []


def test_paths_of_published_data_are_relative_to_the_setting(data: Path) -> None:
    given = ["--source", str(data / "YAGO-3SP" / "snapshot1"), "--rounds", "4", "--work", "/var/x", "--save"]
    expected = "python -m benchmarks.bench_train --source $DKGE_DATA/YAGO-3SP/snapshot1 --rounds 4 --save"
    assert report.command_line("bench_train", given) == expected


def test_paths_of_the_project_are_relative_to_it() -> None:
    assert report.portable(f"read {report.PROJECT}/configs/yago.yaml twice") == "read configs/yago.yaml twice"
    assert report.portable(report.PROJECT / "configs") == "configs"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/home/someone/graphs/dump.tsv", "dump.tsv"),
        ("--source=/srv/graphs/dump", "--source=dump"),
        ("../elsewhere/dump", "dump"),
        ("~/graphs/dump", "dump"),
        ("'/srv/with/quotes'", "'quotes'"),
        ("no such file: /a/b, /c/d", "no such file: b, d"),
    ],
)
def test_only_the_last_component_of_other_paths_is_left(given: str, expected: str) -> None:
    assert report.portable(given) == expected


@pytest.mark.parametrize(
    "text", ["triples/s", "1/2 of it", "https://example.org/a/b", "2024/01/31", "a / b", "+/- 3", "MRR .38 / .39"]
)
def test_other_uses_of_a_slash_stay(text: str) -> None:
    assert report.portable(text) == text


def test_paths_are_found_at_any_depth(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, {f"{tmp_path}/key": (f"{tmp_path}/x", tmp_path / "y", Path("relative/z"))}], "b": True}
    assert report.portable(value) == {"a": [1, 2.5, None, {"key": ["x", "y", "relative/z"]}], "b": True}


def test_published_result_names_no_path(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(sys, "argv", ["bench_x", "--source", str(data / "YAGO-3SP"), "--save", "--json"])
    result = {"store": tmp_path / "store", "log": [f"wrote {tmp_path}/store/parts/ab"]}
    report.publish(
        "bench_x", result, argparse.Namespace(save=True, json=True), {"speed: triples/s": (12.5, "at least 10")}
    )
    saved = json.loads((tmp_path / "results" / "bench_x.json").read_text())
    assert saved == json.loads(capsys.readouterr().out)
    assert saved["command"] == "python -m benchmarks.bench_x --source $DKGE_DATA/YAGO-3SP --save --json"
    assert (saved["store"], saved["log"]) == ("store", ["wrote ab"])
    assert saved["figures"] == {"speed: triples/s": {"measured": 12.5, "asked": "at least 10"}}
    assert str(tmp_path) not in json.dumps(saved)


def test_no_result_in_the_repository_names_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DKGE_DATA")
    results = sorted((report.PROJECT / "benchmarks" / "results").glob("*.json"))
    assert results
    for path in results:
        for text in strings_of(json.loads(path.read_text(encoding="utf-8"))):
            assert report.portable(text) == text, path.name
