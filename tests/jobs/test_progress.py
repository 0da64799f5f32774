"""Progress in a notebook, as messages that a front end gets. IPython is no dependency: its two functions stand in."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dkge_dist.runtime import Monitor
from dkge_dist.surfaces.progress import UPDATE_SECONDS, CallbackMonitor, NotebookBar, notebook_display, shown


class Notebook:
    """The outputs of a cell, by their ids; an update replaces what is there."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, str]] = []
        self.messages = 0

    def display(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        self.outputs.append(data)
        place = len(self.outputs) - 1

        def update(data: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.messages += 1
            self.outputs[place] = data

        return SimpleNamespace(update=update)

    @property
    def text(self) -> str:
        (output,) = self.outputs
        return output["text/plain"]


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    notebook, ipython, display = Notebook(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = notebook.display  # type: ignore[attr-defined]
    for name, module in (("ipykernel", ModuleType("ipykernel")), ("IPython", ipython), ("IPython.display", display)):
        monkeypatch.setitem(sys.modules, name, module)
    return notebook


def test_one_output_is_updated_in_place() -> None:
    now, notebook = [0.0], Notebook()
    bar = NotebookBar("train", notebook.display, lambda: now[0])
    bar(0.0, "epoch 1/4")
    assert notebook.text == "train: 0%: epoch 1/4"
    now[0] = 10.0
    bar(0.25, "epoch 2/4 <b>")
    assert notebook.text == "train: 25%, 30 s left: epoch 2/4 <b>"
    assert notebook.outputs[0]["text/html"] == (
        '<div><progress value="0.2500" max="1"></progress> train: 25%, 30 s left: epoch 2/4 &lt;b&gt;</div>'
    )
    now[0] = 12.34
    bar.close()
    assert notebook.text == "train: done in 12.3 s"


def test_a_browser_is_not_flooded_and_sees_the_end() -> None:
    now, notebook = [0.0], Notebook()
    bar = NotebookBar("train", notebook.display, lambda: now[0])
    for step in range(1000):
        now[0] = step / 1000
        bar(step / 1000, "batches")
    assert notebook.messages <= 1 / UPDATE_SECONDS
    bar(1.0, "written")
    assert notebook.text == "train: 100%: written"


def test_the_time_left_is_that_of_the_step() -> None:
    now, notebook = [0.0], Notebook()
    bar = NotebookBar("nightly", notebook.display, lambda: now[0])
    for moment, share in ((100.0, 0.9), (100.5, 0.1), (101.5, 0.2)):
        now[0] = moment
        bar(share, "x")
    assert notebook.text == "nightly: 20%, 8 s left: x"


def test_progress_true_is_shown_in_a_notebook(in_notebook: Notebook, capfd: pytest.CaptureFixture[str]) -> None:
    with shown(True, "ingest") as callback:
        assert callback is not None
        callback(0.5, "reading")
        assert in_notebook.text.startswith("ingest: 50%")
    assert in_notebook.text.startswith("ingest: done in ")
    assert capfd.readouterr() == ("", "")


def test_work_that_failed_is_not_done(in_notebook: Notebook) -> None:
    def fail() -> None:
        with shown(True, "ingest") as callback:
            assert callback is not None
            callback(0.5, "reading")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert in_notebook.text.startswith("ingest: 50%")


def test_elsewhere_there_is_no_notebook(in_notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython in a terminal has no kernel; a script has no IPython."""
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    assert notebook_display() is None
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.delitem(sys.modules, "IPython")
    assert notebook_display() is None


def test_a_monitor_passes_on_what_a_caller_wants_to_know() -> None:
    heard: list[tuple[float, str]] = []
    answers = iter([False, True])
    monitor: Monitor = CallbackMonitor(lambda share, message: heard.append((share, message)), lambda: next(answers))
    monitor.progress(0.5, "half")
    monitor.epoch({"epoch": 1})
    assert heard == [(0.5, "half")]
    assert [monitor.should_stop(), monitor.should_stop()] == [False, True]


def test_a_monitor_without_callbacks_is_silent_and_never_stops() -> None:
    monitor = CallbackMonitor(None, None)
    monitor.progress(1.0, "done")
    assert monitor.should_stop() is False
