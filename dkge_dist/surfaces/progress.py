"""Progress of Python callers: a callback of their own, or a bar in a terminal or a notebook."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dkge_dist.runtime import Monitor
from dkge_dist.types import ProgressCallback, ProgressOption, StopCallback


@contextmanager
def progress_bar(title: str) -> Iterator[ProgressCallback]:
    """A bar on stderr with the time left. It is gone when the work is done."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done, text: bar.update(task, completed=done, description=f"{title}: {text}")


@contextmanager
def shown(progress: ProgressOption, title: str) -> Iterator[ProgressCallback | None]:
    """The callback of a job for what its caller said about progress."""
    if progress is not True:
        yield progress or None
    elif (display := notebook_display()) is not None:
        bar = NotebookBar(title, display)
        yield bar
        bar.close()
    else:
        with progress_bar(title) as callback:
            yield callback


def counted(progress: ProgressCallback | None, text: str) -> Callable[[int, int], None]:
    """The same, of how many are done and of how many."""
    return lambda done, total: progress(done / total if total else 0.0, text) if progress is not None else None


class CallbackMonitor(Monitor):
    """A monitor that passes on what a caller wants to know."""

    def __init__(self, progress: ProgressCallback | None, stop: StopCallback | None) -> None:
        self._progress, self._stop = progress, stop

    def progress(self, share: float, message: str) -> None:
        """How much is done."""
        if self._progress is not None:
            self._progress(share, message)

    def should_stop(self) -> bool:
        """Is the job to stop?"""
        return self._stop is not None and self._stop()


UPDATE_SECONDS = 0.2
"""Between two updates at least: each is a message to the browser."""

Display = Callable[..., Any]
"""`IPython.display.display`."""


def notebook_display() -> Display | None:
    """What shows things in the notebook that this process is the kernel of; None if it is none."""
    if "ipykernel" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import display

    return display if getattr(get_ipython(), "kernel", None) is not None else None


class NotebookBar:
    """A bar with the time left; when the work is done, a line that says how long it took."""

    def __init__(self, title: str, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._display, self._clock = title, display, clock
        self._handle: Any = None
        self._began = self._step_began = clock()
        self._shown = -UPDATE_SECONDS
        self._first = self._last = 0.0

    def __call__(self, share: float, text: str) -> None:
        """So much is done, from 0 to 1."""
        now = self._clock()
        if share < self._last:
            # The next one of several steps, each of which takes its own time.
            self._step_began, self._first = now, share
        self._last = share
        if self._handle is not None and now - self._shown < UPDATE_SECONDS and share < 1:
            return
        self._shown = now
        done = share - self._first
        left = (now - self._step_began) * (1 - share) / done if done > 0 else None
        time_left = "" if left is None or share >= 1 else f", {left:.0f} s left"
        self._show(f"{self._title}: {share:.0%}{time_left}: {text}", share)

    def close(self) -> None:
        """The work is done."""
        self._show(f"{self._title}: done in {self._clock() - self._began:.1f} s", None)

    def _show(self, text: str, share: float | None) -> None:
        bar = "" if share is None else f'<progress value="{share:.4f}" max="1"></progress> '
        data = {"text/plain": text, "text/html": f"<div>{bar}{html.escape(text)}</div>"}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)
