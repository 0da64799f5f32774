"""What commands print: one JSON object or readable lines on stdout; progress and everything else on stderr."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from dkge_dist.types import ProgressCallback

UNLIMITED = 1 << 30
"""Columns of a console that never wraps or cuts a cell: a pipe has no width, and a terminal wraps long lines itself."""


Shown = TypeVar("Shown", bound=Mapping[str, Any])


def emit(report: Shown, as_json: bool, show: Callable[[Shown], None]) -> None:
    """Print a report for machines, or let `show` print it for people. Both are told warnings and notices on stderr."""
    if as_json:
        print_json(report)
    else:
        show(report)
    for told in (report.get("warning"), report.get("notice"), report.get("report_problem")):
        if told:
            print(f"dkge: {told}", file=sys.stderr)


def print_json(value: Mapping[str, Any]) -> None:
    """One line. Labels stay readable where the encoding of stdout has their characters."""
    print(json.dumps(value, default=dict, ensure_ascii=sys.stdout.encoding.lower() not in ("utf-8", "utf8")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns without lines around them: numbers to the right, everything else to the left."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[i], int | float | None) for row in rows)
        # The header as Text: a name may hold what rich would take for markup.
        table.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(format_cell(value)) for value in row))
    console = Console(width=UNLIMITED)
    with console.capture() as captured:
        console.print(table)
    # By `print`, which escapes characters that stdout lacks; the padding of the last column is dropped.
    for line in captured.get().removesuffix("\n").split("\n"):
        print(line.rstrip())


def format_cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


LINE_SECONDS = 10.0
"""Between two lines of progress at least, and before the first: a short command says nothing."""
EPOCH = re.compile(r"epoch (\d+)")


@contextmanager
def progress_bar(title: str, quiet: bool = False) -> Iterator[ProgressCallback | None]:
    """On stderr: a bar with the time left on a terminal, lines elsewhere, nothing if `quiet`."""
    if quiet:
        yield None
        return
    if not sys.stderr.isatty():
        yield ProgressLines(title)
        return
    from dkge_dist.surfaces.progress import shown

    with shown(True, title) as callback:
        yield callback


class ProgressLines:
    """Progress for the log of a job: a line at the end of an epoch or every ten seconds, whichever is rarer."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._clock = title, clock
        self._told = clock()
        self._began: tuple[float, float] = (self._told, 0.0)
        self._last: tuple[float, str] = (0.0, "")

    def __call__(self, share: float, text: str) -> None:
        """So much is done, from 0 to 1."""
        now, (before, said) = self._clock(), self._last
        if share < before or not said:
            # The first step, or the next one of several: each of them takes its own time.
            self._began = (now, share)
        self._last = (share, text)
        epoch, ended = EPOCH.match(text), EPOCH.match(said)
        if ended is not None and (epoch is None or epoch[1] != ended[1]):
            self._tell(now, before, said)
        elif epoch is None:
            self._tell(now, share, text)

    def _tell(self, now: float, share: float, text: str) -> None:
        if now - self._told < LINE_SECONDS:
            return
        self._told = now
        began, first = self._began
        left = (now - began) * (1 - share) / (share - first) if share > first else None
        time_left = "" if left is None or share >= 1 else f", {format_duration(left)} left"
        print(f"dkge {self._title}: {share:.0%}{time_left}: {text}", file=sys.stderr, flush=True)


def format_duration(seconds: float) -> str:
    """Seconds in the unit that fits."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} h"


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """A function that returns whether SIGINT or SIGTERM was received. A second one of either ends the process at once.

    A store can be left at any moment.
    """
    requested = threading.Event()

    def request(number: int, frame: Any) -> None:
        requested.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
