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

from dkge_dist.surfaces.cli.output import (
    ProgressLines,
    emit,
    format_duration,
    print_json,
    print_table,
    progress_bar,
    stop_requested,
)


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

    @pytest.mark.parametrize("columns", ["20", "80"])
    def test_long_cells_are_neither_cut_nor_wrapped(
        self, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", columns)
        label = "word " * 400 + "end"
        print_table(["answer", "distance"], [[label, 1.25]] * 3)
        _, *lines = capsys.readouterr().out.splitlines()
        assert lines == [f"{label}      1.25"] * 3

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


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TestProgress:
    def test_short_commands_say_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        with progress_bar("train") as progress:
            assert progress is not None
            progress(0.5, "epoch 3")
            progress(1.0, "writing")
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

    def test_quiet_is_quiet(self, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar("train", quiet=True) as progress:
            assert progress is None
        assert terminal.getvalue() == ""

    def lines(self, steps: list[tuple[float, float, str]], capsys: pytest.CaptureFixture[str]) -> list[str]:
        """What is told of (second, share, text)."""
        clock = Clock()
        told = ProgressLines("job", clock)
        for second, share, text in steps:
            clock.now = 100 + second
            told(share, text)
        out, err = capsys.readouterr()
        assert out == ""
        assert all(line.startswith("dkge job: ") for line in err.splitlines())
        return [line.removeprefix("dkge job: ") for line in err.splitlines()]

    def test_a_line_every_ten_seconds(self, capsys: pytest.CaptureFixture[str]) -> None:
        steps = [(float(second), second / 100, "reading") for second in range(35)]
        assert self.lines(steps, capsys) == [
            "10%, 90 s left: reading",
            "20%, 80 s left: reading",
            "30%, 70 s left: reading",
        ]

    def test_long_epochs_are_told_when_they_end(self, capsys: pytest.CaptureFixture[str]) -> None:
        """With what the last batch of the epoch said."""
        batches = [
            (25.0 * number, number / 40, f"epoch {number // 10 + 1}/4, batch {number % 10}") for number in range(25)
        ]
        assert self.lines(batches, capsys) == [
            "22%, 14 min left: epoch 1/4, batch 9",
            "48%, 9 min left: epoch 2/4, batch 9",
        ]

    def test_short_epochs_are_told_every_ten_seconds(self, capsys: pytest.CaptureFixture[str]) -> None:
        epochs = [(4.0 * number, number / 10, f"epoch {number}/10") for number in range(1, 8)]
        # The end of epoch 2 is seen at 12 s, that of epoch 5 at 24 s.
        assert [line.split(": ")[1] for line in self.lines(epochs, capsys)] == ["epoch 2/10", "epoch 5/10"]

    def test_a_second_step_has_its_own_time(self, capsys: pytest.CaptureFixture[str]) -> None:
        steps = [(0.0, 0.0, "a"), (11.0, 1.0, "a"), (12.0, 0.0, "b"), (32.0, 0.5, "b"), (50.0, 0.5, "c")]
        assert self.lines(steps, capsys) == ["100%: a", "50%, 20 s left: b", "50%, 38 s left: c"]

    def test_no_time_left_before_anything_is_done(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.lines([(0.0, 0.3, "resumed"), (11.0, 0.3, "resumed")], capsys) == ["30%: resumed"]


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (99.0, "99 s"), (130.0, "2 min"), (7300.0, "2 h")])
def test_durations_have_the_unit_that_fits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


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
from dkge_dist.surfaces.cli.output import stop_requested

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
