"""Tables, JSON, progress bars and stop requests."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from dkge_dist.cli.output import emit, print_json, print_table, progress_bar, stop_requested


class TestTable:
    def test_numbers_are_aligned_to_the_right_and_text_to_the_left(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_table(["name", "count", "share"], [["a", 1, 0.5], ["longer", 12345, None]])
        assert capsys.readouterr().out == (
            "name     count  share\n"
            "a            1   0.50\n"
            "longer  12,345      -\n"
        )  # fmt: skip

    def test_a_column_with_any_text_is_aligned_to_the_left(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_table(["", "n"], [["all", 20000], ["  tails", ""]])
        assert capsys.readouterr().out == "         n\nall      20,000\n  tails\n"

    def test_no_rows_print_the_header(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_table(["a", "b"], [])
        assert capsys.readouterr().out == "a  b\n"

    @pytest.mark.parametrize("columns", ["20", "80"])
    def test_long_cells_are_neither_cut_nor_wrapped(
        self, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        label = "word " * 400 + "end"
        print_table(["answer", "distance"], [[label, 1.25]] * 3)
        _, *lines = capsys.readouterr().out.splitlines()
        assert lines == [f"{label}      1.25"] * 3

    def test_booleans_are_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_table(["known"], [[True], [False]])
        assert capsys.readouterr().out.split() == ["known", "yes", "no"]

    def test_markup_and_emoji_codes_in_labels_stay_as_they_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_table(["[bold]x[/bold]"], [["[red]a[/red]"], [":smile:"], ["http://x/y 12.5"]])
        assert capsys.readouterr().out.splitlines() == ["[bold]x[/bold]", "[red]a[/red]", ":smile:", "http://x/y 12.5"]

    def test_wide_characters_keep_columns_aligned(self, capsys: pytest.CaptureFixture[str]) -> None:
        print_table(["name", "n"], [["日本", 1], ["abcd", 2]])
        assert capsys.readouterr().out.splitlines() == ["name  n", "日本  1", "abcd  2"]

    def test_characters_that_stdout_lacks_are_escaped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace"))
        print_table(["name"], [["naïve"]])
        sys.stdout.flush()
        assert raw.getvalue() == b"name\nna\\xefve\n"


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", '{"a": "é"}\n'), ("ascii", '{"a": "\\u00e9"}\n')])
def test_json_keeps_labels_readable_where_stdout_can(
    encoding: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    print_json({"a": "é"})
    sys.stdout.flush()
    assert raw.getvalue().decode(encoding) == expected


def test_emit_prints_json_or_calls_the_renderer(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[dict[str, Any]] = []
    emit({"a": 1}, True, shown.append)
    assert (json.loads(capsys.readouterr().out), shown) == ({"a": 1}, [])
    emit({"a": 1}, False, shown.append)
    assert (capsys.readouterr().out, shown) == ("", [{"a": 1}])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgress:
    def test_no_bar_without_a_terminal(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress_bar("train") as progress:
            assert progress is None
        assert capsys.readouterr() == ("", "")

    def test_bar_on_a_terminal_shows_the_step_on_stderr(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with progress_bar("train") as progress:
            assert progress is not None
            progress(0.5, "epoch 3")
        assert "train: epoch 3" in terminal.getvalue()
        assert "50%" in terminal.getvalue()

    def test_no_bar_beside_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar("train", as_json=True) as progress:
            assert progress is None
        assert terminal.getvalue() == ""


class TestStop:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
    def test_signal_requests_a_stop_and_handlers_come_back(self, number: signal.Signals) -> None:
        before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
        with stop_requested() as stop:
            assert not stop()
            os.kill(os.getpid(), number)
            assert stop()
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before

    def test_second_interrupt_does_not_wait(self) -> None:
        with stop_requested() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_warning_in_a_report_is_told_on_stderr(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    emit({"version": 3, "warning": "look here"}, as_json, lambda report: print(report["version"]))
    out, err = capsys.readouterr()
    assert out == ('{"version": 3, "warning": "look here"}\n' if as_json else "3\n")
    assert err == "dkge: look here\n"


STOPPING = """
import os, signal, sys, time
from dkge_dist.cli.output import stop_requested

with stop_requested() as stop:
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    assert stop()
    print("asked", flush=True)
    if sys.argv[2] == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)
        print("not reached")
"""


@pytest.mark.parametrize("first", ["SIGINT", "SIGTERM"])
def test_a_second_sigterm_ends_the_process_at_once(first: str) -> None:
    command = [sys.executable, "-c", STOPPING, first, "SIGTERM"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "asked\n")
