"""How commands speak: one JSON object or readable lines on stdout; progress and everything else on stderr."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Progress = Callable[[float, str], None]


def emit(report: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print a report for machines, or let `show` print it for people."""
    if as_json:
        print_json(report)
    else:
        show(report)


def print_json(value: dict[str, Any]) -> None:
    """One line. Labels stay readable where stdout can take them."""
    print(json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() not in ("utf-8", "utf8")))


@contextmanager
def progress_bar(title: str, as_json: bool = False) -> Iterator[Progress | None]:
    """A bar with the time left, on a terminal only."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda done, text: bar.update(task, completed=done, description=f"{title}: {text}")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns: numbers to the right, everything else to the left."""
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in texts)) if texts else len(name) for i, name in enumerate(columns)]
    numeric = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    for line in ([*columns], *texts):
        cells = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(line, widths, numeric, strict=True)]
        print("  ".join(cells).rstrip())


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Asks whether somebody wants this to stop, by Ctrl-C or SIGTERM. The second Ctrl-C does not wait any more."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
