"""Numbers and dates as the page has them."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = ("B", "kB", "MB", "GB", "TB")


def format_date(created: str) -> str:
    """To the minute, in UTC."""
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return created


def format_count(value: float | None) -> str:
    """A whole number."""
    return "–" if value is None else f"{value:,.0f}"


def format_short(value: float) -> str:
    """A count beside an axis. What hangs below the line is no less than nothing."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{abs(value) / (1e3 if unit == 'k' else limit):,.4g} {unit}"
    return f"{abs(value):,.4g}"


def format_share(value: float | None) -> str:
    """A number from 0 to 1 without the 0 before its point."""
    if value is None:
        return "–"
    return f"{value:.3f}".replace("0.", ".", 1) if 0 < value < 1 else f"{value:.3g}"


def format_signed(value: float) -> str:
    """A change of a share."""
    return f"{value:+.3f}".replace("0.", ".", 1).replace("-", "−")


def format_percent(value: float) -> str:
    """A change in percent."""
    return f"{value:+.3g}%".replace("-", "−") if value else "0%"


def format_seconds(value: float) -> str:
    """Seconds beside an axis."""
    return f"{value:,.3g} s" if value else "0"


def format_duration(seconds: float) -> str:
    """Seconds, or minutes if there are many."""
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def format_bytes(value: float | None) -> str:
    """A size in the largest unit that leaves a digit before the point."""
    if value is None:
        return "–"
    size, unit = float(value), 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}" if unit else f"{size:.0f} B"
