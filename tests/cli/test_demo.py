"""The demo from synthesis to the last night: its report, and what it tells on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dkge_dist import api
from dkge_dist.cli.demo import first_questions, run_demo
from tests.cli.running import EVALUATE_KEYS, TRAIN_KEYS, UPDATE_KEYS, dkge
from tests.graphs import LEARN, write_tsv

REPORT_KEYS = {"base", "train", "evaluate", "answers", "nights", "answers_after", "check", "seconds"}


def assert_whole_story(report: dict[str, Any], folder: Path) -> None:
    assert set(report) >= REPORT_KEYS
    assert report["base"]["valid"] == 200
    assert len(report["nights"]) >= 3
    assert all(night["update"]["emerging_entities"] > 0 for night in report["nights"])
    assert all(question["answers"] for question in (*report["answers"], *report["answers_after"]))
    assert report["check"]["ok"] is True
    last = api.log(folder / "store")["versions"][-1]
    assert (last["kind"], last["name"]) == ("model", report["nights"][-1]["update"]["snapshot"])


def test_short_demo_tells_the_whole_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a training of one epoch; all else is the demo that users see."""
    report = run_demo(tmp_path, settings=[*LEARN, "train.max_epochs=1"])
    assert_whole_story(report, tmp_path)
    assert set(report["train"]) >= TRAIN_KEYS
    assert set(report["evaluate"]) >= EVALUATE_KEYS
    assert set(report["nights"][0]["update"]) >= UPDATE_KEYS
    shown = capsys.readouterr().out
    assert shown.startswith("An evolving movie graph: 3,000 entities, 7,500 triples.\n")
    assert shown.count("  score") == len(report["answers"]) + len(report["answers_after"]) == 6
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("night-")] == [
        night["update"]["snapshot"] for night in report["nights"]
    ]
    assert "\nThe store is sound: " in shown


@pytest.mark.slow
def test_demo_command_as_users_run_it(tmp_path: Path) -> None:
    ended = dkge("demo", "--folder", tmp_path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert_whole_story(ended.json, tmp_path)


def test_questions_are_about_three_different_titles(tmp_path: Path) -> None:
    triples = [
        ("tt1", "actor", "nm1"),
        ("tt1", "director", "nm2"),
        ("tt2", "editor", "nm3"),
        ("tt2", "director", "nm2"),
        ("tt3", "writer", "nm4"),
        ("tt4", "writer", "nm4"),
    ]
    questions = first_questions(write_tsv(tmp_path / "graph.tsv", triples))
    assert questions == [("tt1", "actor"), ("tt2", "director"), ("tt3", "writer")]
