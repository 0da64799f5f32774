"""What jobs take and give: paths and callbacks in, JSON-ready dictionaries out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dkge_dist.jobs.notebook_progress import NotebookBar, notebook_display
from dkge_dist.runtime import Monitor
from dkge_dist.types import PathLike as PathLike
from dkge_dist.types import ProgressCallback as ProgressCallback
from dkge_dist.types import ProgressOption
from dkge_dist.types import Report as Report
from dkge_dist.types import StopCallback as StopCallback
from dkge_dist.types import seconds_since as seconds_since

FINE = 6
"""Digits of seconds that follow the change alone: in a small night they are milliseconds."""


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
