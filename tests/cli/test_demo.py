"""The demo from synthesis to the last night: its report, and what it tells on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dkge_dist import api
from dkge_dist.cli.demo import first_and, first_questions, run_demo, swapped_answers
from tests.cli.running import EVALUATE_KEYS, TRAIN_KEYS, UPDATE_KEYS, dkge
from tests.graphs import LEARN, write_tsv

REPORT_KEYS = {"base", "train", "evaluate", "answers", "nights", "replaced", "answers_after", "check", "seconds"}


def assert_whole_story(report: dict[str, Any], folder: Path) -> None:
    assert set(report) >= REPORT_KEYS
    assert report["base"]["valid"] == 200
    assert len(report["nights"]) >= 3
    assert all(night["update"]["emerging_entities"] > 0 for night in report["nights"])
    assert all(question["answers"] for question in (*report["answers"], *report["answers_after"]))
    replaced, update = report["replaced"], report["nights"][0]["update"]
    assert (replaced["snapshot"], replaced["relation"]) == (update["snapshot"], "director")
    for when, version, answer in (("before", "parent", "old"), ("after", "version", "new")):
        asked = replaced[when]
        assert asked["version"] == update[version]
        assert [found["entity"] for found in asked["answers"] if found["known"]] == [replaced[answer]]
        assert {replaced["old"], replaced["new"]} <= {found["entity"] for found in asked["answers"]}
        assert [found["place"] for found in asked["answers"]][:3] == [1, 2, 3]
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
    replaced = report["replaced"]
    assert f"\n{replaced['head']}\tdirector\t?\n  before (version 2)\n" in shown
    assert f"\n  night-001\n     - {replaced['old']}\n     + {replaced['new']}\n  after (version 4)\n" in shown
    assert "\nThe store is sound: " in shown


@pytest.mark.slow
def test_demo_command_as_users_run_it(tmp_path: Path) -> None:
    ended = dkge("demo", "--folder", tmp_path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert_whole_story(ended.json, tmp_path)
    replaced = ended.json["replaced"]
    for when, answer in (("before", "old"), ("after", "new")):
        assert replaced[when]["answers"][0]["entity"] == replaced[answer]


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


def test_swapped_answers_are_one_for_one_and_directors_first() -> None:
    deleted = [("tt1", "writer", "nm1"), ("tt2", "director", "nm2"), ("tt3", "actor", "nm3"), ("tt4", "actor", "nm3")]
    added = [
        ("tt1", "writer", "nm4"),
        ("tt2", "director", "nm5"),
        ("tt3", "actor", "nm4"),
        ("tt3", "actor", "nm5"),
        ("tt5", "actor", "nm4"),
    ]
    assert swapped_answers(deleted, added) == [("tt2", "director", "nm2", "nm5"), ("tt1", "writer", "nm1", "nm4")]


def test_the_first_answers_are_shown_and_those_asked_for() -> None:
    ranked = [{"place": place, "entity": f"nm{place}"} for place in range(1, 9)]
    assert [answer["place"] for answer in first_and(ranked, ("nm2", "nm6"))] == [1, 2, 3, 6]
