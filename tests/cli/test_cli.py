"""The `dkge` command as its users run it: one process a call, what it prints, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dkge_dist import __version__, api
from dkge_dist.cli.main import main
from tests.graphs import lines, listing, movies, write_changes, write_tsv

COMMANDS = ("synth", "ingest", "log", "diff", "check", "demo")
DKGE = str(Path(sys.executable).with_name("dkge"))
NIGHT_KEYS = {
    "from", "to", "added", "deleted", "emerging_entities", "removed_entities", "emerging_relations",
    "removed_relations", "affected_entities", "affected_relations", "seconds",
}  # fmt: skip
VERSION_KEYS = {
    "version", "kind", "name", "parent", "created", "format", "entities", "relations", "train", "valid", "test",
    "added", "deleted", "emerging_entities", "removed_entities", "counts", "stored", "seconds",
}  # fmt: skip


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert self.stdout.endswith("\n")
        assert self.stdout.count("\n") == 1
        report = json.loads(self.stdout)
        assert isinstance(report, dict)
        return report


def dkge(*arguments: str | Path, env: dict[str, str] | None = None) -> Ended:
    """Run the command; whatever happens, no user ever sees a traceback."""
    done = subprocess.run(
        [DKGE, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=280,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert "Traceback" not in done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """The same without a process of its own, where that makes no difference but to the clock."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dkge", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        stdout, stderr = capsys.readouterr()
        return Ended(int(ended.value.code or 0), stdout, stderr)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def synthesised(folder: Path) -> tuple[Path, Ended]:
    out = folder / "movies"
    return out, dkge("synth", out, "--entities", "800", "--nights", "2", "--seed", "4", "--json")


@pytest.fixture(scope="module")
def ingested(folder: Path, synthesised: tuple[Path, Ended]) -> tuple[Path, list[Ended]]:
    """A store of a snapshot and two nights; the ends of the three ingests."""
    movies, store = synthesised[0], folder / "store"
    first = dkge("ingest", store, movies / "snapshot-000.tsv", "--valid", "30", "--test", "20", "--json")
    nights = [dkge("ingest", store, movies / f"night-00{night}.changes", "--json") for night in (1, 2)]
    return store, [first, *nights]


@pytest.fixture(scope="module")
def store(ingested: tuple[Path, list[Ended]]) -> Path:
    return ingested[0]


class TestImports:
    """`dkge --help` answers at once because nothing heavy is imported for it."""

    @pytest.mark.parametrize("module", ["dkge_dist", "dkge_dist.cli.main"])
    def test_nothing_heavy(self, module: str) -> None:
        script = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        loaded = set(json.loads(done.stdout))
        assert module in loaded
        heavy = {
            "numba",
            "llvmlite",
            "pyarrow",
            "torch",
            "pydantic",
            "scipy",
            "pyoxigraph",
            "yaml",
            "ray",
            "zarr",
            "rich",
        }
        assert not loaded & heavy
        assert "dkge_dist.api" not in loaded

    @pytest.mark.parametrize("told", [True, False])
    def test_who_imports_torch_first_is_told(self, told: bool) -> None:
        """Its threads were told how to wait before it, or never will be."""
        script = "import sys, types; sys.modules['torch'] = types.ModuleType('torch'); import dkge_dist"
        environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
        environment |= {"OMP_WAIT_POLICY": "PASSIVE"} if told else {}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert ("torch was imported before dkge_dist" in done.stderr) is not told

    def test_the_public_functions_are_there_when_asked_for(self) -> None:
        import dkge_dist

        for name in ("synth", "ingest", "log", "diff", "check"):
            assert getattr(dkge_dist, name) is getattr(api, name)
            assert name in dkge_dist.__all__
        with pytest.raises(AttributeError, match="'dkge_dist' has no attribute 'nonsense'"):
            _ = dkge_dist.nonsense


class TestHelp:
    def test_every_command_is_listed(self) -> None:
        ended = dkge("--help")
        assert (ended.code, ended.stderr) == (0, "")
        for command in COMMANDS:
            assert f"\n  {command} " in ended.stdout

    def test_options_are_told(self, in_process: Callable[..., Ended]) -> None:
        ended = in_process("ingest", "-h")
        assert ended.code == 0
        for option in ("--format", "--name", "--valid", "--test", "--force", "--max-bad-lines", "--released-after",
                       "--key", "--literals", "--json"):  # fmt: skip
            assert option in ended.stdout

    def test_the_version(self, in_process: Callable[..., Ended]) -> None:
        assert in_process("--version") == Ended(0, f"{__version__}\n", "")

    def test_no_command_is_wrong_usage(self) -> None:
        ended = dkge()
        assert ended.code == 2
        assert ended.stdout == ""
        assert "Commands:" in ended.stderr


class TestStory:
    """Synthesise, ingest, diff, log, check."""

    def test_synth(self, synthesised: tuple[Path, Ended]) -> None:
        out, ended = synthesised
        assert ended.code == 0
        assert ended.stderr == ""
        report = ended.json
        assert (report["entities"], report["nights"], report["seed"], report["relations"]) == (800, 2, 4, 14)
        assert report["files"] == ["snapshot-000.tsv", "night-001.changes", "night-002.changes"]
        assert sorted(path.name for path in out.iterdir()) == sorted(report["files"])
        assert (out / "snapshot-000.tsv").read_bytes().count(b"\n") == report["triples"]

    def test_ingest(self, synthesised: tuple[Path, Ended], ingested: tuple[Path, list[Ended]]) -> None:
        made, (first, *nights) = synthesised[1].json, ingested[1]
        report = first.json
        assert (first.code, first.stderr) == (0, "")
        assert (report["version"], report["name"], report["format"]) == (1, "snapshot-000", "tsv")
        assert (report["entities"], report["triples"]) == (made["entities"], made["triples"])
        assert (report["valid"], report["test"]) == (30, 20)
        for number, night in enumerate(nights, 2):
            assert night.code == 0
            assert (night.json["version"], night.json["name"]) == (number, f"night-00{number - 1}")
            assert night.json["added"] >= made["added"] - 5

    def test_diff(self, store: Path, folder: Path) -> None:
        out = folder / "two-nights.changes"
        ended = dkge("diff", store, "snapshot-000", "night-002", "--affected", "context.cap=5", "--examples", "2",
                     "--out", out, "--json")  # fmt: skip
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= NIGHT_KEYS
        assert (report["from"], report["to"], report["out"]) == ("snapshot-000", "night-002", str(out))
        assert report["affected_entities"] > 0
        assert report["context_changed_entities"] <= report["affected_entities"]
        assert [len(row) for row in report["added_examples"]] == [3, 3]
        written = out.read_text().splitlines()
        assert sum(line.startswith("+\t") for line in written) == report["added"]
        assert sum(line.startswith("-\t") for line in written) == report["deleted"]

    def test_diff_for_people(self, store: Path, in_process: Callable[..., Ended]) -> None:
        ended = in_process("diff", store, "1", "2")
        assert ended.code == 0
        assert ended.stdout.startswith("snapshot-000 -> night-001\n")
        assert "emerging entities" in ended.stdout
        assert "\n  + " in ended.stdout
        assert "affected" not in ended.stdout

    def test_log(self, store: Path, in_process: Callable[..., Ended]) -> None:
        ended = dkge("log", store, "--json")
        assert (ended.code, ended.stderr) == (0, "")
        versions = ended.json["versions"]
        assert [version["version"] for version in versions] == [1, 2, 3]
        assert [version["parent"] for version in versions] == [None, 1, 2]
        assert [version["stored"] for version in versions] == ["full", "change", "change"]
        assert all(set(version) >= VERSION_KEYS for version in versions)
        assert api.log(store) == ended.json
        shown = in_process("log", store)
        assert shown.code == 0
        assert [line.split()[:3] for line in shown.stdout.splitlines()[1:]] == [
            ["1", "snapshot", "snapshot-000"],
            ["2", "snapshot", "night-001"],
            ["3", "snapshot", "night-002"],
        ]

    def test_check(self, store: Path) -> None:
        ended = dkge("check", store, "--json")
        assert (ended.code, ended.stderr) == (0, "")
        assert set(ended.json) == {"ok", "versions", "parts", "bytes", "problems", "seconds"}
        assert ended.json["ok"] is True
        assert ended.json["versions"] == 3

    def test_an_ingest_for_people(self, tmp_path: Path, in_process: Callable[..., Ended]) -> None:
        source = tmp_path / "naïve.tsv"
        source.write_text(lines(movies(40) + movies(2)) + "bad line\n")
        ended = in_process("ingest", tmp_path / "store", source, "--max-bad-lines", "1")
        assert (ended.code, ended.stderr) == (0, "")
        assert "'naïve' is version 1: " in ended.stdout
        assert "noticed: duplicates 2, bad lines 1" in ended.stdout
        assert str(tmp_path / "store" / "rejects") in ended.stdout
        again = in_process("ingest", tmp_path / "store", source, "--max-bad-lines", "1")
        assert again.code == 0
        assert again.stdout.startswith("nothing changed: 'naïve' (version 1) holds just this\n")
        assert "bad lines 1" in again.stdout


def test_demo(tmp_path: Path) -> None:
    ended = dkge("demo", "--folder", tmp_path, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    report = ended.json
    assert set(report) >= {"base", "train", "evaluate", "answers", "nights", "answers_after", "check", "seconds"}
    assert report["base"]["valid"] == 200
    assert len(report["nights"]) >= 3
    assert all(night["update"]["emerging_entities"] > 0 for night in report["nights"])
    assert all(question["answers"] for question in (*report["answers"], *report["answers_after"]))
    assert report["check"]["ok"] is True
    last = api.log(tmp_path / "store")["versions"][-1]
    assert (last["kind"], last["name"]) == ("model", report["nights"][-1]["update"]["snapshot"])


class TestSettings:
    def test_a_file_and_words(self, store: Path, tmp_path: Path) -> None:
        config = tmp_path / "small.yaml"
        config.write_text("context:\n  cap: 1\n  hops: 2\n")
        ended = dkge("diff", store, "1", "2", "--affected", "--config", config, "context.hops=1", "--json")
        changed = "context_changed_entities"
        assert ended.json[changed] == api.diff(store, "1", "2", affected=True, settings=["context.cap=1"])[changed]
        assert ended.json[changed] != api.diff(store, "1", "2", affected=True)[changed]

    def test_wrong_ones_are_wrong_usage(self, store: Path, in_process: Callable[..., Ended]) -> None:
        ended = in_process("diff", store, "1", "2", "context.caps=5", "--json")
        message = "command line: no setting 'context.caps'; did you mean 'context.cap'?"
        assert ended.code == 2
        assert ended.json == {"error": message}
        assert ended.stderr == f"dkge: {message}\n"


class TestFailures:
    """Exit code 1 for what failed and 2 for what was asked wrongly; one line on stderr, and in the JSON."""

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["ingest", "{store}", "{folder}/short.tsv"], 1, "{folder}/short.tsv: deletes "),
            (["ingest", "{folder}/new", "{folder}/bad.tsv"], 1, "{folder}/bad.tsv:41: 2 columns instead of 3: 'a\\tb'"),
            (["ingest", "{store}", "{folder}/short.tsv", "--format", "xml"], 2, "unknown format 'xml': one of auto, "),
            (["ingest", "{store}", "{folder}/short.tsv", "--valid", "-1"], 2, "--valid and --test take a number"),
            (["ingest", "{store}", "{folder}/short.tsv", "--no-literals"], 2, "--no-literals is for ntriples sources"),
            (["synth", "{folder}/x", "--preset", "none"], 2, "no preset 'none': one of demo, imdb-30, imdb-13"),
            (["diff", "{store}", "1", "nobody"], 1, "{store}: no snapshot 'nobody'; the newest are snapshot-000, "),
            (["diff", "{store}", "1", "2", "--config", "{folder}/absent"], 2, "{folder}/absent: No such file"),
            (["diff", "{store}", "1", "2", "--out", "{folder}/absent/x"], 1, "{folder}/absent/"),
            (
                ["check", "{folder}"],
                1,
                "{folder}: not a store (no store.json); `dkge ingest {folder} SOURCE` makes one",
            ),
            (["ingest", "{folder}", "{folder}/short.tsv"], 1, "{folder}: exists and is not a store"),
        ],
    )
    def test_what_users_can_act_on(
        self, store: Path, folder: Path, arguments: list[str], code: int, message: str, in_process: Callable[..., Ended]
    ) -> None:
        (folder / "bad.tsv").write_text(lines(movies(40)) + "a\tb\n")
        first = (folder / "movies" / "snapshot-000.tsv").read_text().splitlines(keepends=True)
        (folder / "short.tsv").write_text("".join(first[:100]))
        before = listing(store)
        places = {"store": str(store), "folder": str(folder)}
        ended = in_process(*(argument.format(**places) for argument in arguments), "--json")
        assert ended.code == code
        assert ended.stderr.startswith(f"dkge: {message.format(**places)}")
        assert ended.stderr.count("\n") == 1
        assert ended.json == {"error": ended.stderr.removeprefix("dkge: ").removesuffix("\n")}
        assert listing(store) == before
        assert not (folder / "new").exists()

    def test_in_a_process_of_its_own(self, folder: Path) -> None:
        ended = dkge("log", folder / "absent", "--json")
        assert ended.code == 1
        assert ended.json["error"].startswith(f"{folder}/absent: no store here yet")
        assert ended.stderr == f"dkge: {ended.json['error']}\n"

    def test_stdout_is_for_results(self, folder: Path, in_process: Callable[..., Ended]) -> None:
        ended = in_process("log", folder / "absent")
        assert (ended.code, ended.stdout) == (1, "")
        assert ended.stderr.startswith(f"dkge: {folder}/absent: no store here yet")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["ingest", "--json"], "Missing argument 'STORE'"),
            (["nonsense", "--json"], "No such command 'nonsense'"),
            (["log", "x", "--nonsense", "--json"], "No such option"),
            (["ingest", "x", "y", "--max-bad-lines", "-1", "--json"], "--max-bad-lines"),
            (["ingest", "x", "y", "--key", "both", "--json"], "--key"),
        ],
    )
    def test_what_the_parser_refuses(
        self, arguments: list[str], message: str, in_process: Callable[..., Ended]
    ) -> None:
        ended = in_process(*arguments)
        assert ended.code == 2
        assert list(ended.json) == ["error"]
        assert message in ended.json["error"]
        assert message in ended.stderr
        assert "Usage: dkge" in ended.stderr

    def test_a_damaged_store(self, store: Path, tmp_path: Path, in_process: Callable[..., Ended]) -> None:
        damaged = Path(shutil.copytree(store, tmp_path / "store"))
        part = sorted((damaged / "parts").rglob("*"))[-1]
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
        ended = in_process("check", damaged, "--json")
        assert ended.code == 1
        assert ended.json["ok"] is False
        (problem,) = ended.json["problems"]
        assert f"part {part} is damaged" in problem["problem"]
        shown = in_process("check", damaged)
        assert shown.code == 1
        assert f"version {problem['version']}: {problem['problem']}\n1 problems: 3 versions" in shown.stdout

    def test_a_full_disk(self, store: Path) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [DKGE, "log", str(store)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert done.returncode == 1
        assert done.stderr == "dkge: [Errno 28] No space left on device\n"

    def test_a_reader_that_has_seen_enough(self, store: Path) -> None:
        command = subprocess.Popen([DKGE, "log", str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b""
        command.stderr.close()
        assert command.wait() == 1

    def test_an_interrupt(self, tmp_path: Path) -> None:
        source = write_tsv(tmp_path / "large.tsv", [(f"h{i}", "r", f"t{i % 999}") for i in range(300_000)])
        command = subprocess.Popen(
            [DKGE, "ingest", str(tmp_path / "store"), str(source), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while command.poll() is None and not (tmp_path / "store").exists():
            time.sleep(0.001)
        command.send_signal(signal.SIGINT)
        stdout, stderr = command.communicate(timeout=60)
        assert "Traceback" not in stderr
        if command.returncode == 0:
            # It was done before the signal came.
            assert json.loads(stdout)["version"] == 1
        else:
            assert command.returncode == 1
            assert json.loads(stdout) == {"error": "interrupted"}
        assert api.ingest(tmp_path / "store", source)["version"] == 1


class TestText:
    def test_labels_and_paths_that_a_terminal_cannot_show(self, tmp_path: Path) -> None:
        base = [*movies(40), ("Łódź", "actor", "person1")]
        api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", base))
        api.ingest(tmp_path / "store", write_changes(tmp_path / "night.changes", [("naïve 😀", "actor", "Łódź")]))
        ended = dkge("diff", tmp_path / "store", "1", "2", "--json", env={"PYTHONIOENCODING": "ascii"})
        assert ended.code == 0
        assert ended.stdout.isascii()
        assert ended.json["added_examples"] == [["naïve 😀", "actor", "Łódź"]]
        plain = dkge("diff", tmp_path / "store", "1", "2", env={"PYTHONIOENCODING": "ascii"})
        assert plain.code == 0
        assert "na\\xefve" in plain.stdout

    def test_a_path_that_is_no_text(self, tmp_path: Path) -> None:
        source = tmp_path / os.fsdecode(b"caf\xe9.tsv")
        source.write_text(lines(movies(40)) + "bad\n")
        ended = dkge("ingest", tmp_path / "store", source, "--max-bad-lines", "1", "--json")
        assert ended.code == 0
        assert ended.json["name"] == "caf_"
        assert b"caf\xe9.tsv:41\t" in Path(ended.json["rejects"]).read_bytes()
        missing = dkge("ingest", tmp_path / "store", tmp_path / os.fsdecode(b"\xff.tsv"), "--json")
        assert missing.code == 1
        assert missing.json["error"].endswith("\udcff.tsv: no such file or folder")
