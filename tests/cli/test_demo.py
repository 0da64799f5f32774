"""The demo from synthesis to the last night: its report, and what it tells on the way."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.demo import (
    cost,
    first_and,
    mentioned,
    new_credits,
    run_demo,
    swapped_answers,
    with_evidence,
)
from dkge_dist.types import UsageError
from tests.cli.running import EVALUATE_KEYS, TRAIN_KEYS, UPDATE_KEYS, dkge
from tests.graphs import LEARN

REPORT_KEYS = {
    "folder", "base", "train", "evaluate", "nights", "arrived", "replaced", "predicted", "cost", "page", "check",
    "names", "seconds",
}  # fmt: skip


def assert_whole_story(report: dict[str, Any], folder: Path) -> None:
    assert set(report) == REPORT_KEYS
    assert report["base"]["valid"] == 200
    assert len(report["nights"]) == 5
    assert_replaced(report["replaced"], {night["update"]["snapshot"]: night["update"] for night in report["nights"]})
    assert_arrived(report["arrived"], folder)
    assert_predicted(report["predicted"], folder)
    assert report["cost"]["night_learning"] < report["cost"]["scratch_learning"]
    assert report["check"]["ok"] is True
    last = api.log(folder / "store")["versions"][-1]
    assert (last["kind"], last["name"]) == ("model", report["nights"][-1]["update"]["snapshot"])
    assert report["page"] == str(folder / "nights.html")
    page = (folder / "nights.html").read_text(encoding="utf-8")
    assert page.count("<figure") > 8
    assert any(name in page for name in report["names"].values()), "names, not labels"
    assert json.loads((folder / "demo.json").read_text()) == report


def assert_replaced(replaced: dict[str, Any], updates: dict[str, dict[str, Any]]) -> None:
    update = updates[replaced["snapshot"]]
    for when, version, answer in (("before", "parent", "old"), ("after", "version", "new")):
        asked = replaced[when]
        assert asked["version"] == update[version]
        assert [found["entity"] for found in asked["answers"] if found["known"]] == [replaced[answer]]
        assert {replaced["old"], replaced["new"]} <= {found["entity"] for found in asked["answers"]}
        assert [found["place"] for found in asked["answers"]][:3] == [1, 2, 3]
    assert replaced["why"]


def assert_arrived(arrived: dict[str, Any], folder: Path) -> None:
    """The title came with the last night, and nobody said what is guessed."""
    night = (folder / "movies/night-005.changes").read_text()
    assert f"+\t{arrived['title']}\t{arrived['role']}\t{arrived['person']}\n" in night
    assert arrived["title"] not in (folder / "movies/snapshot-000.tsv").read_text()
    assert f"\t{arrived['title']}\t{arrived['open_role']}\t" not in night
    assert len(arrived["guesses"]) == 3
    assert 1 <= arrived["place"] <= arrived["candidates"]


def assert_predicted(predicted: dict[str, Any], folder: Path) -> None:
    """What is said of the evening before is what its model answers."""
    head, relation, tail = predicted["fact"]
    asked = api.answer(folder / "store", head, relation, new_only=True, top=5000, version=str(predicted["version"]))
    place = [line["entity"] for line in asked["answers"]].index(tail) + 1
    assert abs(place - predicted["place"]) < 1
    assert tail not in [line["entity"] for line in asked["answers"] if line["known"]]
    assert f"+\t{head}\t{relation}\t{tail}\n" in (folder / f"movies/{predicted['snapshot']}.changes").read_text()
    assert predicted["first"] <= predicted["among_first_ten"] <= predicted["could_be_asked"] < predicted["added"] == 600


def test_short_demo_tells_the_whole_story(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a training of one epoch; all else is the demo that users see. A second one takes its place."""
    (tmp_path / "demo.json").write_text("{}")
    (tmp_path / "store").mkdir()
    (tmp_path / "store/leftover").touch()
    report = run_demo(tmp_path, settings=[*LEARN, "train.max_epochs=1"])
    assert_whole_story(json.loads(json.dumps(report, default=dict)), tmp_path)
    assert set(report["train"]) >= TRAIN_KEYS
    assert set(report["evaluate"]) >= EVALUATE_KEYS
    assert set(report["nights"][0]["update"]) >= UPDATE_KEYS
    shown = capsys.readouterr().out
    assert shown.startswith(
        "A movie graph, made up for this demo: 3,000 titles and people, 7,500 facts such as\n    The "
    )
    story, commands = shown.split("\nNext:\n")
    assert "tt0" not in story and "nm0" not in story, "names in the place of labels"
    for night in report["nights"]:
        assert f"\n    {night['headline']}\n" in story
    names, replaced = report["names"], report["replaced"]
    lines = (tmp_path / "movies/names.tsv").read_text().splitlines()
    assert all(f"{label}\t{name}" in lines for label, name in names.items())
    assert set(names) == mentioned(report) - {report["predicted"]["fact"][1]}
    assert f"{names[replaced['title']]} had {names[replaced['old']]} as {replaced['role']}" in " ".join(story.split())
    assert f"    dkge log {tmp_path}/store " in commands
    assert f"    dkge answer {tmp_path}/store {quote(names[replaced['title']])} {replaced['role']} --why " in commands
    assert shown.endswith(f"\nThe nights as a page, for your browser: {tmp_path}/nights.html\n")
    assert len(shown.splitlines()) < 60
    assert max(map(len, story.splitlines())) <= 110


@pytest.mark.slow
def test_demo_command_as_users_run_it(tmp_path: Path) -> None:
    ended = dkge("demo", "--folder", tmp_path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert_whole_story(ended.json, tmp_path)
    replaced = ended.json["replaced"]
    assert replaced["after"]["answers"][0]["entity"] == replaced["new"]
    predicted = ended.json["predicted"]
    assert predicted["place"] == 1
    assert predicted["among_first_ten"] > predicted["could_be_asked"] / 3


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/mine").touch()
    with pytest.raises(UsageError, match="holds something that no demo made"):
        run_demo(tmp_path)
    assert (tmp_path / "store/mine").exists()


def test_new_credits_are_of_newcomers_and_directors_first() -> None:
    added = [("tt1", "director", "nm1"), ("tt9", "editor", "nm1"), ("tt9", "director", "nm2"), ("tt8", "knownFor", "x")]
    assert new_credits(added, {"tt1", "nm1", "nm2"}) == [("tt9", "director", "nm2"), ("tt9", "editor", "nm1")]


def test_swapped_answers_are_one_for_one() -> None:
    deleted = [("tt1", "writer", "nm1"), ("tt2", "director", "nm2"), ("tt3", "actor", "nm3"), ("tt4", "actor", "nm3")]
    added = [
        ("tt1", "writer", "nm4"),
        ("tt2", "director", "nm5"),
        ("tt3", "actor", "nm4"),
        ("tt3", "actor", "nm5"),
        ("tt5", "actor", "nm4"),
    ]
    assert swapped_answers(deleted, added) == [("tt1", "writer", "nm1", "nm4"), ("tt2", "director", "nm2", "nm5")]


def test_an_answer_with_evidence_is_preferred() -> None:
    alone, other = {"why": [{"kind": "vectors"}]}, {"why": [{"kind": "company"}, {"kind": "other"}]}
    assert with_evidence(iter([alone, other])) is other
    assert with_evidence(iter([alone, dict(alone)])) is alone


def test_the_first_answers_are_shown_and_those_asked_for() -> None:
    ranked = [{"place": place, "entity": f"nm{place}"} for place in range(1, 9)]
    assert [answer["place"] for answer in first_and(ranked, ("nm2", "nm6"))] == [1, 2, 3, 6]


def test_cost_is_that_of_all_epochs_at_their_median_speed_and_of_the_median_night() -> None:
    trained = {"epochs": 20, "triples_per_second": 1000.0, "total_seconds": 300.0}
    nights = [{"update": {"learn_seconds": second, "seconds": 2 * second}} for second in (9.0, 1.0, 2.0)]
    assert cost(trained, {"train": 500}, nights) == {
        "scratch_learning": 10.0, "scratch_in_all": 300.0, "night_learning": 2.0, "night_in_all": 4.0,
    }  # fmt: skip
