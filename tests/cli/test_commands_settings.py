"""`dkge settings`: every setting with its default and what it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.settings import PRESETS, known_keys
from tests.cli.running import Run

CONFIGS = Path(__file__).parents[2] / "configs"


def test_all_of_them_as_json(run: Run) -> None:
    settings = run("settings", "--json").json["settings"]
    assert [one["key"] for one in settings] == list(known_keys())
    assert all(one.keys() == {"key", "default", "expert", "explanation"} for one in settings)


def test_one_a_group_and_the_experts(run: Run) -> None:
    shown = run("settings", "expert.train.init_scale").stdout
    assert shown.startswith("train.init_scale = 0.2  (expert)\n    Initial vectors")
    assert [one["key"] for one in run("settings", "context", "--json").json["settings"]] == [
        "context.cap",
        "context.hops",
        "context.path_length",
    ]
    assert all(one["expert"] for one in run("settings", "expert", "--json").json["settings"])
    (one,) = run("settings", "model.dim", "--preset", "paper", "--json").json["settings"]
    assert one["default"] == 100


@pytest.mark.parametrize("preset", PRESETS)
def test_files(run: Run, preset: str) -> None:
    assert run("settings", "--yaml", "--preset", preset).stdout == (CONFIGS / f"{preset}.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["replay"], "command line: no setting 'replay'; did you mean 'online.replay'?"),
        (["--preset", "none"], "no preset 'none': one of default, paper"),
    ],
)
def test_unknown_ones_are_wrong_usage(run: Run, words: list[str], message: str) -> None:
    ended = run("settings", *words, "--json")
    assert (ended.code, ended.json) == (2, {"error": message})
