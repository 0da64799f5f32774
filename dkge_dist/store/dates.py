"""When versions were published: dates that users write, and the newest version by then. Times are UTC unless they say
otherwise, as in manifests."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dkge_dist.types import UsageError

DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
SECOND = timedelta(seconds=1)


def moment_of(text: str) -> datetime | None:
    """The last second of a day (2026-11-17), a minute (2026-11-17T03:00) or a second; None if it is written otherwise.

    The last, so that a version is found by the minute that `dkge log` shows, and a day is all of that day.
    """
    found = DATE.fullmatch(text)
    if found is None:
        return None
    time, seconds, _ = found.groups()
    unit = timedelta(days=1) if time is None else SECOND if seconds else timedelta(minutes=1)
    try:
        began = datetime.fromisoformat(text)
        return (began if began.tzinfo is not None else began.replace(tzinfo=UTC)) + (unit - SECOND)
    except ValueError as error:
        raise UsageError(f"{text!r} is no date: {error}") from None


def time_of(created: str) -> datetime | None:
    """What a manifest says about when it was published; None if that cannot be read."""
    try:
        found = datetime.fromisoformat(created)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def newest_by(moment: datetime, newest: int, time_of_version: Callable[[int], datetime]) -> int:
    """The newest of versions 1 to `newest` that was published by then, 0 if none was.

    A binary search: it asks for the times of a few versions, however many there are. They are in order, but for
    clocks that were set back.
    """
    low, high = 0, newest
    while low < high:
        middle = (low + high + 1) // 2
        if time_of_version(middle) <= moment:
            low = middle
        else:
            high = middle - 1
    return low
