"""Options that several commands share: they are there, mean the same everywhere, and wrong values are wrong usage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.app import Command, app, typer_function
from dkge_dist.surfaces.requests.fields import OnStore, Option, Request, argument
from tests.cli.running import Run, dkge

COMMANDS: dict[str, dict[str, Any]] = {
    name: {parameter.name: parameter for parameter in command.params}
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
}
"""Parameters by name, of every command by name."""

SHARED = (
    "as_json",
    "config",
    "valid",
    "test",
    "force",
    "max_bad_lines",
    "onto",
    "since_version",
    "shards",
    "address",
    "wait_seconds",
)


def test_every_command_takes_json() -> None:
    assert len(COMMANDS) == 22
    assert all(parameters["as_json"].opts == ["--json"] for parameters in COMMANDS.values())


def test_commands_take_a_store_first() -> None:
    first = {name: next(iter(parameters)) for name, parameters in COMMANDS.items()}
    assert {name for name, parameter in first.items() if parameter != "store"} == {"synth", "settings", "demo"}


@pytest.mark.parametrize("shared", SHARED)
def test_shared_options_mean_the_same_everywhere(shared: str) -> None:
    found = [parameters[shared] for parameters in COMMANDS.values() if shared in parameters]
    assert len(found) > 1
    assert len({(tuple(option.opts), option.help, option.default) for option in found}) == 1


def test_commands_on_shards_take_an_address_and_a_wait() -> None:
    on_shards = {name for name, parameters in COMMANDS.items() if "shards" in parameters}
    assert on_shards == {"train", "update", "nightly", "evaluate", "fidelity", "answer", "score", "similar"}
    assert all({"address", "wait_seconds"} <= COMMANDS[name].keys() for name in on_shards)


@pytest.mark.parametrize("command", ["train", "update", "evaluate"])
@pytest.mark.parametrize("wrong", [("--shards", "0"), ("--wait", "-1")])
def test_values_below_the_minimum_are_wrong_usage(command: str, wrong: tuple[str, str], run: Run) -> None:
    ended = run(command, "absent", *wrong, "--json")
    assert ended.code == 2
    assert wrong[0] in ended.json["error"]


def test_settings_on_the_command_line_win_over_those_of_a_file(store: Path, tmp_path: Path) -> None:
    config = tmp_path / "small.yaml"
    config.write_text("context:\n  cap: 1\n  hops: 2\n")
    ended = dkge("diff", store, "1", "2", "--affected", "--config", config, "context.hops=1", "--json")
    changed = "context_changed_entities"
    assert ended.json[changed] == api.diff(store, "1", "2", affected=True, settings=["context.cap=1"])[changed]
    assert ended.json[changed] != api.diff(store, "1", "2", affected=True)[changed]


def test_unknown_setting_is_wrong_usage(store: Path, run: Run) -> None:
    ended = run("diff", store, "1", "2", "context.caps=5", "--json")
    message = "command line: no setting 'context.caps'; did you mean 'context.cap'?"
    assert ended.code == 2
    assert ended.json == {"error": message}
    assert ended.stderr == f"dkge: {message}\n"


@dataclass(frozen=True)
class Greet(OnStore, Request[dict[str, Any]]):
    """Greet somebody.

    Further paragraphs are for Python.
    """

    name: Annotated[str | int, argument("NAME", "Whom.")]
    times: Annotated[int, Option("How often.", at_least=1, at_most=9)] = 1
    aloud: Annotated[bool, Option("In capitals.", off=("--quietly", "Not in capitals."))] = True

    def run(self) -> dict[str, Any]:
        words = f"hello {self.name} of {self.store} " * self.times
        return {"words": words.upper() if self.aloud else words}


def test_a_request_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Its fields are options with their help and limits; what it gives is shown, or printed as JSON."""
    shown: list[str] = []
    some = typer.Typer(rich_markup_mode=None, add_completion=False)
    some.command()(typer_function("greet", Command(Greet, lambda report, name: shown.append(name), ("name",))))

    def run(*words: str) -> str:
        with pytest.raises(SystemExit):
            some(words)
        return "".join(capsys.readouterr())

    told = run("--help")
    assert "Greet somebody." in told and "Further" not in told
    assert "How often." in told and "1<=x<=9" in told and "--quietly" in told and "Not in capitals." in told
    assert run("here", "Ann", "--times", "2", "--json") == '{"words": "HELLO ANN OF HERE HELLO ANN OF HERE "}\n'
    assert run("here", "Ann", "--quietly", "--json") == '{"words": "hello Ann of here "}\n'
    assert run("here", "Ann") == "" and shown == ["Ann"]
    assert "--times" in run("here", "Ann", "--times", "0")
