"""The `dkge` command as a whole: nothing heavy is imported early, help, exit codes, errors, interrupts, odd text."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dkge_dist import __version__
from dkge_dist.surfaces import api
from tests.cli.running import DKGE, Ended, Run, dkge
from tests.graphs import lines, listing, movies, write_changes, write_tsv

COMMANDS = (
    "synth", "ingest", "log", "diff", "check", "train", "update", "nightly", "rollback", "alias", "gc", "evaluate",
    "answer", "score", "similar", "evidence", "export", "settings", "serve", "demo",
)  # fmt: skip


class TestImports:
    """`dkge --help` answers at once because nothing heavy is imported for it."""

    @pytest.mark.parametrize("module", ["dkge_dist", "dkge_dist.surfaces.cli.main"])
    def test_importing_loads_nothing_heavy(self, module: str) -> None:
        script = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        loaded = set(json.loads(done.stdout))
        assert module in loaded
        heavy = {
            "numba", "llvmlite", "pyarrow", "torch", "pydantic", "scipy", "pyoxigraph", "yaml", "ray", "zarr", "rich"
        }  # fmt: skip
        assert not loaded & heavy
        assert "dkge_dist.surfaces.api" not in loaded

    def test_help_imports_no_torch(self) -> None:
        script = (
            "import sys; sys.argv = ['dkge', '--help']\n"
            "from dkge_dist.surfaces.cli.main import main\n"
            "try:\n    main()\nfinally:\n    print(sorted({'torch', 'numba', 'pyarrow'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        for command in COMMANDS:
            assert f"\n  {command} " in done.stdout
        assert done.stdout.splitlines()[-1] == "[]"

    def test_public_functions_are_those_of_the_api(self) -> None:
        import dkge_dist

        for name in ("synth", "ingest", "log", "diff", "check"):
            assert getattr(dkge_dist, name) is getattr(api, name)
            assert name in dkge_dist.__all__
        with pytest.raises(AttributeError, match="'dkge_dist' has no attribute 'nonsense'"):
            _ = dkge_dist.nonsense


class TestHelp:
    def test_module_is_the_same_program(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "dkge_dist.surfaces.cli", "--help"], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (0, dkge("--help").stdout)

    def test_every_command_is_listed(self) -> None:
        ended = dkge("--help")
        assert (ended.code, ended.stderr) == (0, "")
        for command in COMMANDS:
            assert f"\n  {command} " in ended.stdout

    def test_help_of_a_command_lists_its_options(self, run: Run) -> None:
        ended = run("ingest", "-h")
        assert ended.code == 0
        for option in ("--format", "--name", "--valid", "--test", "--force", "--max-bad-lines", "--released-after",
                       "--key", "--literals", "--json"):  # fmt: skip
            assert option in ended.stdout

    def test_version_is_printed(self, run: Run) -> None:
        assert run("--version") == Ended(0, f"{__version__}\n", "")

    def test_no_command_is_wrong_usage(self) -> None:
        ended = dkge()
        assert ended.code == 2
        assert ended.stdout == ""
        assert "Commands:" in ended.stderr


class TestFailures:
    """Exit code 1 for failures and 2 for wrong usage; one line on stderr, and the same in the JSON."""

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["ingest", "{store}", "{folder}/short.tsv"], 1, "{folder}/short.tsv: deletes "),
            (["ingest", "{folder}/new", "{folder}/bad.tsv"], 1, "{folder}/bad.tsv:41: 2 columns instead of 3: 'a\\tb'"),
            (["ingest", "{store}", "{folder}/short.tsv", "--format", "xml"], 2, "unknown format 'xml': one of auto, "),
            (["ingest", "{store}", "{folder}/short.tsv", "--valid", "-1"], 2, "--valid and --test take a number"),
            (["ingest", "{store}", "{folder}/short.tsv", "--no-literals"], 2, "--no-literals is for ntriples, "),
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
    def test_error_names_what_is_wrong_and_changes_nothing(
        self,
        store: Path,
        synthesised: tuple[Path, Ended],
        tmp_path: Path,
        arguments: list[str],
        code: int,
        message: str,
        run: Run,
    ) -> None:
        folder = tmp_path
        (folder / "bad.tsv").write_text(lines(movies(40)) + "a\tb\n")
        first = (synthesised[0] / "snapshot-000.tsv").read_text().splitlines(keepends=True)
        (folder / "short.tsv").write_text("".join(first[:100]))
        before = listing(store)
        places = {"store": str(store), "folder": str(folder)}
        ended = run(*(argument.format(**places) for argument in arguments), "--json")
        assert ended.code == code
        assert ended.stderr.startswith(f"dkge: {message.format(**places)}")
        assert ended.stderr.count("\n") == 1
        assert ended.json == {"error": ended.stderr.removeprefix("dkge: ").removesuffix("\n")}
        assert listing(store) == before
        assert not (folder / "new").exists()

    def test_error_in_a_process_of_its_own(self, tmp_path: Path) -> None:
        ended = dkge("log", tmp_path / "absent", "--json")
        assert ended.code == 1
        assert ended.json["error"].startswith(f"{tmp_path}/absent: no store here yet")
        assert ended.stderr == f"dkge: {ended.json['error']}\n"

    def test_errors_leave_stdout_empty(self, tmp_path: Path, run: Run) -> None:
        ended = run("log", tmp_path / "absent")
        assert (ended.code, ended.stdout) == (1, "")
        assert ended.stderr.startswith(f"dkge: {tmp_path}/absent: no store here yet")

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
    def test_parser_errors_are_wrong_usage(self, arguments: list[str], message: str, run: Run) -> None:
        ended = run(*arguments)
        assert ended.code == 2
        assert list(ended.json) == ["error"]
        assert message in ended.json["error"]
        assert message in ended.stderr
        assert "Usage: dkge" in ended.stderr

    def test_full_disk_is_an_error(self, store: Path) -> None:
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [DKGE, "log", str(store)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert done.returncode == 1
        assert done.stderr == "dkge: [Errno 28] No space left on device\n"

    def test_closed_pipe_ends_quietly(self, store: Path) -> None:
        command = subprocess.Popen([DKGE, "log", str(store)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        assert command.stderr.read() == b""
        command.stderr.close()
        assert command.wait() == 1

    def test_interrupt_leaves_a_usable_store(self, tmp_path: Path) -> None:
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
    def test_labels_outside_the_encoding_of_stdout_are_escaped(self, tmp_path: Path) -> None:
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

    def test_path_that_is_not_utf8(self, tmp_path: Path) -> None:
        source = tmp_path / os.fsdecode(b"caf\xe9.tsv")
        source.write_text(lines(movies(40)) + "bad\n")
        ended = dkge("ingest", tmp_path / "store", source, "--max-bad-lines", "1", "--json")
        assert ended.code == 0
        assert ended.json["name"] == "caf_"
        assert b"caf\xe9.tsv:41\t" in Path(ended.json["rejects"]).read_bytes()
        missing = dkge("ingest", tmp_path / "store", tmp_path / os.fsdecode(b"\xff.tsv"), "--json")
        assert missing.code == 1
        assert missing.json["error"].endswith("\udcff.tsv: no such file or folder")


AT_THE_START = """
import importlib.abc, os, signal, sys

class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, getattr(signal, HANDLER))  # Whatever the process that runs the tests has.
sys.meta_path.insert(0, Interrupt())
from dkge_dist.surfaces.cli.main import main
sys.argv = ["dkge", "log", "nowhere"]
main()
"""


@pytest.mark.parametrize(
    "module", ["typer", "dkge_dist.surfaces.requests.fields", "numpy", "dkge_dist.store.history", "pyarrow"]
)
def test_an_interrupt_during_the_start_is_a_message(module: str) -> None:
    for handler, message in (("default_int_handler", "dkge: interrupted\n"), ("SIG_IGN", "dkge: nowhere: no store")):
        script = f"MODULE, HANDLER = {module!r}, {handler!r}{AT_THE_START}"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1
        assert done.returncode == 1


@pytest.mark.parametrize(
    "words",
    [
        ["ingest", "{store}", "{pipe}"],
        ["ingest", "{store}", "{pipe}", "--format", "parquet"],
        ["nightly", "{store}", "{pipe}"],
        ["train", "{store}", "--config", "{pipe}"],
        ["answer", "{store}", "--batch", "{pipe}"],
        ["evaluate", "{store}", "--triples", "{pipe}"],
    ],
)
def test_a_pipe_is_refused_at_once(copy: Path, tmp_path: Path, words: list[str], run: Run) -> None:
    os.mkfifo(tmp_path / "pipe")
    ended = run(*(word.format(store=copy, pipe=tmp_path / "pipe") for word in words))
    assert ended.code in (1, 2)
    assert f"{tmp_path / 'pipe'}: a pipe cannot be read, give a file" in ended.stderr


@pytest.mark.parametrize("name", ["store.json", "versions/00000002.json"])
def test_a_pipe_in_a_store_is_refused_at_once(copy: Path, name: str, run: Run) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    ended = run("log", copy)
    assert ended.code == 1
    assert f"{copy / name}: a pipe cannot be read" in ended.stderr
